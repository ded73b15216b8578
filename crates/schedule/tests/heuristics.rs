//! The formulas of the heuristic plugins, held against values worked out by hand.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Demand, Load, Pool, Snapshot};
use predict::{Prediction, Quantiles};
use schedule::{
    Candidate, FILTERS, Filter, Options, PICKERS, Picker, Plugin, Policy, ProfileOptions, Rung,
    SCORERS, Scheduler, Scorer, WeightedPlugin,
};
use serde_json::{Value, json};
use types::{Endpoint, EndpointId, Millis, Request, Slo};

fn request() -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 1_000,
        prompt_tokens: None,
        max_tokens: None,
        blocks: (0..10).collect(),
        slo: Slo { ttft: Millis::new(1_000.0), itl: Millis::new(50.0) },
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: false,
    }
}

/// Idle endpoints of these accelerator classes, for prompts of 1,000 tokens.
fn on(accelerators: &[&str]) -> Vec<Candidate> {
    let endpoint = |(at, accelerator): (usize, &&str)| Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), (*accelerator).to_owned())].into(),
    };
    let pool = Pool::new(accelerators.iter().enumerate().map(endpoint));
    let known = pool.endpoints();
    let candidate = |endpoint: &Arc<_>| Candidate {
        endpoint: Arc::clone(endpoint),
        snapshot: Snapshot::default(),
        snapshot_age_ms: None,
        load: Load::default(),
        demand: Demand { prompt_tokens: 1_000, ..Demand::default() },
        hit_blocks: 0,
        prediction: None,
    };
    known.iter().map(candidate).collect()
}

/// Idle endpoints, one for each of `values`, which `set` puts in its place.
fn with<T: Copy>(values: &[T], set: impl Fn(&mut Candidate, T)) -> Vec<Candidate> {
    let mut candidates = on(&vec!["H100-SXM"; values.len()]);
    for (candidate, value) in candidates.iter_mut().zip(values) {
        set(candidate, *value);
    }
    candidates
}

fn in_flight(requests: &[u32]) -> Vec<Candidate> {
    with(requests, |candidate, requests| candidate.load.decoding = requests)
}

/// Endpoints with this predicted TTFT and ITL, and something in flight.
fn predicted(latencies: &[(f32, f32)]) -> Vec<Candidate> {
    with(latencies, |candidate, (ttft, itl)| {
        candidate.load.decoding = 1;
        candidate.prediction = Some(Prediction {
            ttft: Quantiles([ttft; 4]),
            itl: Quantiles([itl; 4]),
            ..Prediction::default()
        });
    })
}

fn scorer(name: &str, options: &Value) -> Box<dyn Scorer> {
    (SCORERS.iter().find(|kind| kind.name == name).unwrap().build)(options).unwrap()
}

fn filter(name: &str, options: &Value) -> Box<dyn Filter> {
    (FILTERS.iter().find(|kind| kind.name == name).unwrap().build)(options).unwrap()
}

fn picker(name: &str, options: &Value) -> Box<dyn Picker> {
    (PICKERS.iter().find(|kind| kind.name == name).unwrap().build)(options).unwrap()
}

fn scores(scorer: &dyn Scorer, request: &Request, candidates: &[Candidate]) -> Vec<f32> {
    let mut scores = vec![f32::NAN; candidates.len()];
    scorer.score(request, candidates, &mut scores);
    scores
}

fn assert_scores(name: &str, options: &Value, candidates: &[Candidate], expected: &[f32]) {
    let found = scores(&*scorer(name, options), &request(), candidates);
    let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
    assert!(found.iter().zip(expected).all(is_near), "{name} {options}: {found:?}");
    assert_eq!(found.len(), expected.len());
}

/// Slots that `filter` leaves; slots count from 0.
fn left(filter: &dyn Filter, mut candidates: Vec<Candidate>, random: u64) -> Vec<usize> {
    let slots: Vec<u32> = candidates.iter().map(|candidate| candidate.endpoint.slot).collect();
    filter.narrow(&request(), &mut candidates, random);
    let place = |c: &Candidate| slots.iter().position(|slot| *slot == c.endpoint.slot).unwrap();
    candidates.iter().map(place).collect()
}

#[test]
fn requests_are_scored_between_the_fewest_and_the_most() {
    let running =
        with(&[2_u32, 6, 10], |candidate, running| candidate.snapshot.running = Some(running));
    assert_scores("running-requests", &json!({}), &running, &[1.0, 0.5, 0.0]);
    assert_scores("running-requests", &json!({}), &in_flight(&[3, 3]), &[1.0, 1.0]);
}

