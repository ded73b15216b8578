//! Two fronts, one decision: the same requests through the gateway and through the endpoint picker
//! go the same way, for the same reasons.
//!
//! Each front has a router of its own over the same endpoints, with the same seed. Time stands still
//! unless the test moves it, and pages say what the test says, so that both see the same world while
//! they learn from it.

use std::{sync::Arc, time::Duration};

use datalayer::Snapshot;
use harness::{Epp, Front, Gateway, Recorder, idle, post_with};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use router::Options;
use serde_json::{Value, json};
use types::{Clock as _, Endpoint, ManualClock};

use crate::proxy::Proxy;

const EVENTS: &str = "text/event-stream";
const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const REST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"c\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":300,\"completion_tokens\":3}}\n\n\
    data: [DONE]\n\n";

/// One request and how long its answer takes wherever it goes.
struct Case {
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
    ttft: Duration,
    gaps: Duration,
}

/// What a front made of a case.
#[derive(Debug, PartialEq)]
struct Outcome {
    address: String,
    rung: String,
    reasons: Value,
}

fn case(random: &mut SmallRng) -> Case {
    let topic = random.random_range(0..6_u32);
    let mut text = format!("Topic {topic}. ").repeat(30);
    text.push_str(&format!("{} ", random.random::<u32>()).repeat(random.random_range(1..200)));
    let is_chat = random.random_bool(0.7);
    let mut body = if is_chat {
        json!({"messages": [{"role": "user", "content": text}]})
    } else {
        json!({"prompt": text})
    };
    body["model"] = json!("m");
    body["stream"] = json!(true);
    body["max_tokens"] = json!(random.random_range(1..300_u32));
    let mut headers = vec![("x-slackline-explain", "true".to_owned())];
    if random.random_bool(0.6) {
        headers.push(("x-slo-ttft-ms", random.random_range(50..900_u32).to_string()));
        headers.push(("x-llm-d-slo-tpot-ms", random.random_range(10..90_u32).to_string()));
    }
    Case {
        path: if is_chat { "/v1/chat/completions" } else { "/v1/completions" },
        headers,
        body: body.to_string(),
        ttft: Duration::from_millis(random.random_range(20..400)),
        gaps: Duration::from_millis(random.random_range(10..80)),
    }
}

fn forward(clock: &ManualClock, by: Duration) {
    clock.advance_to(clock.now().after(by));
}

fn headers(case: &Case) -> Vec<(&str, &str)> {
    case.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

async fn through_gateway(
    gateway: &Gateway,
    clock: &ManualClock,
    endpoints: &[Recorder],
    case: &Case,
) -> Outcome {
    let mut response =
        post_with(&gateway.address, case.path, &headers(case), case.body.clone()).await;
    assert_eq!(response.status, 200);
    let id = response.header("x-slackline-endpoint").to_owned();
    let served = endpoints.iter().find(|each| each.endpoint().id.as_str() == id).unwrap();
    forward(clock, case.ttft);
    served.release(1);
    let first = response.chunk().await.unwrap().unwrap();
    assert_eq!(first, FIRST);
    forward(clock, case.gaps);
    served.release(1);
    assert_eq!(response.rest().await, (REST.as_bytes().to_vec(), true));
    idle(&gateway.router).await;
    Outcome {
        address: served.address.clone(),
        rung: response.header("x-slackline-rung").to_owned(),
        reasons: serde_json::from_str(response.header("x-slackline-explanation")).unwrap(),
    }
}

async fn through_picker(epp: &Epp, proxy: &Proxy, clock: &ManualClock, case: &Case) -> Outcome {
    let (address, mut exchange) = proxy.request(case.path, &headers(case), &case.body).await;
    let head = [(":status", "200"), ("content-type", EVENTS)];
    let names = ["x-slackline-rung", "x-slackline-explanation"];
    let [rung, reasons] = exchange.response(&head, names).await;
    forward(clock, case.ttft);
    exchange.body(FIRST, false).await;
    forward(clock, case.gaps);
    exchange.body(REST, true).await;
    idle(&epp.router).await;
    Outcome { address, rung, reasons: serde_json::from_str(&reasons).unwrap() }
}

/// Gives every endpoint of `front` the page that `random` draws.
fn publish(front: &Front, random: &mut SmallRng) {
    for endpoint in front.router.pool().endpoints().iter() {
        endpoint.publish(Snapshot {
            scraped_at: Some(front.now()),
            running: Some(random.random_range(0..8)),
            waiting: random.random_bool(0.9).then(|| random.random_range(0..4)),
            kv_utilization: random.random_bool(0.9).then(|| random.random_range(0.0..1.0)),
            kv_block_tokens: Some(16),
            kv_blocks: Some(2_000),
            preemptions: None,
        });
    }
}

#[tokio::test]
async fn the_same_requests_go_the_same_way_for_the_same_reasons() {
    let mut recorders = Vec::new();
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for (number, class) in ["H100", "H100", "A100", "L40S"].iter().enumerate() {
        let parts = [FIRST.as_bytes(), REST.as_bytes()];
        let recorder = Recorder::held(&format!("e{number}"), EVENTS, &parts).await;
        let mut endpoint = recorder.endpoint();
        endpoint.labels.insert("accelerator".to_owned(), (*class).to_owned());
        endpoints.push(endpoint);
        recorders.push(recorder);
    }
    let options = Options { seed: 7, ..Options::default() };
    let clocks = [(); 2].map(|()| Arc::new(ManualClock::default()));
    let front = |clock: &Arc<ManualClock>| {
        let clock = Arc::clone(clock);
        Front::unscraped(options.clone(), endpoints.clone(), clock)
    };
    let gateway = Gateway::start(front(&clocks[0])).await;
    let epp = Epp::start(front(&clocks[1])).await;
    let proxy = Proxy::connect(epp.port).await;

    let mut random = SmallRng::seed_from_u64(11);
    let mut rungs = Vec::new();
    for number in 0..120_u64 {
        for (front, clock) in [(&*gateway, &clocks[0]), (&*epp, &clocks[1])] {
            forward(clock, Duration::from_millis(25));
            publish(front, &mut SmallRng::seed_from_u64(number));
        }
        let case = case(&mut random);
        let one = through_gateway(&gateway, &clocks[0], &recorders, &case).await;
        let other = through_picker(&epp, &proxy, &clocks[1], &case).await;
        assert_eq!(one, other, "request {number}");
        rungs.push(one.rung);
    }
    for rung in ["heuristic", "learned"] {
        assert!(rungs.iter().filter(|each| *each == rung).count() >= 10, "{rungs:?}");
    }
    assert_eq!(gateway.router.errors(), epp.router.errors());
}
