//! How well the learner knows two real engines after 300 requests. Needs them running, so it is
//! started by `tests/real-engine/run`.

use std::{env, sync::Arc};

use harness::{Front, Gateway, idle, post, soon};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};
use types::{Endpoint, EndpointId};

/// `class=host:port` of each engine, between commas.
const ENGINES: &str = "SLACKLINE_REAL_ENGINES";
const REQUESTS: usize = 300;
const AT_ONCE: usize = 6;
/// Words of one token each for the tokenizer of the engines.
const WORDS: [&str; 8] = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog"];

fn endpoints() -> Vec<Endpoint> {
    let engines = env::var_os(ENGINES).and_then(|engines| engines.into_string().ok());
    assert!(engines.is_some(), "`{ENGINES}` names no engines");
    let engines = engines.unwrap();
    let endpoint = |engine: &str| {
        let (class, address) = engine.split_once('=').unwrap();
        Endpoint {
            id: EndpointId::new("default", class),
            address: address.parse().unwrap(),
            labels: [("accelerator".to_owned(), class.to_owned())].into(),
        }
    };
    engines.split(',').map(endpoint).collect()
}

/// A streamed request with a prompt of 50 to 1,500 tokens, for 16 to 64 tokens of answer.
fn request(random: &mut SmallRng) -> Value {
    let tokens = random.random_range(50..=1_500_usize);
    let words: Vec<_> = (0..tokens).map(|_| WORDS[random.random_range(0..WORDS.len())]).collect();
    json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": words.join(" ")}],
        "max_tokens": random.random_range(16..=64_u32),
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

#[tokio::test]
#[ignore = "needs two real engines: run tests/real-engine/run"]
#[expect(clippy::print_stdout, reason = "its figures are what it is run for")]
async fn the_learner_knows_two_real_engines_after_300_requests() {
    let gateway = Gateway::start(Front::start(endpoints())).await;
    let mut random = SmallRng::seed_from_u64(2026);
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    for _ in 0..REQUESTS {
        let slot = soon(Arc::clone(&slots).acquire_owned()).await.unwrap();
        let (address, body) = (gateway.address.clone(), request(&mut random).to_string());
        asked.spawn(async move {
            let answer = post(&address, "/v1/chat/completions", body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.text().ends_with("data: [DONE]\n\n"));
            drop(slot);
            let said = |name: &str| answer.header(name).to_owned();
            (said("x-slackline-endpoint"), said("x-slackline-rung"))
        });
    }
    let mut answers = asked.join_all().await;
    idle(&gateway.router).await;

    println!("{REQUESTS} requests, {AT_ONCE} at once");
    println!("| class | answers | target | labels | median error | p90 coverage | champion |");
    println!("|---|--:|---|--:|--:|--:|---|");
    for class in gateway.router.errors() {
        let name = class.class.split('/').nth(1).unwrap_or_default();
        let id = format!("default/{name}");
        let count = answers.iter().filter(|(endpoint, _)| *endpoint == id).count();
        for (target, of) in [("TTFT", &class.ttft), ("ITL", &class.itl)] {
            let percent = |share: Option<f32>| {
                share.map_or("unknown".to_owned(), |share| format!("{:.1} %", share * 100.0))
            };
            let (error, coverage) = (percent(of.median_error), percent(of.p90_coverage));
            println!(
                "| {name} | {count} | {target} | {} | {error} | {coverage} | {} |",
                of.labels,
                champions(of)
            );
        }
    }
    answers.retain(|(_, rung)| rung == "learned");
    println!("decided by learned predictions: {} of {REQUESTS}", answers.len());
    assert!(answers.len() > REQUESTS / 2);
}

/// The models that serve, by regime from idle to queued.
fn champions(of: &predict::TargetError) -> String {
    let names: Vec<_> = of.regimes.iter().map(|regime| regime.champion).collect();
    names.join(", ")
}