#[test]
fn active_requests_are_scored_against_the_most() {
    let some = in_flight(&[0, 1, 4]);
    assert_scores("active-request", &json!({}), &some, &[1.0, 0.75, 0.0]);
    let options = json!({"idleThreshold": 1, "maxBusyScore": 0.5});
    assert_scores("active-request", &options, &in_flight(&[1, 2, 4]), &[1.0, 0.25, 0.0]);
}

#[test]
fn token_load_counts_what_is_in_flight_and_what_the_request_adds() {
    let some = with(&[(0.0, 0), (500.0, 600), (9_000.0, 0)], |candidate, (tokens, cached)| {
        candidate.load.prefill_tokens = tokens;
        candidate.demand.cached_tokens = cached;
    });
    let options = json!({"queueThresholdTokens": 4_000});
    assert_scores("token-load", &options, &some, &[0.75, 0.775, 0.0]);
}

#[test]
fn a_session_stays_where_it_went_until_that_endpoint_is_gone() {
    let scorer = scorer("session-affinity", &json!({}));
    let of = |session: &str| Request { session: Some(session.into()), ..request() };
    let some = in_flight(&[0, 0, 0]);
    assert_eq!(scores(&*scorer, &of("a"), &some), [0.0; 3]);
    scorer.dispatched(&of("a"), &some[1]);
    scorer.dispatched(&of("b"), &some[2]);
    assert_eq!(scores(&*scorer, &of("a"), &some), [0.0, 1.0, 0.0]);
    assert_eq!(scores(&*scorer, &request(), &some), [0.0; 3]);
    // Sent elsewhere once while its endpoint is there, it does not move.
    scorer.dispatched(&of("a"), &some[0]);
    assert_eq!(scores(&*scorer, &of("a"), &some), [0.0, 1.0, 0.0]);
    assert_eq!(scores(&*scorer, &of("a"), &some[..1]), [0.0]);
    scorer.dispatched(&of("a"), &some[0]);
    assert_eq!(scores(&*scorer, &of("a"), &some), [1.0, 0.0, 0.0]);
    assert_eq!(scores(&*scorer, &of("b"), &some), [0.0, 0.0, 1.0]);
}

#[test]
fn the_sessions_used_last_are_remembered() {
    let scorer = scorer("session-affinity", &json!({"maxSessions": 2}));
    let of = |session: &str| Request { session: Some(session.into()), ..request() };
    let some = in_flight(&[0, 0]);
    for session in ["a", "b", "a", "c"] {
        scorer.dispatched(&of(session), &some[1]);
    }
    let known = |session| scores(&*scorer, &of(session), &some)[1] > 0.0;
    assert_eq!(["a", "b", "c"].map(known), [true, false, true]);
}

#[test]
fn the_cost_of_dynamo_is_prefill_and_decode_work() {
    // Prefill 0 + 1,000, 600 + 200 and 0 + 1,000; decode 0, 3,000 + 800 and 2,000; each and the prompt.
    let some = with(&[(0.0, 0, 0, 0), (600.0, 3_000, 800, 800), (0.0, 2_000, 0, 0)], |c, of| {
        (c.load.prefill_tokens, c.load.decode_tokens, c.load.prefill_context_tokens) =
            (of.0, of.1, of.2);
        c.demand.cached_tokens = of.3;
    });
    // 2,000, 5,600 and 4,000; with a weight of 10, 11,000, 12,800 and 13,000.
    assert_scores("dynamo-cost", &json!({}), &some, &[1.0, 0.0, 1_600.0 / 3_600.0]);
    assert_scores("dynamo-cost", &json!({"overlapWeight": 10}), &some, &[1.0, 0.1, 0.0]);
}

#[test]
fn kv_tokens_that_streams_share_cost_once() {
    // The second one's streams hold 8,000 tokens if each is counted, and 1,600 together.
    let mut some = with(&[3_200, 8_000, 0], |c, tokens| c.load.decode_tokens = tokens);
    for candidate in &mut some {
        candidate.snapshot = Snapshot {
            kv_utilization: Some(0.1),
            kv_block_tokens: Some(16),
            kv_blocks: Some(1_000),
            ..Snapshot::default()
        };
    }
    some[0].snapshot.kv_utilization = None;
    assert_scores("dynamo-cost", &json!({}), &some, &[0.0, 0.5, 1.0]);
}

