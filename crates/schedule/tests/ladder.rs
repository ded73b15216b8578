//! Which rung decides, and what the learned pick prefers.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Budgets, Demand, Load, Pool, Snapshot};
use predict::{Prediction, Quantiles, Source, Trust};
use schedule::{Candidate, MissOptions, Options, Policy, Rule, Rung, Scheduler, Width, costs};
use types::{Endpoint, EndpointId, Millis, Request, Slo};

fn slo() -> Slo {
    Slo { ttft: Millis::new(1_000.0), itl: Millis::new(50.0) }
}

fn request(slo: Slo) -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 1_024,
        prompt_tokens: None,
        max_tokens: None,
        blocks: [1, 2, 3, 4].into(),
        slo,
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: true,
    }
}

/// Candidates that are predicted to take these TTFT and ITL.
fn candidates(predicted: &[(f32, f32)]) -> Vec<Candidate> {
    let endpoint = |at: usize| Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [].into(),
    };
    let pool = Pool::new((0..predicted.len()).map(endpoint));
    let known = pool.endpoints();
    let candidate = |(at, (ttft_ms, itl_ms)): (usize, &(f32, f32))| Candidate {
        endpoint: Arc::clone(&known[at]),
        snapshot: Snapshot::default(),
        snapshot_age_ms: Some(20.0),
        load: Load::default(),
        demand: Demand { prompt_tokens: 256, output_tokens: 100.0, ..Demand::default() },
        hit_blocks: 0,
        prediction: Some(Prediction {
            ttft: Quantiles([*ttft_ms; 4]),
            itl: Quantiles([*itl_ms; 4]),
            itl_without_ms: itl_ms - 1.0,
            itl_growth_ms: 1.0,
            prefill_ms: 200.0,
            labels: 100,
            ..Prediction::default()
        }),
    };
    predicted.iter().enumerate().map(candidate).collect()
}

fn decide(policy: Policy, mut candidates: Vec<Candidate>) -> schedule::Decision {
    let scheduler = Scheduler::new(Options { policy, ..Options::default() }).unwrap();
    scheduler.decide(&request(slo()), &mut candidates, false, 7).unwrap()
}

#[test]
fn the_learned_rung_takes_the_endpoint_that_keeps_the_objective() {
    let decision = decide(Policy::Learned, candidates(&[(2_000.0, 20.0), (300.0, 20.0)]));
    assert_eq!((decision.rung, decision.chosen), (Rung::Learned, 1));
    let explanation = decision.explanation.unwrap();
    assert_eq!(explanation.best[0].endpoint, "default/e1");
    assert!(explanation.best[1].cost.unwrap().own > 0.9);
}

#[test]
fn one_candidate_without_prediction_makes_the_heuristics_decide_and_says_so() {
    let mut some = candidates(&[(300.0, 20.0), (300.0, 20.0)]);
    some[1].prediction = None;
    some[1].snapshot.waiting = Some(0);
    some[0].snapshot.waiting = Some(9);
    let decision = decide(Policy::Learned, some);
    assert_eq!((decision.rung, decision.chosen), (Rung::Heuristic, 1));
    assert!(decision.fell.unwrap().contains("labels"));
}

#[test]
fn an_endpoint_known_by_its_prior_is_chosen_by_the_same_rule_and_marked() {
    let with_prior = |at: usize| {
        let mut some = candidates(&[(2_000.0, 20.0), (300.0, 20.0)]);
        some[at].prediction.as_mut().unwrap().source = Source::Prior;
        some
    };
    assert_eq!(decide(Policy::Learned, with_prior(0)).rung, Rung::Learned, "another was chosen");
    let some = with_prior(1);
    let decision = decide(Policy::Learned, some);
    assert_eq!((decision.rung.as_str(), decision.chosen), ("prior", 1));
    assert!(decision.fell.unwrap().contains("prior"));
    let explanation = decision.explanation.unwrap();
    assert!(explanation.best[1].cost.unwrap().own > 0.9);
}

