//! Every decided request reaches the recorder once it has ended, however it ended.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Pool, Snapshot};
use parking_lot::Mutex;
use predict::Source;
use router::{
    Considered, End, MOST_CANDIDATES, MOST_STEPS, Options, Recorded, Recorder, Router, Usage,
};
use schedule::Policy;
use types::{Endpoint, EndpointId, Request, Slo, Time};

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn endpoint(name: &str, port: u16) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", name),
        address: format!("10.0.0.1:{port}").parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), name.to_uppercase())].into(),
    }
}

fn recorded(endpoints: usize) -> (Router, Arc<Kept>) {
    let all = [endpoint("h100", 1), endpoint("a100", 2)];
    let pool = Arc::new(Pool::new(all.into_iter().take(endpoints)));
    let router = Router::new(Options::default(), pool).unwrap();
    let kept = Arc::new(Kept::default());
    router.record_to(Arc::clone(&kept) as Arc<dyn Recorder>);
    (router, kept)
}

/// Keeps what decisions chose from as well.
#[derive(Debug, Default)]
struct All(Kept);

impl Recorder for All {
    fn record(&self, row: &Recorded) {
        self.0.record(row);
    }

    fn wants_candidates(&self) -> bool {
        true
    }
}

/// What the decisions of a policy over `endpoints` endpoints chose from, of `requests` requests.
fn considered(policy: Policy, endpoints: u16, requests: u64) -> Vec<(u32, Arc<Considered>)> {
    let all = (1..=endpoints).map(|port| endpoint(&format!("e{port}"), port));
    let mut options = Options::default();
    options.schedule.policy = policy;
    let router = Router::new(options, Arc::new(Pool::new(all))).unwrap();
    let kept = Arc::new(All::default());
    router.record_to(Arc::clone(&kept) as Arc<dyn Recorder>);
    for i in 0..requests {
        stream(&router, 1_000 * i, 10, 0);
    }
    let rows = kept.0.0.lock();
    rows.iter().map(|row| (row.slot, Arc::clone(row.considered.as_ref().unwrap()))).collect()
}

#[test]
fn what_a_decision_chose_from_is_kept_only_where_it_is_asked_for() {
    let (router, kept) = recorded(2);
    stream(&router, 1_000, 10, 0);
    assert!(kept.0.lock()[0].considered.is_none());
    let decided = considered(Policy::Random, 2, 200);
    let first_in = decided.iter().filter(|(slot, _)| *slot == 0).count();
    assert!((60..140).contains(&first_in), "{first_in}");
    for (slot, considered) in &decided {
        assert_eq!((considered.of, considered.candidates.len()), (2, 2));
        assert_eq!(considered.candidates[considered.chosen as usize].slot, *slot);
        assert_eq!(considered.propensity, Some(0.5));
    }
    // A policy that predicts nothing itself leaves predictions for one that goes by them.
    let (_, last) = &decided[199];
    for candidate in &last.candidates {
        let prediction = candidate.prediction.unwrap();
        assert_eq!(prediction.source, Source::Learned);
        assert!((prediction.ttft.p50() - 50.0).abs() < 10.0, "{prediction:?}");
    }
}

#[test]
fn a_policy_without_chance_says_so_and_one_among_equals_shares() {
    let round = considered(Policy::RoundRobin, 4, 3);
    assert!(round.iter().all(|(_, considered)| considered.propensity == Some(1.0)));
    let least = considered(Policy::LeastRequests, 4, 3);
    assert!(least.iter().all(|(_, considered)| considered.propensity == Some(0.25)));
}

#[test]
fn of_many_candidates_an_even_sample_is_kept_and_the_chosen_one_always() {
    let decided = considered(Policy::Random, 200, 300);
    let mut kept = [0; 200];
    for (slot, considered) in &decided {
        assert_eq!((considered.of, considered.candidates.len()), (200, MOST_CANDIDATES));
        assert_eq!(considered.candidates[considered.chosen as usize].slot, *slot);
        for candidate in &considered.candidates {
            kept[candidate.slot as usize] += 1;
        }
    }
    // 96 in the mean.
    assert!(kept.iter().all(|times| (55..140).contains(times)), "{kept:?}");
}

fn request() -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 2_000,
        prompt_tokens: Some(500),
        max_tokens: None,
        blocks: Vec::new().into(),
        slo: Slo::default(),
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: false,
    }
}