#[test]
fn smg_sends_a_known_prompt_to_its_holder_and_a_new_one_where_least_text_went() {
    let scorer = scorer("smg-cache-aware", &json!({}));
    let best = |candidates: &[Candidate]| {
        let scores = scores(&*scorer, &request(), candidates);
        let best = scores.iter().copied().fold(0.0, f32::max);
        scores.iter().position(|score| score.to_bits() == best.to_bits()).unwrap()
    };
    let holding = |blocks: &[u32]| with(blocks, |candidate, blocks| candidate.hit_blocks = blocks);
    assert_eq!(best(&holding(&[0, 4, 2])), 1);
    // 30 % is not more than the threshold: no text was sent to any, then some to the first and second.
    scorer.dispatched(&request(), &holding(&[0, 0, 0])[0]);
    scorer.dispatched(&request(), &holding(&[0, 9, 0])[1]);
    assert_eq!(best(&holding(&[3, 3, 0])), 2);
    let found = scores(&*scorer, &request(), &holding(&[0, 0, 0]));
    assert!((found[1] - 0.9).abs() < 1e-5 && found[0].abs() < 1e-5, "{found:?}");
}

#[test]
fn smg_goes_by_requests_where_both_thresholds_are_passed() {
    let scorer = scorer("smg-cache-aware", &json!({}));
    let loaded = |requests: [u32; 2]| {
        let mut some = in_flight(&requests);
        some[0].hit_blocks = 9;
        scores(&*scorer, &request(), &some)
    };
    assert_eq!(loaded([65, 0]), [0.0, 1.0]);
    assert_eq!(loaded([64, 0]), [0.9, 0.0], "not more than 64");
    assert_eq!(loaded([200, 134]), [0.9, 0.0], "not more than half as many again");
    assert_eq!(loaded([202, 134]), [0.0, 1.0]);
}

#[test]
fn latency_prefers_the_tightest_fit_or_the_most_headroom() {
    // Headrooms 200 and 20, 600 and 10, and a predicted miss; the scales are 200..600 and 10..20.
    let some = predicted(&[(800.0, 30.0), (400.0, 40.0), (1_200.0, 10.0)]);
    // 0.8 · 0 + 0.2 · 1 = 0.2, and 0.8 · 1 + 0.2 · 0 = 0.8.
    assert_scores("latency", &json!({}), &some, &[0.81, 0.20, 0.0]);
    let most = json!({"headroomSelectionStrategy": "most"});
    assert_scores("latency", &most, &some, &[0.21, 0.81, 0.0]);
    let ttft = json!({"ttftWeight": 1, "tpotWeight": 0});
    assert_scores("latency", &ttft, &some, &[1.0, 0.01, 0.0]);
}

#[test]
fn latency_weighs_only_what_differs() {
    let some = predicted(&[(800.0, 30.0), (800.0, 45.0)]);
    assert_scores("latency", &json!({}), &some, &[0.01, 1.0]);
    let same = predicted(&[(800.0, 30.0); 2]);
    assert_scores("latency", &json!({}), &same, &[0.51, 0.51]);
}

#[test]
fn where_all_miss_latency_takes_the_mildest_kind_and_the_smallest_miss() {
    let both = (3_000.0, 90.0);
    let some = predicted(&[both, (2_000.0, 30.0), (1_500.0, 30.0)]);
    assert_scores("latency", &json!({}), &some, &[0.0, 0.01, 1.0]);
    let some = predicted(&[both, (2_000.0, 30.0), (500.0, 60.0)]);
    assert_scores("latency", &json!({}), &some, &[0.0, 0.0, 0.51]);
    let mut some = predicted(&[both, (2_000.0, 30.0), (9_000.0, 60.0)]);
    some[2].load.decoding = 0;
    assert_scores("latency", &json!({}), &some, &[0.0, 0.0, 0.51]);
}

#[test]
fn an_objective_that_is_not_given_counts_as_zero() {
    let mut some = predicted(&[(800.0, 30.0), (400.0, 40.0)]);
    let free = Request { slo: Slo::default(), ..request() };
    let scorer = scorer("latency", &json!({"ttftWeight": 1, "tpotWeight": 0}));
    // All miss both: the least predicted latency has the smallest miss.
    let found = scores(&*scorer, &free, &some);
    assert!(found[1] > found[0], "{found:?}");
    some[0].load.decoding = 0;
    let found = scores(&*scorer, &free, &some);
    assert!(found[0] > found[1], "an idle one goes first: {found:?}");
}

#[test]
fn without_any_prediction_latency_weighs_cache_queue_and_prefix() {
    let some = with(&[(0.5, 0, 10), (0.1, 4, 0)], |candidate, (kv, waiting, blocks)| {
        candidate.snapshot.kv_utilization = Some(kv);
        candidate.snapshot.waiting = Some(waiting);
        candidate.hit_blocks = blocks;
    });
    assert_scores("latency", &json!({}), &some, &[0.83, 0.3]);
    let kv = json!({"compositeKVWeight": 0, "compositeQueueWeight": 0, "compositePrefixWeight": 0});
    assert_scores("latency", &kv, &some, &[0.5, 0.9]);
}

