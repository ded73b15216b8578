//! With priors, the first request of a pool is decided by predictions, and the decision says by which.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::Pool;
use features::{Column, FeatureRow, WIDTH};
use predict::{About, Lessons, Prior};
use prometheus::TextEncoder;
use router::{End, Options, Router};
use schedule::Rung;
use types::{Endpoint, EndpointId, Millis, Request, Slo, Time};

fn endpoint(at: usize, accelerator: &str) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), accelerator.to_owned())].into(),
    }
}

/// An engine that takes `speed` times as long as another.
fn prior(accelerator: &str, speed: f32) -> Prior {
    let row = |i: u16| {
        let uncached = f32::from(100 + i * 37 % 3_000);
        let row = FeatureRow::from([0.0; WIDTH]).with(Column::Uncached, uncached);
        (row, speed * (10.0 + uncached / 30.0))
    };
    let about = About {
        model: "llama-3.1-8b".to_owned(),
        accelerator: accelerator.to_owned(),
        tp: 1,
        weights: None,
        strength: 30.0,
    };
    let ttft: Vec<_> = (0..300).map(row).collect();
    let itl = ttft.iter().map(|(row, _)| (*row, speed * 8.0)).collect();
    let lessons = Lessons { ttft, itl, steps: Vec::new() };
    Prior::train(&about, &lessons, &Lessons::default()).unwrap()
}

fn router(accelerators: [&str; 2]) -> Router {
    let endpoints = accelerators.iter().enumerate().map(|(at, name)| endpoint(at, name));
    let priors = [prior("H100-SXM", 1.0), prior("L4", 10.0)].into_iter().collect();
    let options = Options { priors: Arc::new(priors), ..Options::default() };
    Router::new(options, Arc::new(Pool::new(endpoints))).unwrap()
}

fn request() -> Request {
    Request {
        id: "r".into(),
        model: "meta-llama/Llama-3.1-8B-Instruct".into(),
        stream: true,
        prompt_bytes: 8_000,
        prompt_tokens: None,
        max_tokens: None,
        blocks: [1, 2, 3].into(),
        slo: Slo { ttft: Millis::new(200.0), itl: Millis::new(50.0) },
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: true,
    }
}

#[test]
fn the_first_request_goes_where_priors_say_it_keeps_its_objective() {
    let router = router(["nvidia-l4", "NVIDIA H100 80GB HBM3"]);
    let routed = router.route(&request(), Time::ZERO, &[]).unwrap();
    assert_eq!(routed.rung, Rung::Prior);
    assert_eq!(routed.endpoint.endpoint.id.name(), "e1");
    let explanation = serde_json::to_value(&routed.explanation).unwrap();
    assert_eq!(explanation["rung"], "prior");
    assert_eq!(explanation["best"][0]["prediction"]["source"], "prior");
    routed.flight.finish(End::Complete, Time::ZERO);
    let page = TextEncoder::new().encode_to_string(&router.registry().gather()).unwrap();
    assert!(page.contains("slackline_router_decisions_total{rung=\"prior\"} 1"), "{page}");
    assert!(page.contains("slackline_router_falls_total{reason=\"a class is known by its prior"));
}

#[test]
fn an_endpoint_that_no_prior_knows_makes_the_heuristics_decide() {
    let router = router(["nvidia-l4", "TPU-v5e"]);
    let routed = router.route(&request(), Time::ZERO, &[]).unwrap();
    assert_ne!(routed.rung, Rung::Prior);
    routed.flight.finish(End::Complete, Time::ZERO);
}
