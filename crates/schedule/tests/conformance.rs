//! What every registered plugin must do. A new one is covered the moment it is registered.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::{Demand, Load, Pool, Snapshot};
use predict::{Prediction, Quantiles};
use proptest::prelude::*;
use schedule::{Candidate, FILTERS, PICKERS, SCORERS};
use serde_json::json;
use types::{Endpoint, EndpointId, Millis, Request, Slo};

fn request(blocks: usize) -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 1_024,
        prompt_tokens: None,
        max_tokens: None,
        blocks: vec![1; blocks].into(),
        slo: Slo { ttft: Millis::new(500.0), itl: Millis::new(50.0) },
        scope: None,
        subset: None,
        session: Some("s".into()),
        weight: 1.0,
        explain: false,
    }
}

/// Candidates that differ in what plugins may look at.
fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let page = (prop::option::of(0.0_f32..=1.0), prop::option::of(0_u32..10_000));
    let own = (0_u32..4, 0_u32..100, 0_u32..100, 0_u32..1_000_000);
    let predicted = prop::option::of((1.0_f32..1_000.0, 1.0_f32..100.0));
    let role = prop::sample::select(vec!["prefill", "decode", "both"]);
    prop::collection::vec((page, own, predicted, role), 0..16).prop_map(|states| {
        let endpoint = |(at, role): (usize, &str)| Endpoint {
            id: EndpointId::new("default", &format!("e{at}")),
            address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
            labels: [("llm-d.ai/role".to_owned(), role.to_owned())].into(),
        };
        let pool = Pool::new(states.iter().map(|s| s.3).enumerate().map(endpoint));
        let known = pool.endpoints();
        let each = known.iter().zip(states).map(|(endpoint, (page, own, predicted, _))| {
            let (kv_utilization, waiting) = page;
            let (hit_blocks, prefilling, decoding, tokens) = own;
            Candidate {
                endpoint: Arc::clone(endpoint),
                snapshot: Snapshot { kv_utilization, waiting, ..Snapshot::default() },
                snapshot_age_ms: Some(10.0),
                load: Load {
                    prefilling,
                    decoding,
                    prefill_tokens: tokens as f32,
                    decode_tokens: u64::from(decoding) * 500,
                    ..Load::default()
                },
                demand: Demand {
                    prompt_tokens: 256,
                    cached_tokens: 64 * hit_blocks,
                    ..Demand::default()
                },
                hit_blocks,
                prediction: predicted.map(|(ttft, itl)| Prediction {
                    ttft: Quantiles([ttft; 4]),
                    itl: Quantiles([itl; 4]),
                    ..Prediction::default()
                }),
            }
        });
        each.collect()
    })
}

/// Options of a filter with which it draws by chance, where it has such.
fn exploring(filter: &str) -> serde_json::Value {
    match filter {
        "prefix-cache-affinity" => {
            json!({"explorationProbability": 0.5, "ttftSource": "latencyPredictor"})
        }
        "slo-headroom-tier" => json!({"epsilonExploreNeg": 0.5}),
        _ => json!({}),
    }
}

fn slots(candidates: &[Candidate]) -> Vec<u32> {
    candidates.iter().map(|candidate| candidate.endpoint.slot).collect()
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
    fn a_filter_leaves_some_of_the_candidates_in_their_order_and_whatever_the_order(
        candidates in candidates(),
        random in any::<u64>(),
    ) {
        let request = request(4);
        for kind in FILTERS {
            // At its defaults, and at once with every chance to explore.
            for options in [json!({}), exploring(kind.name)] {
                let filter = (kind.build)(&options).unwrap();
                let mut left = candidates.clone();
                filter.narrow(&request, &mut left, random);
                let left = slots(&left);
                let mut expected = slots(&candidates);
                expected.retain(|slot| left.contains(slot));
                prop_assert_eq!(&left, &expected, "{}", kind.name);

                let mut again = candidates.clone();
                filter.narrow(&request, &mut again, random);
                filter.narrow(&request, &mut again, random);
                prop_assert_eq!(&slots(&again), &left, "{}", kind.name);

                let mut reversed = candidates.clone();
                reversed.reverse();
                filter.narrow(&request, &mut reversed, random);
                let mut reversed = slots(&reversed);
                reversed.reverse();
                prop_assert_eq!(&reversed, &left, "{}", kind.name);
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
