//! A learner that may look at some features only learns and predicts by those alone.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use features::{Column, FeatureRow, WIDTH};
use predict::{ClassKey, Learner, LoadError, Options, Outcome, Prediction, Ticket};
use serde_json::json;
use types::{Accelerator, Role};

fn key() -> ClassKey {
    ClassKey { model: "m".into(), accelerator: Accelerator::new("a"), role: Role::Both }
}

/// A learner in the manner of llm-d's latency predictor: trees over what its router knows.
fn peer_like() -> Options {
    serde_json::from_value(json!({
        "regressors": ["mean"],
        "experts": [],
        "batch": ["boosted-trees"],
        "min_labels": 100,
        "priors": "none",
        "features": [
            "prompt_tokens", "uncached_tokens", "waiting_requests", "running_requests",
            "kv_utilization_ratio", "ahead_tokens",
        ],
    }))
    .unwrap()
}

/// A request behind others; `hidden` stands in columns that such a learner does not see.
fn row(uncached: f32, ahead: f32, hidden: f32) -> FeatureRow {
    FeatureRow::from([0.0; WIDTH])
        .with(Column::Prompt, uncached)
        .with(Column::Uncached, uncached)
        .with(Column::AheadTokens, ahead)
        .with(Column::AheadRequests, 1.0)
        .with(Column::AheadPairs, hidden)
        .with(Column::Step, hidden)
        .with(Column::OldestWait, hidden)
}

fn truth_ms(uncached: f32, ahead: f32) -> f32 {
    20.0 + (uncached + ahead) / 20.0
}

fn ask(learner: &mut Learner, row: &FeatureRow) -> Option<Prediction> {
    let of = learner.publish().of("m");
    of.predict(&key().accelerator, key().role, 0, row)
}

fn teach(learner: &mut Learner, rows: u32) {
    for i in 0..rows {
        let (uncached, ahead) = ((200 + i * 613 % 4_000) as f32, (i * 877 % 9_000) as f32);
        let row = row(uncached, ahead, (i % 7) as f32);
        let of = learner.publish().of("m");
        let class = key();
        let (accelerator, role) = (&class.accelerator, class.role);
        let ticket = Ticket {
            prediction: of.predict(accelerator, role, 0, &row),
            forecasts: of.forecasts(accelerator, role, 0, &row).map(Box::new),
            class,
            slot: 0,
            scope: None,
            row,
        };
        let ttft_ms = Some(truth_ms(uncached, ahead));
        learner.learn(&ticket, &Outcome { ttft_ms, itl_ms: Some(10.0), ..Outcome::default() });
        for refit in learner.take_refits(usize::MAX) {
            assert!(learner.install(refit.run()).is_empty());
        }
    }
}

#[test]
fn trees_over_a_routers_features_predict_after_enough_rows() {
    let mut learner = Learner::new(&peer_like()).unwrap();
    teach(&mut learner, 90);
    assert!(ask(&mut learner, &row(1_000.0, 500.0, 0.0)).is_none());
    teach(&mut learner, 1_200);
    for (uncached, ahead) in [(400.0, 300.0), (3_000.0, 500.0), (1_000.0, 7_000.0)] {
        let predicted = ask(&mut learner, &row(uncached, ahead, 3.0)).unwrap().ttft.p50();
        let truth = truth_ms(uncached, ahead);
        assert!((predicted / truth).ln().abs() < 0.3, "{predicted} for {truth}");
    }
}

#[test]
fn what_is_hidden_changes_no_prediction() {
    let mut learner = Learner::new(&peer_like()).unwrap();
    teach(&mut learner, 600);
    let mut of = |hidden| ask(&mut learner, &row(1_500.0, 2_000.0, hidden)).unwrap();
    assert_eq!(of(0.0), of(1e5));
}

#[test]
fn a_state_of_other_features_is_not_taken_over() {
    let mut narrow = Learner::new(&peer_like()).unwrap();
    teach(&mut narrow, 20);
    let saved = narrow.save(&|_| None).unwrap();
    let mut wide = Learner::new(&Options { features: Vec::new(), ..peer_like() }).unwrap();
    let refused = wide.restore(&saved, &|_| None).unwrap_err();
    assert!(matches!(refused, LoadError::Features { .. }), "{refused}");
    narrow.restore(&saved, &|_| None).unwrap();
}
