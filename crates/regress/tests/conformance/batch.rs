//! The same for the batch regressors.

use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng};
use regress::{BATCH, BatchKind, Error, Fitted, LEAST_ROWS, Result, Window};
use serde_json::json;

fn each(check: impl Fn(&BatchKind)) {
    for kind in BATCH {
        check(kind);
    }
}

/// Labelled, weighted rows of `width` features.
#[derive(Clone, Default)]
struct Rows {
    width: usize,
    values: Vec<f32>,
    labels: Vec<f32>,
    weights: Vec<f32>,
}

impl Rows {
    fn of(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    fn push(&mut self, row: &[f32], label: f32, weight: f32) {
        self.values.extend_from_slice(row);
        self.labels.push(label);
        self.weights.push(weight);
    }

    fn window(&self) -> Window<'_> {
        Window {
            width: self.width,
            rows: &self.values,
            labels: &self.labels,
            weights: &self.weights,
        }
    }

    fn fit(&self, kind: &BatchKind) -> Result<Box<dyn Fitted>> {
        (kind.fit)(&self.window(), &json!({}), 5)
    }

    fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.width..(at + 1) * self.width]
    }
}

/// A time of the kind that engines show: a base, a cost per token that grows with the load, and a
/// queue that hurts only past a knee. A constant feature and one of mere noise stand beside it.
fn engine_time(tokens: f32, load: f32) -> f32 {
    20.0 + 0.05 * tokens * (1.0 + load) + 400.0 * (load - 0.6).max(0.0)
}

fn engine_rows(count: usize, seed: u64) -> Rows {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut rows = Rows::of(4);
    for _ in 0..count {
        let (tokens, load) = (rng.random_range(10.0..4_000.0_f32), rng.random_range(0.0..1.0_f32));
        let noise = rng.random_range(0.9..1.1_f32);
        let row = [tokens, load, 1.0, rng.random_range(-1.0..1.0)];
        rows.push(&row, engine_time(tokens, load) * noise, rng.random_range(0.2..1.0));
    }
    rows
}

fn bits(model: &dyn Fitted, rows: &Rows) -> Vec<u32> {
    (0..rows.labels.len()).map(|at| model.predict_one(rows.row(at)).to_bits()).collect()
}

/// Mean relative error of `predict` on `rows`.
fn error(rows: &Rows, predict: impl Fn(&[f32]) -> f32) -> f32 {
    let errors = rows.labels.iter().enumerate();
    let errors = errors.map(|(at, label)| (predict(rows.row(at)) / label - 1.0).abs());
    errors.sum::<f32>() / rows.labels.len() as f32
}