#[test]
fn without_fresh_metrics_the_fewest_in_flight_decide() {
    let mut some = candidates(&[(1.0, 1.0); 3]);
    for (candidate, decoding) in some.iter_mut().zip([3, 1, 2]) {
        candidate.prediction = None;
        candidate.snapshot_age_ms = Some(1e5);
        candidate.load.decoding = decoding;
    }
    let decision = decide(Policy::Learned, some);
    assert_eq!((decision.rung, decision.chosen), (Rung::LeastRequests, 1));
}

#[test]
fn where_every_endpoint_fails_chance_decides() {
    let scheduler = Scheduler::new(Options::default()).unwrap();
    let mut some = candidates(&[(1.0, 1.0); 3]);
    let decision = scheduler.decide(&request(slo()), &mut some, true, 8).unwrap();
    assert_eq!((decision.rung, decision.chosen), (Rung::Random, 2));
}

#[test]
fn nothing_left_is_no_decision() {
    let scheduler = Scheduler::new(Options::default()).unwrap();
    assert!(scheduler.decide(&request(slo()), &mut Vec::new(), false, 0).is_none());
}

#[test]
fn round_robin_takes_turns() {
    let scheduler =
        Scheduler::new(Options { policy: Policy::RoundRobin, ..Options::default() }).unwrap();
    let turns: Vec<_> = (0..4)
        .map(|_| {
            let mut some = candidates(&[(1.0, 1.0); 3]);
            scheduler.decide(&request(slo()), &mut some, false, 5).unwrap().chosen
        })
        .collect();
    assert_eq!(turns, [0, 1, 2, 0]);
}

/// A stream with this much of its budget spent, halfway through 100 tokens at 50 ms.
fn stream_at(spent_ms: f32) -> Load {
    let mut budgets = Budgets::default();
    let demand = Demand { slo: slo(), ..Demand::default() };
    budgets.add(&demand, spent_ms, 50.0, 50.0);
    Load { decoding: 1, budgets, ..Load::default() }
}

#[test]
fn a_stream_at_its_limit_is_harmed_and_one_with_time_saved_is_not() {
    let mut some = candidates(&[(300.0, 20.0), (300.0, 20.0)]);
    some[0].load = stream_at(4_000.0);
    some[1].load = stream_at(500.0);
    let mut found = Vec::new();
    assert!(costs(&MissOptions::default(), slo(), &some, &mut found));
    assert!(found[0].harm > 20.0 * found[1].harm.max(1e-6), "{found:?}");
    assert!(found[0].total > found[1].total);
}

#[test]
fn a_stream_that_is_lost_already_cannot_be_harmed() {
    let mut some = candidates(&[(300.0, 20.0)]);
    some[0].load = stream_at(60_000.0);
    let mut found = Vec::new();
    costs(&MissOptions::default(), slo(), &some, &mut found);
    assert!(found[0].harm < 1e-3, "{found:?}");
}

#[test]
fn without_an_objective_the_least_completion_time_with_the_delay_of_others_wins() {
    let mut some = candidates(&[(300.0, 20.0), (320.0, 20.0)]);
    some[0].load = Load { decoding: 8, remaining_tokens: 800.0, ..Load::default() };
    let mut found = Vec::new();
    costs(&MissOptions::default(), Slo::default(), &some, &mut found);
    assert!(found[1].total < found[0].total, "{found:?}");
}

#[test]
fn a_request_that_is_late_anyway_does_not_wait_for_ever() {
    let some = candidates(&[(3_000.0, 20.0), (300_000.0, 20.0)]);
    let mut found = Vec::new();
    costs(&MissOptions::default(), slo(), &some, &mut found);
    assert!(found[1].total > found[0].total + 1.0, "{found:?}");
}

#[test]
fn a_misspelt_plugin_is_named_with_those_there_are() {
    let mut options = Options::default();
    options.profile.scorers[0].name = "quue".to_owned();
    let error = Scheduler::new(options).unwrap_err().to_string();
    assert!(error.contains("`quue`") && error.contains("queue"), "{error}");
}

