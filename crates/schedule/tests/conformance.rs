//! What every registered plugin must do. A new one is covered the moment it is registered.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Demand, Load, Pool, Snapshot};
use proptest::prelude::*;
use schedule::{Candidate, FILTERS, PICKERS, SCORERS};
use serde_json::json;
use types::{Endpoint, EndpointId, Request, Slo};

fn request(blocks: usize) -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 1_024,
        prompt_tokens: None,
        max_tokens: None,
        blocks: vec![1; blocks].into(),
        slo: Slo::default(),
        scope: None,
        subset: None,
        explain: false,
    }
}

/// Candidates that differ in what scorers may look at.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let state = (
        prop::option::of(0.0_f32..=1.0),
        prop::option::of(0_u32..10_000),
        0_u32..4,
        0_u32..100,
        prop::sample::select(vec!["prefill", "decode", "both"]),
    );
    prop::collection::vec(state, 0..16).prop_map(|states| {
        let endpoint = |(at, role): (usize, &str)| Endpoint {
            id: EndpointId::new("default", &format!("e{at}")),
            address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
            labels: [("llm-d.ai/role".to_owned(), role.to_owned())].into(),
        };
        let pool = Pool::new(states.iter().map(|s| s.4).enumerate().map(endpoint));
        let known = pool.endpoints();
        let each = known.iter().zip(states).map(|(endpoint, (kv, waiting, hits, decoding, _))| {
            Candidate {
                endpoint: Arc::clone(endpoint),
                snapshot: Snapshot { kv_utilization: kv, waiting, ..Snapshot::default() },
                snapshot_age_ms: Some(10.0),
                load: Load { decoding, ..Load::default() },
                demand: Demand::default(),
                hit_blocks: hits,
                prediction: None,
            }
        });
        each.collect()
    })
}

proptest! {
    #[test]
    fn scores_stay_in_range_and_ignore_order(candidates in candidates()) {
        let request = request(4);
        let mut reversed = candidates.clone();
        reversed.reverse();
        for kind in SCORERS {
            let scorer = (kind.build)(&json!({})).unwrap();
            let mut forward = vec![f32::NAN; candidates.len()];
            scorer.score(&request, &candidates, &mut forward);
            prop_assert!(forward.iter().all(|s| (0.0..=1.0).contains(s)), "{}", kind.name);

            let mut backward = vec![f32::NAN; candidates.len()];
            scorer.score(&request, &reversed, &mut backward);
            if kind.name == "no-hit-lru" {
                // Endpoints never used are equals, and equals keep the order they come in.
                forward.sort_by(f32::total_cmp);
                backward.sort_by(f32::total_cmp);
            } else {
                backward.reverse();
            }
            prop_assert_eq!(&forward, &backward, "{}", kind.name);
        }
    }

    #[test]
    fn a_filter_decides_each_candidate_alone(candidates in candidates()) {
        let request = request(1);
        for kind in FILTERS {
            let filter = (kind.build)(&json!({})).unwrap();
            for candidate in &candidates {
                let first = filter.keeps(&request, candidate);
                prop_assert_eq!(first, filter.keeps(&request, candidate), "{}", kind.name);
            }
        }
    }

    #[test]
    fn a_picker_picks_a_candidate_and_the_same_one_again(
        scores in prop::collection::vec(0.0_f32..=10.0, 0..16),
        random in any::<u64>(),
    ) {
        for kind in PICKERS {
            let picker = (kind.build)(&json!({})).unwrap();
            let picked = picker.pick(&scores, random);
            prop_assert_eq!(picked.is_none(), scores.is_empty(), "{}", kind.name);
            prop_assert!(picked.is_none_or(|at| at < scores.len()), "{}", kind.name);
            prop_assert_eq!(picked, picker.pick(&scores, random), "{}", kind.name);
        }
    }
}

#[test]
fn every_file_is_registered() {
    let files = |folder: &str| {
        let path = format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(path).unwrap().count() - 1
    };
    assert_eq!(files("scorers"), SCORERS.len());
    assert_eq!(files("filters"), FILTERS.len());
    assert_eq!(files("pickers"), PICKERS.len());
}

#[test]
fn unknown_options_are_refused() {
    let wrong = json!({ "no-such-key": 1 });
    for kind in SCORERS {
        assert!((kind.build)(&wrong).is_err(), "{}", kind.name);
    }
    for kind in FILTERS {
        assert!((kind.build)(&wrong).is_err(), "{}", kind.name);
    }
    for kind in PICKERS {
        assert!((kind.build)(&wrong).is_err(), "{}", kind.name);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = SCORERS.iter().map(|kind| kind.name).collect();
    names.extend(FILTERS.iter().map(|kind| kind.name));
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
