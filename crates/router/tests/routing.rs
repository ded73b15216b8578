//! One request through the router: refusals, accounting, the ladder and what is learned.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{collections::BTreeMap, sync::Arc};

use datalayer::{Pool, Snapshot};
use proptest::prelude::*;
use router::{End, Observer, Options, Refusal, Router, Usage};
use schedule::{Policy, Rung};
use types::{Endpoint, EndpointId, Millis, Request, Slo, SubsetEntry, Time};

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn endpoint(at: usize) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), "H100".to_owned())].into(),
    }
}

/// A router over `count` endpoints whose pages all say that they are idle.
fn router(count: usize, policy: Policy) -> Router {
    let pool = Arc::new(Pool::new((0..count).map(endpoint)));
    for state in pool.endpoints().iter() {
        let idle = Snapshot {
            scraped_at: Some(Time::ZERO),
            running: Some(0),
            waiting: Some(0),
            kv_utilization: Some(0.0),
            ..Snapshot::default()
        };
        state.publish(idle);
    }
    let mut options = Options::default();
    options.schedule.policy = policy;
    Router::new(options, pool).unwrap()
}

fn request(prompt: u64) -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 2_000,
        prompt_tokens: None,
        max_tokens: None,
        blocks: (0..8).map(|block| prompt * 100 + block).collect(),
        slo: Slo { ttft: Millis::new(1_000.0), itl: Millis::new(50.0) },
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: false,
    }
}

fn in_flight(router: &Router) -> u32 {
    router.pool().endpoints().iter().map(|endpoint| endpoint.in_flight()).sum()
}

/// Serves one request to its end, 100 ms to the first token and 10 ms to each of ten more.
fn serve(router: &Router, request: &Request, start: u64) -> (String, Rung) {
    let routed = router.route(request, at(start), &[]).unwrap();
    let mut flight = routed.flight;
    for token in 0..11 {
        flight.tokens(1, at(start + 100 + 10 * token));
    }
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 11, cached_tokens: Some(0) });
    flight.finish(End::Complete, at(start + 200));
    (routed.endpoint.endpoint.id.name().to_owned(), routed.rung)
}

#[test]
fn an_empty_pool_and_an_empty_subset_are_refused_for_different_reasons() {
    let empty = router(0, Policy::Learned);
    assert_eq!(empty.route(&request(1), at(0), &[]).unwrap_err(), Refusal::NoEndpoints);
    let some = router(2, Policy::Learned);
    let nowhere = Request { subset: Some(Vec::new()), ..request(1) };
    assert_eq!(some.route(&nowhere, at(0), &[]).unwrap_err(), Refusal::NoneInSubset);
    let first_and_only = some.route(&request(1), at(0), &[0, 1]).unwrap_err();
    assert_eq!(first_and_only, Refusal::AllFiltered);
}

#[test]
fn a_subset_is_kept() {
    let router = router(4, Policy::Random);
    let subset = Some(vec![SubsetEntry::parse("10.0.0.3")]);
    for _ in 0..20 {
        let asked = Request { subset: subset.clone(), ..request(1) };
        assert_eq!(serve(&router, &asked, 0).0, "e2");
    }
}

#[test]
fn eight_requests_with_one_prefix_go_to_one_endpoint() {
    let router = router(4, Policy::Learned);
    let to: std::collections::BTreeSet<_> =
        (0..8).map(|i| serve(&router, &request(1), i * 10).0).collect();
    assert_eq!(to.len(), 1);
}

#[test]
fn eight_different_requests_spread_two_by_two_over_four() {
    let router = router(4, Policy::Heuristic);
    let mut tally = BTreeMap::<String, u32>::new();
    for i in 0..8 {
        *tally.entry(serve(&router, &request(i), i * 10).0).or_default() += 1;
    }
    assert_eq!(tally.values().copied().collect::<Vec<_>>(), [2, 2, 2, 2]);
}

#[test]
fn after_enough_outcomes_the_learned_rung_decides() {
    let router = router(2, Policy::Learned);
    let rungs: Vec<_> = (0..40).map(|i| serve(&router, &request(i), i * 300).1).collect();
    assert_eq!(rungs[0], Rung::Heuristic);
    assert_eq!(rungs[39], Rung::Learned);
    let error = &router.errors()[0];
    assert_eq!(error.class, "m/H100/both");
    assert!(error.ttft.median_error.unwrap() < 0.1, "{error:?}");
}

#[test]
fn a_failed_endpoint_is_left_alone_and_comes_back() {
    let router = router(2, Policy::RoundRobin);
    let routed = router.route(&request(1), at(0), &[]).unwrap();
    let failed = routed.endpoint.slot;
    routed.flight.finish(End::EndpointFailed, at(10));
    for _ in 0..4 {
        let next = router.route(&request(1), at(20), &[]).unwrap();
        assert_ne!(next.endpoint.slot, failed);
    }
    let later: Vec<_> =
        (0..2).map(|_| router.route(&request(1), at(5_000), &[]).unwrap().endpoint.slot).collect();
    assert!(later.contains(&failed));
}