/// The first two hold 8 and 9 of 10 blocks; so many tokens are in flight.
fn sticky(tokens: [f32; 3]) -> Vec<Candidate> {
    with(&[(8, tokens[0]), (9, tokens[1]), (7, tokens[2])], |candidate, (blocks, tokens)| {
        candidate.hit_blocks = blocks;
        candidate.load.prefill_tokens = tokens;
    })
}

#[test]
fn affinity_sticks_until_the_wait_is_too_long() {
    let filter = filter("prefix-cache-affinity", &json!({"peakPrefillThroughput": 10_000}));
    let held = left(&*filter, sticky([500_000.0, 180_000.0, 0.0]), 1);
    assert_eq!(held, [0, 1], "18 s more are borne");
    assert_eq!(left(&*filter, sticky([500_000.0, 181_000.0, 0.0]), 1), [0, 1, 2]);
    assert_eq!(left(&*filter, sticky([500_000.0, 181_000.0, 1_000.0]), 1), [0, 1]);
}

#[test]
fn affinity_can_be_strict_endless_or_off() {
    let of = |options| left(&*filter("prefix-cache-affinity", &options), sticky([1e9; 3]), 1);
    assert_eq!(of(json!({"affinityThreshold": 0.85})), [1]);
    assert_eq!(of(json!({"affinityThreshold": 0.99})), [0, 1, 2]);
    assert_eq!(of(json!({"affinityThreshold": 0})), [0, 1, 2]);
    assert_eq!(of(json!({"explorationProbability": 1})), [0, 1, 2]);
    let endless = filter("prefix-cache-affinity", &json!({"maxTTFTPenaltyMs": 0}));
    assert_eq!(left(&*endless, sticky([1e9, 1e9, 0.0]), 1), [0, 1]);
}

#[test]
fn each_accelerator_class_may_have_its_own_peak() {
    let options = json!({
        "peakPrefillThroughput": 10_000,
        "peakPrefillThroughputByAccelerator": {"H100": 40_000, "A100-SXM-80 tp2": 20_000},
    });
    let filter = filter("prefix-cache-affinity", &options);
    let with_tokens = |tokens: f32, on_which: &str| {
        let mut some = on(&[on_which, "L40S"]);
        some[0].hit_blocks = 10;
        some[0].load.prefill_tokens = tokens;
        left(&*filter, some, 1).len()
    };
    for (accelerator, seconds_at) in
        [("H100-SXM", 40_000.0), ("A100-SXM-80 tp2", 20_000.0), ("A100-SXM-80", 10_000.0)]
    {
        assert_eq!(with_tokens(17.9 * seconds_at, accelerator), 1, "{accelerator}");
        assert_eq!(with_tokens(18.1 * seconds_at, accelerator), 2, "{accelerator}");
    }
}

