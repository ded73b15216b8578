//! What every registered regressor must do. A new one is covered the moment it is registered.

#![expect(clippy::unwrap_used, reason = "a failing test should fail loudly")]

mod batch;

use std::{fs, path::Path};

use proptest::prelude::*;
use regress::{BATCH, Kind, REGRESSORS};
use serde_json::json;

fn each(check: impl Fn(&Kind)) {
    for kind in REGRESSORS {
        check(kind);
    }
}

#[test]
fn names_are_unique_and_found() {
    let mut names: Vec<_> = REGRESSORS.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), REGRESSORS.len());
    each(|found| assert_eq!(regress::kind(found.name).unwrap().name, found.name));
    assert!(regress::kind("no-such").is_err());
}

#[test]
fn every_file_is_registered() {
    for (folder, listed) in [("src", REGRESSORS.len()), ("src/batch", BATCH.len())] {
        assert_eq!(plugins(folder), listed, "a file in `{folder}` is missing from its list");
    }
}

/// Files directly in `folder` that say how they are named in configuration.
fn plugins(folder: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.is_file());
    files.filter(|path| fs::read_to_string(path).unwrap().contains("const KIND:")).count()
}

#[test]
fn fresh_models_predict_a_finite_value() {
    each(|kind| {
        let model = (kind.build)(2, &json!({})).unwrap();
        assert!(model.predict_one(&[1.0, 2.0]).is_finite(), "{}", kind.name);
    });
}

#[test]
fn a_merge_with_something_else_is_refused_and_changes_nothing() {
    each(|kind| {
        let mut model = (kind.build)(2, &json!({})).unwrap();
        for i in 0..30_u8 {
            model.learn_one(&[1.0, f32::from(i)], f32::from(i) + 5.0);
        }
        let before = model.save();
        for other in [json!({}), json!([1]), json!("text"), json!({ "labels": 3 })] {
            assert!(model.merge(&other).is_err(), "{}: {other}", kind.name);
            assert_eq!(model.save(), before, "{}", kind.name);
        }
    });
    let mut model = (regress::kind("rls").unwrap().build)(2, &json!({})).unwrap();
    let wider = (regress::kind("rls").unwrap().build)(3, &json!({})).unwrap().save();
    let error = model.merge(&wider).unwrap_err().to_string();
    assert_eq!(error, "two models cannot be merged: one has 2 terms and the other 3");
}

#[test]
fn merging_with_a_fresh_one_changes_no_prediction() {
    each(|kind| {
        let mut model = (kind.build)(2, &json!({})).unwrap();
        for i in 0..30_u8 {
            model.learn_one(&[1.0, f32::from(i)], f32::from(i) + 5.0);
        }
        let before = model.predict_one(&[1.0, 40.0]);
        if model.merge(&(kind.build)(2, &json!({})).unwrap().save()).is_ok() {
            let after = model.predict_one(&[1.0, 40.0]);
            assert!((after / before - 1.0).abs() < 1e-2, "{}: {before} {after}", kind.name);
        }
    });
}

#[test]
fn unknown_options_are_refused() {
    each(|kind| {
        assert!((kind.build)(2, &json!({ "no-such-key": 1 })).is_err(), "{}", kind.name);
    });
}

proptest! {
    #[test]
    fn a_saved_copied_or_frozen_model_predicts_what_it_did(
        rows in prop::collection::vec((0.0_f32..1e3, 1e-3_f32..1e5), 1..50),
    ) {
        for kind in REGRESSORS {
            let mut model = (kind.build)(1, &json!({})).unwrap();
            for (x, y) in &rows {
                model.learn_one(&[*x], *y);
            }
            let before = model.predict_one(&[7.0]).to_bits();
            let restored = (kind.load)(model.save()).unwrap();
            prop_assert_eq!(before, restored.predict_one(&[7.0]).to_bits(), "{}", kind.name);
            prop_assert_eq!(before, model.copy().predict_one(&[7.0]).to_bits(), "{}", kind.name);
            let (now, frozen) = (model.predict_one(&[7.0]), model.freeze());
            prop_assert!((frozen.predict_one(&[7.0]) - now).abs() <= 1e-5 * now, "{}", kind.name);
            model.learn_one(&[7.0], 3.0);
            prop_assert!((frozen.predict_one(&[7.0]) - now).abs() <= 1e-5 * now, "{}", kind.name);
            prop_assert!(model.predict_one(&[7.0]).is_finite());
        }
    }

    #[test]
    fn two_halves_merged_predict_as_one_that_learned_both(
        rows in prop::collection::vec((0.0_f32..1e3, 0.9_f32..1.1), 40..80),
    ) {
        for kind in REGRESSORS {
            let options = if kind.name == "rls" { json!({ "forgetting": 1.0 }) } else { json!({}) };
            let build = || (kind.build)(2, &options).unwrap();
            let (mut one, mut halves, mut probe) = (build(), [build(), build()], build());
            if probe.merge(&build().save()).is_err() {
                // Told in a test of its own: such a kind refuses and changes nothing.
                continue;
            }
            for (at, (x, noise)) in rows.iter().enumerate() {
                let (row, label) = ([1.0, *x], noise * (20.0 + 0.3 * x));
                one.learn_one(&row, label);
                halves[at % 2].learn_one(&row, label);
            }
            let [mut merged, other] = halves;
            merged.merge(&other.save()).unwrap();
            for x in [0.0, 100.0, 900.0] {
                let (merged, one) = (merged.predict_one(&[1.0, x]), one.predict_one(&[1.0, x]));
                prop_assert!((merged / one - 1.0).abs() < 0.02, "{}: {merged} {one}", kind.name);
            }
        }
    }

    #[test]
    fn bad_labels_and_rows_change_nothing(
        label in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(-1.0), Just(0.0)],
    ) {
        for kind in REGRESSORS {
            let mut model = (kind.build)(1, &json!({})).unwrap();
            model.learn_one(&[2.0], 3.0);
            let before = model.predict_one(&[7.0]).to_bits();
            model.learn_one(&[2.0], label);
            model.learn_one(&[f32::NAN], 3.0);
            prop_assert_eq!(before, model.predict_one(&[7.0]).to_bits(), "{}", kind.name);
        }
    }
}
