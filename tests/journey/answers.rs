//! What a user gets who asks for what can be served.

use harness::{chat, events, fleet, get, in_flight, post, post_with, streamed};
use serde_json::{Value, json};

use crate::site::{Site, endpoints, engine_at, sites};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_plain_answer_comes_whole_and_names_who_gave_it() {
    let engines = fleet(&["H100", "L40S"]).await;
    for site in sites(endpoints(&engines)).await {
        let answer = post(&site.address, CHAT, chat("hello", 12).to_string()).await;
        assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
        let json = answer.json();
        assert_eq!(json["usage"]["completion_tokens"], 12);
        let text = json["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(text.split(' ').count(), 12);
        let pod = answer.header("x-inference-pod");
        let engine = engines.iter().find(|engine| engine.endpoint().id.name() == pod).unwrap();
        let port = engine.endpoint().address.port().to_string();
        assert_eq!(answer.header("x-inference-port"), port, "{}", site.name);
        assert!(!answer.header("x-slackline-rung").is_empty(), "{}", site.name);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn a_streamed_answer_comes_token_by_token_with_its_usage() {
    let engines = fleet(&["H100", "L40S"]).await;
    for site in sites(endpoints(&engines)).await {
        let body = streamed(chat("hello", 40)).to_string();
        let answer = post(&site.address, CHAT, body).await;
        assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
        assert!(answer.header("content-type").starts_with("text/event-stream"), "{}", site.name);
        let events = events(&answer.body);
        let has_content = |event: &&Value| {
            event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())
        };
        assert_eq!(events.iter().filter(has_content).count(), 40, "{}", site.name);
        assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 40, "{}", site.name);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn tokens_arrive_while_the_answer_is_still_being_made() {
    let engines = [engine_at(1.0, "e0").await];
    for site in sites(endpoints(&engines)).await {
        let body = harness::slow_chat().to_string();
        let mut response = post_with(&site.address, CHAT, &[], body).await;
        let first = response.chunk().await.unwrap().unwrap();
        assert!(first.starts_with(b"data: {"), "{}", site.name);
        assert_eq!(in_flight(&site.router), 1, "{}", site.name);
        drop(response);
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn completions_take_text_and_token_ids() {
    let engines = fleet(&["H100"]).await;
    for site in sites(endpoints(&engines)).await {
        for (prompt, tokens) in [(json!("one two three four"), 5), (json!([5, 6, 7]), 3)] {
            let body = json!({"model": "llama-3.1-8b", "prompt": prompt, "max_tokens": 4,
                "ignore_eos": true});
            let answer = post(&site.address, "/v1/completions", body.to_string()).await;
            assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
            assert_eq!(answer.json()["usage"]["prompt_tokens"], tokens, "{}", site.name);
        }
        site.quiet(&engines).await;
    }
}

#[tokio::test]
async fn whoever_asks_for_the_reasons_gets_them() {
    let engines = fleet(&["H100", "L40S"]).await;
    for site in sites(endpoints(&engines)).await {
        site.front().settled().await;
        let explain = [("x-slackline-explain", "true")];
        let body = chat("hello", 4).to_string();
        let answer = post_with(&site.address, CHAT, &explain, body.clone()).await.whole().await;
        let reasons = answer.header("x-slackline-explanation");
        let reasons: Value = serde_json::from_str(reasons).unwrap();
        assert_eq!(reasons["rung"], answer.header("x-slackline-rung"), "{}", site.name);
        assert_eq!(reasons["candidates"], 2, "{}", site.name);
        let best = reasons["best"][0]["endpoint"].as_str().unwrap();
        assert_eq!(best, format!("default/{}", answer.header("x-inference-pod")), "{}", site.name);

        let answer = post(&site.address, CHAT, body).await;
        assert_eq!(answer.header("x-slackline-explanation"), "", "{}", site.name);
    }
}

#[tokio::test]
async fn models_and_metrics_are_there_to_read() {
    let engines = fleet(&["H100", "L40S"]).await;
    for site in sites(endpoints(&engines)).await {
        let models = get(&site.address, "/v1/models").await.json();
        assert_eq!(models["data"][0]["id"], "llama-3.1-8b", "{}", site.name);
        assert_eq!(models["data"].as_array().unwrap().len(), 1, "{}", site.name);
        idle_page(&site).await;
    }
}

/// The gateway's own page counts what went through it; Envoy's port leads to the endpoints only.
async fn idle_page(site: &Site) {
    if site.name == "gateway" {
        let page = get(&site.address, "/metrics").await;
        let page = page.text();
        for line in ["slackline_router_in_flight_requests 0", "slackline_router_endpoints 2"] {
            assert!(page.lines().any(|each| each == line), "{page}");
        }
    }
}

#[tokio::test]
async fn the_learner_predicts_after_a_few_dozen_answers() {
    // Slow enough that the tokens of one answer do not arrive all at once.
    let engines = [engine_at(3.0, "e0").await, engine_at(3.0, "e1").await];
    for site in sites(endpoints(&engines)).await {
        let slo = [("x-slo-ttft-ms", "500"), ("x-llm-d-slo-tpot-ms", "50")];
        let mut learned = 0;
        for number in 0..60_u32 {
            let body = streamed(chat(&format!("{number} bottles of beer"), 8)).to_string();
            let answer = post_with(&site.address, CHAT, &slo, body).await.whole().await;
            assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
            learned += u32::from(answer.header("x-slackline-rung") == "learned");
        }
        assert!(learned >= 15, "{}: {learned} of 60 decisions were learned", site.name);
        let labels: u32 = site.router.errors().iter().map(|class| class.ttft.labels).sum();
        assert!(labels >= 58, "{}: {labels} labels", site.name);
        site.quiet(&engines).await;
    }
}