#[test]
fn affinity_can_go_by_predicted_waits() {
    let options = json!({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": 5_000});
    let filter = filter("prefix-cache-affinity", &options);
    assert!(filter.wants_predictions());
    let with_ttft = |ttft: f32| {
        let mut some = predicted(&[(ttft, 1.0), (100.0, 1.0)]);
        some[0].hit_blocks = 10;
        some
    };
    assert_eq!(left(&*filter, with_ttft(5_100.0), 1), [0]);
    assert_eq!(left(&*filter, with_ttft(5_101.0), 1), [0, 1]);
    let mut unknown = with_ttft(100.0);
    unknown[0].prediction = None;
    assert_eq!(left(&*filter, unknown, 1), [0, 1], "one without a prediction waits for ever");
}

#[test]
fn the_tier_that_meets_its_objectives_is_kept_but_for_a_share() {
    let some = || {
        let mut some = predicted(&[(900.0, 40.0), (1_100.0, 40.0), (900.0, 60.0), (1.0, 1.0)]);
        some[3].prediction = None;
        some
    };
    let of = |options, random| left(&*filter("slo-headroom-tier", &options), some(), random);
    assert_eq!(of(json!({"epsilonExploreNeg": 0}), 0), [0]);
    assert_eq!(of(json!({"epsilonExploreNeg": 1}), u64::MAX), [1, 2, 3]);
    assert_eq!(of(json!({}), u64::MAX / 200), [1, 2, 3]);
    assert_eq!(of(json!({}), u64::MAX / 50), [0]);
    let nobody = in_flight(&[1, 2]);
    assert_eq!(left(&*filter("slo-headroom-tier", &json!({})), nobody, 0), [0, 1]);
}

/// How often each is picked of `scores`, in 10,000 draws.
fn shares(picker: &dyn Picker, scores: &[f32]) -> Vec<f32> {
    let mut picked = vec![0.0; scores.len()];
    let mut random = 1_u64;
    for _ in 0..10_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        picked[picker.pick(scores, random ^ (random >> 29)).unwrap()] += 1e-4;
    }
    picked
}

fn assert_shares(picker: &dyn Picker, scores: &[f32], expected: &[f32]) {
    let found = shares(picker, scores);
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{found:?}");
}

#[test]
fn pickers_draw_in_their_proportions() {
    let weighted = picker("weighted-random", &json!({}));
    assert_shares(&*weighted, &[0.5, 0.0, 0.25, 0.25], &[0.5, 0.0, 0.25, 0.25]);
    assert_shares(&*weighted, &[0.0, 0.0], &[0.5, 0.5]);
    // Of two of three: the best wins two of three pairs, the second one of them.
    let two = picker("power-of-two", &json!({}));
    assert_shares(&*two, &[0.1, 0.9, 0.5], &[0.0, 2.0 / 3.0, 1.0 / 3.0]);
    assert_shares(&*two, &[0.5, 0.5], &[0.5, 0.5]);
    // exp(0) : exp(-ln 4) = 4 : 1.
    let soft = picker("softmax", &json!({"temperature": 0.5}));
    assert_shares(&*soft, &[1.0, 1.0 - 0.5 * 4.0_f32.ln()], &[0.8, 0.2]);
    let hard = picker("softmax", &json!({}));
    assert_shares(&*hard, &[1.0, 0.999, 1.0], &[0.5, 0.0, 0.5]);
}

fn heuristic(filters: &[Plugin], scorers: &[&str]) -> Scheduler {
    let weighted = |name: &&str| WeightedPlugin {
        name: (*name).to_owned(),
        weight: 1.0,
        parameters: Value::Null,
    };
    let profile = ProfileOptions {
        filters: filters.to_vec(),
        scorers: scorers.iter().map(weighted).collect(),
        ..ProfileOptions::default()
    };
    Scheduler::new(Options { policy: Policy::Heuristic, profile, ..Options::default() }).unwrap()
}

#[test]
fn predictions_are_made_where_a_plugin_looks_at_them() {
    assert!(!heuristic(&[], &["queue"]).wants_predictions());
    assert!(heuristic(&[], &["latency"]).wants_predictions());
    assert!(heuristic(&[Plugin::named("slo-headroom-tier")], &["queue"]).wants_predictions());
    assert!(!heuristic(&[Plugin::named("prefix-cache-affinity")], &["queue"]).wants_predictions());
}

#[test]
fn what_goes_by_our_own_counts_needs_no_page() {
    let decide = |scorer: &str| {
        let mut some = in_flight(&[3, 1, 2]);
        heuristic(&[], &[scorer]).decide(&request(), &mut some, false, 5).unwrap()
    };
    let own = decide("active-request");
    assert_eq!((own.rung, own.chosen), (Rung::Heuristic, 1));
    assert_eq!(decide("queue").rung, Rung::LeastRequests);
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |kind: Result<(), String>, word: &str| {
        let error = kind.unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    let of_scorer = |name: &str, options: Value| {
        let kind = SCORERS.iter().find(|kind| kind.name == name).unwrap();
        (kind.build)(&options).map(drop).map_err(|error| error.to_string())
    };
    let of_filter = |options: Value| {
        let kind = FILTERS.iter().find(|kind| kind.name == "prefix-cache-affinity").unwrap();
        (kind.build)(&options).map(drop).map_err(|error| error.to_string())
    };
    refused(of_scorer("active-request", json!({"maxBusyScore": 1.5})), "within 0 and 1");
    refused(of_scorer("token-load", json!({"queueThresholdTokens": 0})), "token-load");
    refused(of_scorer("dynamo-cost", json!({"overlapWeight": -1})), "at least 0");
    refused(of_scorer("latency", json!({"headroomSelectionStrategy": "best"})), "best");
    refused(of_filter(json!({"affinityThreshold": 1.1})), "at most 1");
    refused(of_filter(json!({"peakPrefillThroughput": 0})), "above 0");
    refused(of_filter(json!({"peakPrefillThroughputByAccelerator": {"L4": -1}})), "`L4`");
    refused(of_filter(json!({"ttftSource": ""})), "prefillThroughput");
}