#[test]
fn a_whole_answer_is_recorded_with_both_latencies_and_when_they_were_known() {
    let (router, kept) = recorded(1);
    let mut flight = router.route(&request(), at(1_000), &[]).unwrap().flight;
    flight.tokens(1, at(1_200));
    assert!(kept.0.lock().is_empty());
    flight.tokens(5, at(1_300));
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 11, cached_tokens: None });
    flight.finish(End::Complete, at(1_350));
    let rows = kept.0.lock();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.end, row.output_tokens, row.decided_at), ("complete", 11, at(1_000)));
    assert_eq!((row.endpoint.as_str(), row.class.accelerator.as_str()), ("default/h100", "H100"));
    let (ttft, itl) = (row.ttft.unwrap(), row.itl.unwrap());
    assert!((ttft.ms - 200.0).abs() < 1e-3 && ttft.at == at(1_200));
    assert!((itl.ms - 10.0).abs() < 1e-3 && itl.at == at(1_350));
    assert!((row.row.get(features::Column::Prompt) - 500.0).abs() < f32::EPSILON);
}

#[test]
fn a_request_that_came_to_nothing_is_recorded_by_how_it_ended() {
    let (router, kept) = recorded(1);
    router.route(&request(), at(0), &[]).unwrap().flight.finish(End::Rejected, at(5));
    drop(router.route(&request(), at(10), &[]).unwrap());
    let mut flight = router.route(&request(), at(20), &[]).unwrap().flight;
    flight.tokens(1, at(25));
    flight.finish(End::ClientGone, at(30));
    let rows = kept.0.lock();
    let ends: Vec<_> = rows.iter().map(|row| (row.end, row.ttft.is_some())).collect();
    assert_eq!(ends, [("rejected", false), ("cancelled", false), ("client-gone", true)]);
}

#[test]
fn the_endpoint_that_really_served_is_recorded() {
    let (router, kept) = recorded(2);
    let mut routed = router.route(&request(), at(0), &[]).unwrap();
    let other = usize::from(routed.endpoint.slot == 0);
    let other = Arc::clone(&router.pool().endpoints()[other]);
    routed.flight.served_by(&other.address.clone(), at(1));
    routed.flight.tokens(1, at(50));
    routed.flight.finish(End::Complete, at(60));
    let rows = kept.0.lock();
    assert_eq!((&rows[0].endpoint, rows[0].slot), (&other.endpoint.id, other.slot));
    assert_eq!(rows[0].class.accelerator, other.accelerator);
}

/// Ends at `start + 50 + 10 · (tokens − 1)` ms, or `stall_ms` later for a stall after the fifth token.
fn stream(router: &Router, start: u64, tokens: u64, stall_ms: u64) {
    let mut flight = router.route(&request(), at(start), &[]).unwrap().flight;
    for i in 0..tokens {
        let late = if i > 5 { stall_ms } else { 0 };
        flight.tokens(1, at(start + 50 + 10 * i + late));
    }
    let tokens = tokens as u32;
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: tokens, cached_tokens: None });
    flight.finish(End::Complete, at(start + 50 + 10 * u64::from(tokens) + stall_ms));
}

/// The time of the whole is `ms`, and nothing of it is seen before.
fn whole(router: &Router, start: u64, ms: u64) {
    let asked = Request { stream: false, ..request() };
    let mut flight = router.route(&asked, at(start), &[]).unwrap().flight;
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 41, cached_tokens: None });
    flight.finish(End::Complete, at(start + ms));
}

fn preempted(router: &Router, preemptions: u32) {
    let preemptions = Some(preemptions);
    router.pool().endpoints()[0].publish(Snapshot { preemptions, ..Snapshot::default() });
}

#[test]
fn a_long_stream_is_recorded_with_its_means_so_far() {
    let (router, kept) = recorded(1);
    stream(&router, 1_000, 200, 0);
    stream(&router, 9_000, 60, 0);
    let rows = kept.0.lock();
    let so_far: Vec<_> = rows[0].itl_so_far.iter().map(|known| (known.ms, known.at)).collect();
    assert_eq!(so_far, [(10.0, at(1_050 + 800)), (10.0, at(1_050 + 1_600))]);
    assert!(rows[1].itl_so_far.is_empty());
}

#[test]
fn a_stream_is_recorded_with_the_steps_that_it_showed_thinned_out_where_it_is_long() {
    let (router, kept) = recorded(1);
    stream(&router, 1_000, 60, 0);
    stream(&router, 9_000, 900, 0);
    let rows = kept.0.lock();
    // Twelve steps make a sample.
    assert_eq!(rows[0].steps.len(), 4, "{:?}", rows[0].steps);
    assert!(rows[0].steps.iter().all(|(_, step)| (step.step_ms - 10.0).abs() < 0.1));
    let long = &rows[1].steps;
    assert!((9..=MOST_STEPS).contains(&long.len()), "{}", long.len());
    assert!(long.is_sorted_by_key(|(at, _)| *at));
    assert!(long[long.len() - 1].0 > at(9_000 + 6_000), "the newest are among them");
}