#[test]
fn names_are_unique_and_found() {
    let mut names: Vec<_> = BATCH.iter().map(|kind| kind.name).collect();
    names.extend(regress::REGRESSORS.iter().map(|kind| kind.name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    each(|found| assert_eq!(regress::batch_kind(found.name).unwrap().name, found.name));
    assert!(regress::batch_kind("no-such").is_err());
}

#[test]
fn unknown_options_are_refused() {
    let rows = engine_rows(100, 1);
    each(|kind| {
        let fitted = (kind.fit)(&rows.window(), &json!({ "no-such-key": 1 }), 5);
        assert!(matches!(fitted, Err(Error::Options(_))), "{}", kind.name);
    });
}

#[test]
fn options_without_sense_are_refused() {
    let rows = engine_rows(100, 1);
    for (name, options) in [
        ("elastic-net", json!({ "penalty": -1.0 })),
        ("random-forest", json!({ "trees": 0 })),
        ("boosted-trees", json!({ "depth": 60_000 })),
        ("boosted-trees", json!({ "subsample": 0.0 })),
    ] {
        let kind = regress::batch_kind(name).unwrap();
        let error = (kind.fit)(&rows.window(), &options, 5).unwrap_err();
        assert!(matches!(error, Error::Range { .. }), "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn the_same_window_and_seed_give_the_same_model() {
    let rows = engine_rows(400, 2);
    each(|kind| {
        let (one, two) = (rows.fit(kind).unwrap(), rows.fit(kind).unwrap());
        assert_eq!(bits(&*one, &rows), bits(&*two, &rows), "{}", kind.name);
    });
}

#[test]
fn a_saved_model_predicts_what_it_did() {
    let (rows, others) = (engine_rows(400, 3), engine_rows(200, 4));
    each(|kind| {
        let model = rows.fit(kind).unwrap();
        let text = model.save().to_string();
        let restored = (kind.load)(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(bits(&*model, &others), bits(&*restored, &others), "{}", kind.name);
        assert!(restored.covers(rows.row(0)) && !restored.covers(&[1e9; 4]), "{}", kind.name);
        assert_eq!(restored.save().to_string(), text, "{}", kind.name);
    });
}

#[test]
fn what_no_model_saved_is_refused() {
    each(|kind| {
        for saved in [json!(null), json!({}), json!({ "weights": [1.0] }), json!([1, 2])] {
            assert!(matches!((kind.load)(saved), Err(Error::Saved(_))), "{}", kind.name);
        }
    });
}

#[test]
fn bad_rows_change_nothing() {
    let clean = engine_rows(300, 5);
    let mut dirty = Rows::of(4);
    for (at, label) in clean.labels.iter().enumerate() {
        let (row, weight) = (clean.row(at), clean.weights[at]);
        match at % 7 {
            0 => dirty.push(&[f32::NAN, 0.0, 1.0, 0.0], 5.0, 1.0),
            1 => dirty.push(&[f32::INFINITY, 0.0, 1.0, 0.0], 5.0, 1.0),
            2 => dirty.push(row, f32::NAN, 1.0),
            3 => dirty.push(row, 0.0, 1.0),
            4 => dirty.push(row, -3.0, 1.0),
            5 => dirty.push(row, 5.0, 0.0),
            _ => dirty.push(row, 5.0, f32::NAN),
        }
        dirty.push(row, *label, weight);
    }
    each(|kind| {
        let (one, two) = (clean.fit(kind).unwrap(), dirty.fit(kind).unwrap());
        assert_eq!(bits(&*one, &clean), bits(&*two, &clean), "{}", kind.name);
    });
}

#[test]
fn too_few_sound_rows_are_an_error() {
    let mut rows = engine_rows(LEAST_ROWS - 1, 6);
    for _ in 0..100 {
        rows.push(&[1.0; 4], f32::NAN, 1.0);
    }
    let empty = Rows::of(4);
    each(|kind| {
        for rows in [&rows, &empty] {
            let error = rows.fit(kind).unwrap_err();
            assert!(matches!(error, Error::TooFewRows { .. }), "{}: {error}", kind.name);
        }
        assert!(engine_rows(LEAST_ROWS, 6).fit(kind).is_ok(), "{}", kind.name);
    });
}

#[test]
fn a_window_that_does_not_fit_together_is_an_error() {
    let rows = engine_rows(100, 6);
    each(|kind| {
        for window in [
            Window { width: 3, ..rows.window() },
            Window { width: 0, rows: &[], ..rows.window() },
            Window { weights: &[1.0], ..rows.window() },
        ] {
            let error = (kind.fit)(&window, &json!({}), 5).unwrap_err();
            assert!(matches!(error, Error::Shape { .. }), "{}: {error}", kind.name);
        }
    });
}

#[test]
fn rows_of_one_kind_only_are_fitted_to_their_label() {
    let mut same = Rows::of(3);
    let mut constant = Rows::of(3);
    for i in 0..100_u8 {
        same.push(&[1.0, 0.0, 5e6], 42.0, 1.0);
        constant.push(&[f32::from(i), 0.0, 1.0], 42.0, 1.0);
    }
    each(|kind| {
        for rows in [&same, &constant] {
            let predicted = rows.fit(kind).unwrap().predict_one(rows.row(50));
            assert!((predicted / 42.0 - 1.0).abs() < 1e-3, "{}: {predicted}", kind.name);
        }
    });
}

#[test]
fn a_row_far_outside_is_not_covered() {
    let rows = engine_rows(300, 7);
    each(|kind| {
        let model = rows.fit(kind).unwrap();
        assert!((0..300).all(|at| model.covers(rows.row(at))), "{}", kind.name);
        assert!(model.covers(&[4_100.0, 0.5, 1.0, 0.0]), "{}", kind.name);
        for outside in [
            &[10_000.0, 0.5, 1.0, 0.0][..],
            &[100.0, -0.5, 1.0, 0.0],
            &[100.0, 0.5, 2.0, 0.0],
            &[f32::NAN, 0.5, 1.0, 0.0],
            &[100.0, f32::INFINITY, 1.0, 0.0],
            &[100.0, 0.5, 1.0],
            &[],
        ] {
            assert!(!model.covers(outside), "{} covers {outside:?}", kind.name);
        }
    });
}

/// The baseline is what `mean` learns: the geometric mean of the labels.
#[test]
fn every_model_clearly_beats_the_mean() {
    let (rows, held_out) = (engine_rows(1_500, 8), engine_rows(1_000, 9));
    let logs: f32 = rows.labels.iter().map(|label| label.ln()).sum();
    let mean = (logs / rows.labels.len() as f32).exp();
    let of_mean = error(&held_out, |_| mean);
    each(|kind| {
        let model = rows.fit(kind).unwrap();
        let of_model = error(&held_out, |row| model.predict_one(row));
        assert!(of_model < 0.5 * of_mean, "{}: {of_model} against {of_mean}", kind.name);
    });
}

/// The noise alone costs 5 %.
#[test]
fn trees_find_the_shape() {
    let (rows, held_out) = (engine_rows(1_500, 8), engine_rows(1_000, 9));
    for name in ["random-forest", "boosted-trees"] {
        let model = rows.fit(&regress::batch_kind(name).unwrap()).unwrap();
        let of_model = error(&held_out, |row| model.predict_one(row));
        assert!(of_model < 0.1, "{name}: {of_model}");
    }
}

/// A drift: old rows say 10, new ones say 20.
#[test]
fn heavier_rows_win() {
    let mut rows = Rows::of(1);
    for i in 0..200_u8 {
        let is_new = i % 2 == 0;
        rows.push(
            &[f32::from(i)],
            if is_new { 20.0 } else { 10.0 },
            if is_new { 1.0 } else { 0.01 },
        );
    }
    each(|kind| {
        let predicted = rows.fit(kind).unwrap().predict_one(&[100.0]);
        assert!((18.0..21.0).contains(&predicted), "{}: {predicted}", kind.name);
    });
}

/// Observed over what another model predicted: mostly about 1.
#[test]
fn labels_may_be_ratios() {
    let mut rows = engine_rows(600, 10);
    for at in 0..rows.labels.len() {
        rows.labels[at] = if rows.row(at)[1] > 0.6 { 1.3 } else { 0.95 };
    }
    each(|kind| {
        let model = rows.fit(kind).unwrap();
        let (idle, loaded) = ([500.0, 0.2, 1.0, 0.0], [500.0, 0.9, 1.0, 0.0]);
        assert!(model.predict_one(&loaded) > 1.1 * model.predict_one(&idle), "{}", kind.name);
        assert!((0.7..1.6).contains(&model.predict_one(&idle)), "{}", kind.name);
    });
}

fn any_value() -> impl Strategy<Value = f32> {
    prop_oneof![
        Just(f32::NAN),
        Just(f32::INFINITY),
        Just(f32::NEG_INFINITY),
        Just(f32::MAX),
        Just(f32::MIN),
        Just(0.0),
        -1e6_f32..1e6,
    ]
}

fn finite_value() -> impl Strategy<Value = f32> {
    prop_oneof![Just(f32::MAX), Just(f32::MIN), Just(0.0), Just(1e-40), -1e6_f32..1e6, 0.0_f32..1.0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn predictions_are_finite_and_positive_everywhere(
        fitted in prop::collection::vec(
            (finite_value(), finite_value(), prop_oneof![Just(f32::MAX), Just(1e-45), 1e-3_f32..1e5]),
            LEAST_ROWS..120,
        ),
        asked in prop::collection::vec((any_value(), any_value()), 20),
    ) {
        let mut rows = Rows::of(2);
        for (x, y, label) in &fitted {
            rows.push(&[*x, *y], *label, 1.0);
        }
        for kind in BATCH {
            let model = rows.fit(kind).unwrap();
            let restored = (kind.load)(model.save()).unwrap();
            for row in asked.iter().map(|(x, y)| vec![*x, *y]).chain([vec![], vec![1.0; 7]]) {
                let predicted = model.predict_one(&row);
                prop_assert!(predicted.is_finite() && predicted > 0.0, "{} {row:?}", kind.name);
                prop_assert_eq!(predicted.to_bits(), restored.predict_one(&row).to_bits());
            }
        }
    }
}
