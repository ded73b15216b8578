//! The chance that a decision tells for itself is that with which it is made.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Demand, Load, Pool, Snapshot};
use schedule::{Candidate, Options, PICKERS, Policy, Scheduler};
use serde_json::json;
use types::{Endpoint, EndpointId, Request, Slo};

const DRAWS: u64 = 40_000;

/// Random numbers that differ in all bits: the finaliser of splitmix64.
fn random(at: u64) -> u64 {
    let mut z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn pickers_pick_as_often_as_they_say() {
    let scores = [0.5, 2.0, 0.0, 2.0, 1.0, 0.5];
    for kind in PICKERS {
        let tempered = (kind.build)(&json!({ "temperature": 0.7 }));
        for picker in [(kind.build)(&json!({})), tempered].into_iter().flatten() {
            let mut picked = [0_u32; 6];
            for at in 0..DRAWS {
                picked[picker.pick(&scores, random(at)).unwrap()] += 1;
            }
            for (at, times) in picked.into_iter().enumerate() {
                let told = f64::from(picker.propensity(&scores, at).unwrap());
                let seen = f64::from(times) / DRAWS as f64;
                assert!((told - seen).abs() < 0.01, "{} {at}: {told} {seen}", kind.name);
            }
        }
    }
}

fn candidates(in_flight: &[u32]) -> Vec<Candidate> {
    let endpoint = |at: usize| Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [].into(),
    };
    let pool = Pool::new((0..in_flight.len()).map(endpoint));
    let known = pool.endpoints();
    let candidate = |(endpoint, decoding): (&Arc<_>, &u32)| Candidate {
        endpoint: Arc::clone(endpoint),
        snapshot: Snapshot::default(),
        snapshot_age_ms: Some(10.0),
        load: Load { decoding: *decoding, ..Load::default() },
        demand: Demand::default(),
        hit_blocks: 0,
        prediction: None,
    };
    known.iter().zip(in_flight).map(candidate).collect()
}

#[test]
fn decisions_are_made_as_often_as_they_say() {
    let request = Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 1_024,
        prompt_tokens: None,
        max_tokens: None,
        blocks: [].into(),
        slo: Slo::default(),
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: false,
    };
    let candidates = candidates(&[3, 1, 7, 1, 1]);
    for (policy, failing) in [
        (Policy::Random, false),
        (Policy::LeastRequests, false),
        (Policy::Heuristic, false),
        (Policy::Learned, true),
    ] {
        let scheduler = Scheduler::new(Options { policy, ..Options::default() }).unwrap();
        let mut decided = [(0_u32, 0.0); 5];
        for at in 0..DRAWS {
            let mut left = candidates.clone();
            let found = scheduler.decide(&request, &mut left, failing, random(at)).unwrap();
            let (times, told) = &mut decided[found.chosen];
            *times += 1;
            *told = found.propensity.unwrap();
        }
        for (times, told) in decided {
            let seen = f64::from(times) / DRAWS as f64;
            assert!((f64::from(told) - seen).abs() < 0.01, "{policy:?}: {told} {seen}");
        }
    }
}