#[test]
fn where_all_endpoints_fail_one_is_tried_all_the_same() {
    let router = router(1, Policy::Learned);
    router.route(&request(1), at(0), &[]).unwrap().flight.finish(End::EndpointFailed, at(1));
    let routed = router.route(&request(1), at(2), &[]).unwrap();
    assert_eq!(routed.rung, Rung::Random);
}

#[test]
fn what_the_proxy_served_elsewhere_is_learned_there() {
    let router = router(2, Policy::RoundRobin);
    let routed = router.route(&request(1), at(0), &[]).unwrap();
    let other = router.pool().endpoints()[1 - routed.endpoint.slot as usize].clone();
    let mut observer = Observer::new(routed.flight);
    observer.served_by(&other.address, at(1));
    assert_eq!((routed.endpoint.in_flight(), other.in_flight()), (0, 1));
    observer.end(End::Complete, at(2));
    assert_eq!(in_flight(&router), 0);
}

#[test]
fn an_error_status_or_an_error_in_the_stream_is_not_learned() {
    let router = router(1, Policy::Learned);
    let page = |status, kind, body: &str| {
        let mut observer = Observer::new(router.route(&request(1), at(0), &[]).unwrap().flight);
        observer.head(status, Some(kind), at(5));
        observer.chunk(body.as_bytes(), at(6));
        observer.end(End::Complete, at(7));
    };
    page(500, "application/json", "{}");
    page(404, "application/json", "{}");
    page(200, "text/event-stream", "data: {\"error\":{\"message\":\"gone\"}}\n\n");
    assert!(router.errors().is_empty());
    let text =
        prometheus::TextEncoder::new().encode_to_string(&router.registry().gather()).unwrap();
    assert!(text.contains("slackline_router_outcomes_total{end=\"endpoint-failed\"} 2"), "{text}");
    assert!(text.contains("slackline_router_outcomes_total{end=\"rejected\"} 1"), "{text}");
}

#[test]
fn a_short_prompt_does_not_push_a_long_one_out_of_the_index() {
    let router = router(1, Policy::Learned);
    let state = router.pool().endpoints()[0].clone();
    let holds_6400_bytes =
        Snapshot { kv_block_tokens: Some(16), kv_blocks: Some(100), ..state.snapshot() };
    state.publish(holds_6400_bytes);
    let long = Request { prompt_bytes: 6_144, blocks: (0..24).collect(), ..request(1) };
    let short = Request { prompt_bytes: 2, blocks: [99].into(), ..request(2) };
    serve(&router, &long, 0);
    serve(&router, &short, 10);
    let again = Request { explain: true, ..long };
    let routed = router.route(&again, at(20), &[]).unwrap();
    // `serve` says that a prompt has 500 tokens.
    assert_eq!(routed.explanation.unwrap().best[0].cached_tokens, 500);
}

#[test]
fn reasons_are_given_to_who_asks() {
    let router = router(2, Policy::Learned);
    assert!(router.route(&request(1), at(0), &[]).unwrap().explanation.is_none());
    let curious = Request { explain: true, ..request(1) };
    let explanation = router.route(&curious, at(0), &[]).unwrap().explanation.unwrap();
    let json = serde_json::to_value(&*explanation).unwrap();
    assert_eq!(json["candidates"], 2);
    assert_eq!(json["rung"], "heuristic");
    assert!(json["fell"].as_str().unwrap().contains("labels"));
}

/// What may become of a request.
#[derive(Clone, Debug)]
enum Fate {
    Tokens(u8),
    Finish(u8),
    Drop,
    Moved(u8),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (1_u8..5).prop_map(Fate::Tokens),
        (0_u8..4).prop_map(Fate::Finish),
        Just(Fate::Drop),
        (0_u8..5).prop_map(Fate::Moved),
    ]
}

proptest! {
    /// Whatever becomes of requests, in whatever order, nothing stays in flight.
    #[test]
    fn counts_return_to_zero(fates in prop::collection::vec((0_usize..8, fate()), 0..80)) {
        let router = router(4, Policy::Learned);
        let mut open: Vec<_> = (0..8)
            .map(|i| Some(router.route(&request(i), at(i), &[]).unwrap().flight))
            .collect();
        prop_assert_eq!(in_flight(&router), 8);
        for (step, (who, fate)) in fates.into_iter().enumerate() {
            let now = at(10 + step as u64);
            let Some(mut flight) = open[who].take() else { continue };
            match fate {
                Fate::Tokens(count) => {
                    flight.tokens(u32::from(count), now);
                    open[who] = Some(flight);
                }
                Fate::Moved(to) => {
                    flight.served_by(&format!("10.0.0.{}:80", to + 1), now);
                    open[who] = Some(flight);
                }
                Fate::Finish(how) => {
                    let ends = [End::Complete, End::ClientGone, End::EndpointFailed, End::Rejected];
                    flight.finish(ends[usize::from(how)], now);
                }
                Fate::Drop => drop(flight),
            }
            let left = open.iter().flatten().count() as u32;
            prop_assert_eq!(in_flight(&router), left);
        }
        open.clear();
        prop_assert_eq!(in_flight(&router), 0);
    }
}