#[test]
fn means_so_far_count_tokens_where_a_piece_holds_several() {
    let (router, kept) = recorded(1);
    for start in [1_000, 50_000] {
        let mut flight = router.route(&request(), at(start), &[]).unwrap().flight;
        for i in 0..100 {
            flight.tokens(1, at(start + 50 + 40 * i));
        }
        flight.usage(Usage { prompt_tokens: 500, completion_tokens: 400, cached_tokens: None });
        flight.finish(End::Complete, at(start + 5_000));
    }
    let rows = kept.0.lock();
    assert!((rows[1].itl_so_far[0].ms - 10.0).abs() < 0.1, "{:?}", rows[1].itl_so_far);
}

#[test]
fn a_whole_answer_without_a_stream_is_recorded_by_its_time() {
    let (router, kept) = recorded(1);
    whole(&router, 1_000, 700);
    let rows = kept.0.lock();
    let e2e = rows[0].e2e.unwrap();
    assert!((e2e.ms - 700.0).abs() < 1e-3 && e2e.at == at(1_700));
    assert_eq!((rows[0].ttft, rows[0].itl, rows[0].output_tokens), (None, None, 41));
}

#[test]
fn the_first_answers_of_a_new_endpoint_teach_nothing_if_they_are_far_too_slow() {
    let (router, kept) = recorded(1);
    for i in 0..60 {
        stream(&router, 1_000 * i, 10, 0);
    }
    let known = |router: &Router| router.errors()[0].clone();
    let before = known(&router);
    // The same class under another address: its slot is new.
    let moved = Endpoint { address: "10.0.0.9:1".parse().unwrap(), ..endpoint("h100", 1) };
    router.replace_endpoints([moved]);
    let mut slow = router.route(&request(), at(100_000), &[]).unwrap().flight;
    slow.tokens(1, at(103_000));
    slow.tokens(9, at(103_090));
    slow.finish(End::Complete, at(103_090));
    whole(&router, 110_000, 40_000);
    assert_eq!(known(&router).ttft.labels, before.ttft.labels);
    for i in 0..2 {
        stream(&router, 200_000 + 1_000 * i, 10, 0);
    }
    let mut late = router.route(&request(), at(210_000), &[]).unwrap().flight;
    late.tokens(1, at(213_000));
    late.finish(End::Complete, at(213_000));
    assert_eq!(known(&router).ttft.labels, before.ttft.labels + 3);
    let rows = kept.0.lock();
    let ends: Vec<_> = rows[60..].iter().map(|row| row.end).collect();
    assert_eq!(ends, ["warm-up", "warm-up", "complete", "complete", "complete"]);
    assert!(rows[..60].iter().all(|row| row.end == "complete"));
}

#[test]
fn a_stream_that_stalled_while_its_endpoint_preempted_teaches_no_gap() {
    let (router, kept) = recorded(1);
    preempted(&router, 0);
    for i in 0..60 {
        stream(&router, 1_000 * i, 10, 0);
    }
    let labels = |router: &Router| {
        let of = &router.errors()[0];
        (of.ttft.labels, of.itl.labels)
    };
    let before = labels(&router);
    // Preempting others does not spoil a stream that went on, nor does a stall without preemptions.
    let mut steady = router.route(&request(), at(100_000), &[]).unwrap().flight;
    for i in 0..10 {
        steady.tokens(1, at(100_050 + 10 * i));
        preempted(&router, 3);
    }
    steady.finish(End::Complete, at(100_200));
    stream(&router, 110_000, 10, 900);
    let mut stalled = router.route(&request(), at(120_000), &[]).unwrap().flight;
    for i in 0..10 {
        stalled.tokens(1, at(120_050 + 10 * i + if i > 5 { 900 } else { 0 }));
        if i == 5 {
            preempted(&router, 4);
        }
    }
    stalled.finish(End::Complete, at(122_000));
    // An engine that starts anew counts from zero: nothing was preempted.
    let mut restarted = router.route(&request(), at(130_000), &[]).unwrap().flight;
    restarted.tokens(1, at(130_050));
    preempted(&router, 0);
    restarted.tokens(5, at(130_100));
    restarted.finish(End::Complete, at(130_100));
    let rows = kept.0.lock();
    let ends: Vec<_> = rows[60..].iter().map(|row| row.end).collect();
    assert_eq!(ends, ["complete", "complete", "preempted", "complete"]);
    assert_eq!(labels(&router), (before.0 + 4, before.1 + 3));
}