#[test]
fn predictions_that_have_been_far_off_do_not_decide_and_say_so() {
    let with = |trust: Trust| {
        let mut some = candidates(&[(100.0, 10.0), (900.0, 30.0)]);
        some[1].prediction.as_mut().unwrap().trust = trust;
        decide(Policy::Learned, some)
    };
    let off = with(Trust { calibrated: false, ..Trust::default() });
    assert_eq!(off.rung, Rung::Heuristic);
    assert_eq!(off.fell, Some("predictions have been far off lately"));
    let new_load = Trust { in_range: false, ..Trust::default() };
    assert_eq!(with(new_load).rung, Rung::Learned, "fresh metrics vouch for a new load");
    assert_eq!(with(Trust { fresh: false, ..new_load }).rung, Rung::Heuristic);
}

#[test]
fn a_warm_prefix_is_not_computed_again_elsewhere_for_a_little_time() {
    let mut some = candidates(&[(300.0, 20.0), (250.0, 20.0)]);
    for candidate in &mut some {
        candidate.demand.prompt_tokens = 8_000;
        candidate.prediction.as_mut().unwrap().prefill_ms = 240.0;
    }
    some[0].demand.cached_tokens = 7_000;
    some[0].prediction.as_mut().unwrap().prefill_ms = 30.0;
    let mut found = Vec::new();
    costs(&MissOptions::default(), slo(), &some, &mut found);
    assert!(found[0].total < found[1].total, "{found:?}");
    let blind = MissOptions { recompute: 0.0, ..MissOptions::default() };
    costs(&blind, slo(), &some, &mut found);
    assert!(found[1].total < found[0].total, "{found:?}");
}

#[test]
fn misses_weigh_by_class() {
    let mut some = candidates(&[(900.0, 20.0)]);
    let mut found = Vec::new();
    costs(&MissOptions::default(), slo(), &some, &mut found);
    let light = found[0].own;
    some[0].demand.weight = 3.0;
    costs(&MissOptions::default(), slo(), &some, &mut found);
    assert!((found[0].own - 3.0 * light).abs() < 1e-6);
}

#[test]
fn each_rule_minimises_what_it_is_named_after() {
    // Soonest first token; soonest end; most slack; least slack that is left.
    let some = || candidates(&[(100.0, 49.0), (700.0, 10.0), (500.0, 25.0), (990.0, 30.0)]);
    for (rule, best) in
        [(Rule::LeastTtft, 0), (Rule::LeastCompletion, 1), (Rule::MostSlack, 2), (Rule::BestFit, 3)]
    {
        let mut found = Vec::new();
        costs(&MissOptions { rule, ..MissOptions::default() }, slo(), &some(), &mut found);
        let least = (0..4).min_by(|a, b| found[*a].total.total_cmp(&found[*b].total));
        assert_eq!(least, Some(best), "{rule:?} {found:?}");
    }
}

#[test]
fn a_number_out_of_range_is_named() {
    for (learned, words) in [
        (MissOptions { width: Width::Fixed(0.0), ..MissOptions::default() }, "learned.width"),
        (MissOptions { explore: 1.5, ..MissOptions::default() }, "learned.explore"),
        (MissOptions { harm: f32::NAN, ..MissOptions::default() }, "learned.harm"),
    ] {
        let error = Scheduler::new(Options { learned, ..Options::default() }).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn exploring_stays_near_the_best_and_tells_its_chance() {
    let explore = MissOptions { explore: 0.5, ..MissOptions::default() };
    let options = Options { learned: explore, ..Options::default() };
    let scheduler = Scheduler::new(options).unwrap();
    let mut seen = [0_u32; 3];
    for at in 0..2_000_u64 {
        let mut some = candidates(&[(100.0, 10.0), (110.0, 10.0), (5_000.0, 90.0)]);
        let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let decision = scheduler.decide(&request(slo()), &mut some, false, random).unwrap();
        seen[decision.chosen] += 1;
        let expected = [0.75, 0.25, 0.0][decision.chosen];
        assert!((decision.propensity.unwrap() - expected).abs() < 1e-6, "{decision:?}");
    }
    assert_eq!(seen[2], 0);
    assert!((f64::from(seen[1]) / 2_000.0 - 0.25).abs() < 0.04, "{seen:?}");
}
