//! What a user sees when something is wrong, on their side or on ours.

use std::net::TcpListener;

use harness::{
    Answer, Engine, Front, chat, fleet, idle, post, post_with, slow_chat, streamed, until,
};
use serde_json::Value;
use types::Endpoint;

use crate::site::{Site, endpoints, engine_at, sites};

const CHAT: &str = "/v1/chat/completions";

/// An engine that never gets to a first token.
async fn stuck_engine(name: &str) -> Engine {
    Engine::start_with("H100", name, |options| {
        options.time_scale = 1.0;
        options.engine.slowdown = 1e6;
    })
    .await
}

/// The one JSON error in `answer`, in the shape that OpenAI's clients read.
fn error(site: &Site, answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}: {}", site.name, answer.text());
    assert!(answer.header("content-type").starts_with("application/json"), "{}", site.name);
    let error = &answer.json()["error"];
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    assert!(error["type"].is_string(), "{error}");
    error.clone()
}

#[tokio::test]
async fn a_body_that_is_no_request_is_refused_and_says_where() {
    let engines = fleet(&["H100"]).await;
    for site in sites(endpoints(&engines)).await {
        for body in ["{", "x", r#"{"model":"m","messages":[}"#, "[]", r#"{"model":"m"}"#] {
            let answer = post(&site.address, CHAT, body).await;
            error(&site, &answer, 400);
        }
        let answer = post(&site.address, CHAT, "{\n\"model\": nope}").await;
        let message = error(&site, &answer, 400)["message"].to_string();
        assert!(message.contains("line 2"), "{}: {message}", site.name);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn an_unknown_model_is_not_found() {
    let engines = fleet(&["H100"]).await;
    for site in sites(endpoints(&engines)).await {
        let body = chat("hello", 4).to_string().replace("llama-3.1-8b", "gpt-9");
        let answer = post(&site.address, CHAT, body).await;
        let message = error(&site, &answer, 404)["message"].to_string();
        assert!(message.contains("gpt-9"), "{}: {message}", site.name);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn an_objective_that_is_no_number_is_refused_by_name() {
    let engines = fleet(&["H100"]).await;
    for site in sites(endpoints(&engines)).await {
        let headers = [("x-slo-ttft-ms", "soon")];
        let response = post_with(&site.address, CHAT, &headers, chat("hello", 4).to_string()).await;
        let message = error(&site, &response.whole().await, 400)["message"].to_string();
        assert!(message.contains("x-slo-ttft-ms"), "{}: {message}", site.name);
    }
}

/// What a front tells of a fault of ours.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    status: u16,
    /// Type, code and blamed member of the error.
    names: [Value; 3],
    /// Source of the error, reason of the drop, seconds to wait; empty where there is none.
    headers: [String; 3],
}

impl Told {
    fn of(answer: &Answer) -> Self {
        let error = &answer.json()["error"];
        let header = |name: &str| answer.header(name).to_owned();
        Self {
            status: answer.status.as_u16(),
            names: ["type", "code", "param"].map(|name| error[name].clone()),
            headers: [
                header("x-slackline-error-source"),
                header("x-llm-d-request-dropped-reason"),
                header("retry-after"),
            ],
        }
    }

    /// What a caller is told whose request cannot be taken as it is.
    fn invalid(status: u16, code: &str, param: Option<&str>) -> Self {
        let headers = ["caller", "", ""].map(str::to_owned);
        Self { status, names: ["invalid_request_error".into(), code.into(), param.into()], headers }
    }

    /// What a caller is told while there is no endpoint.
    fn no_endpoints() -> Self {
        let names = ["server_error".into(), "no_endpoints".into(), Value::Null];
        let headers = ["router", "rejected-no-endpoints", "1"].map(str::to_owned);
        Self { status: 503, names, headers }
    }
}

/// Every front before `endpoints` answers each body as told beside it, and all of them in the same
/// words.
async fn told_alike(endpoints: Vec<Endpoint>, cases: Vec<(String, Told)>) {
    let sites = sites(endpoints).await;
    for (body, expected) in cases {
        let mut bodies = Vec::new();
        for site in &sites {
            let answer = post(&site.address, CHAT, body.clone()).await;
            error(site, &answer, expected.status);
            assert_eq!(Told::of(&answer), expected, "{}: {}", site.name, answer.text());
            bodies.push(answer.text().to_owned());
        }
        assert!(bodies.windows(2).all(|two| two[0] == two[1]), "{bodies:?}");
    }
}

#[tokio::test]
async fn both_fronts_answer_the_same_fault_of_the_caller_alike() {
    let invalid = |param| Told::invalid(400, "invalid_body", param);
    let too_large = Told::invalid(413, "request_too_large", None);
    let cases = vec![
        ("{\"model\": \"m\",\n nope".to_owned(), invalid(None)),
        (r#"{"messages":[{"role":"user","content":"a"}]}"#.to_owned(), invalid(Some("model"))),
        (r#"{"model":"m"}"#.to_owned(), invalid(Some("messages"))),
        (harness::chat_of_bytes(3_000_000), too_large),
    ];
    let engines = fleet(&["H100"]).await;
    told_alike(endpoints(&engines), cases).await;
    engines[0].until_requests(0).await;
}

#[tokio::test]
async fn both_fronts_say_alike_that_the_pool_is_empty() {
    told_alike(vec![], vec![(chat("hello", 4).to_string(), Told::no_endpoints())]).await;
}

#[tokio::test]
async fn whoever_leaves_before_the_first_byte_takes_the_request_along() {
    let engines = [stuck_engine("e0").await];
    for site in sites(endpoints(&engines)).await {
        let asking = post_with(&site.address, CHAT, &[], chat("hello", 4).to_string());
        tokio::select! {
            response = asking => unreachable!("{response:?}"),
            () = engines[0].until_requests(1) => {}
        }
        site.quiet(&engines).await;

        // The head of a stream is there before its first token.
        let body = streamed(chat("hello", 4)).to_string();
        let response = post_with(&site.address, CHAT, &[], body).await;
        engines[0].until_requests(1).await;
        drop(response);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn whoever_leaves_in_the_middle_takes_the_request_along() {
    let engines = [engine_at(1.0, "e0").await];
    for site in sites(endpoints(&engines)).await {
        let mut response = post_with(&site.address, CHAT, &[], slow_chat().to_string()).await;
        response.chunk().await.unwrap().unwrap();
        engines[0].until_requests(1).await;
        drop(response);
        site.quiet(&engines).await;
    }
}

/// The page of the router behind `site` counts `count` answers that ended like this.
async fn until_ended(site: &Site, end: &str, count: u64) {
    let wanted = format!("{count} outcomes `{end}` at {}", site.name);
    until(&wanted, async || {
        let families = site.router.registry().gather();
        let family = families.iter().find(|f| f.name() == "slackline_router_outcomes_total")?;
        let of_end = family
            .get_metric()
            .iter()
            .find(|metric| metric.get_label().iter().any(|label| label.value() == end))?;
        ((of_end.get_counter().get_value() - count as f64).abs() < 0.5).then_some(())
    })
    .await;
}

/// Starts a long stream through `site`, kills the engine that serves it, and gives who that was, and
/// what came after the first piece.
async fn kill_in_the_middle(site: &Site, engines: &[Engine]) -> (String, String, bool) {
    let mut response = post_with(&site.address, CHAT, &[], slow_chat().to_string()).await;
    let victim = response.header("x-inference-pod").to_owned();
    response.chunk().await.unwrap().unwrap();
    let is_victim = |engine: &&Engine| engine.endpoint().id.name() == victim;
    engines.iter().find(is_victim).unwrap().kill();
    let (rest, is_whole) = response.rest().await;
    let rest = String::from_utf8(rest).unwrap();
    assert!(!rest.contains("[DONE]"), "{}: {rest}", site.name);
    (victim, rest, is_whole)
}

#[tokio::test]
async fn the_gateway_tells_in_band_that_an_engine_died_and_the_other_serves_on() {
    let engines = [engine_at(1.0, "e0").await, engine_at(1.0, "e1").await];
    let site = Site::gateway(Front::start(endpoints(&engines))).await;
    let (victim, rest, is_whole) = kill_in_the_middle(&site, &engines).await;
    let last = rest.trim_end().rsplit("\n\n").next().unwrap();
    let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    let message = event["error"]["message"].as_str().unwrap();
    assert!(is_whole && message.contains(&victim), "{event}");
    until_ended(&site, "endpoint-failed", 1).await;
    for number in 0..4 {
        let answer = post(&site.address, CHAT, chat(&format!("{number}"), 2).to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.header("x-inference-pod"), victim);
    }
    idle(&site.router).await;
}

/// Envoy does not say why a response broke off, so the endpoint picker learns that an engine is dead
/// from the next request that cannot reach it.
#[tokio::test]
async fn behind_envoy_a_dead_engine_costs_one_more_request_at_most() {
    let engines = [engine_at(1.0, "e0").await, engine_at(1.0, "e1").await];
    let Some(site) = Site::envoy(Front::start(endpoints(&engines))).await else { return };
    let (victim, rest, is_whole) = kill_in_the_middle(&site, &engines).await;
    assert!(!is_whole, "the stream ended as if it were whole: {rest}");
    until_ended(&site, "cancelled", 1).await;
    let mut failed = 0;
    for number in 0..8 {
        let answer = post(&site.address, CHAT, chat(&format!("{number}"), 2).to_string()).await;
        if answer.status == 503 {
            failed += 1;
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.header("x-inference-pod"), victim);
    }
    assert!(failed <= 1, "{failed} requests failed");
    idle(&site.router).await;
}

#[tokio::test]
async fn the_gateway_tries_another_endpoint_where_one_cannot_be_reached() {
    let engines = fleet(&["H100", "L40S"]).await;
    let site = sites(endpoints(&engines)).await.swap_remove(0);
    engines[0].kill();
    for number in 0..6 {
        let answer = post(&site.address, CHAT, chat(&format!("{number}"), 2).to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-inference-pod"), "e1");
    }
    engines[1].kill();
    let answer = post(&site.address, CHAT, chat("anyone?", 2).to_string()).await;
    error(&site, &answer, 502);
    idle(&site.router).await;
}

#[tokio::test]
async fn an_endpoint_whose_metrics_are_dead_still_serves() {
    let engines = fleet(&["H100", "L40S"]).await;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port().to_string();
    drop(nobody);
    let mut endpoints = endpoints(&engines);
    for endpoint in &mut endpoints {
        endpoint.labels.insert("metricsPort".to_owned(), port.clone());
    }
    for site in sites(endpoints).await {
        for number in 0..4 {
            let body = chat(&format!("{number} of four"), 2).to_string();
            let answer = post(&site.address, CHAT, body).await;
            assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
            assert_eq!(answer.header("x-slackline-rung"), "least-requests", "{}", site.name);
        }
        site.quiet(&engines).await;
    }
}
