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
fn unknown_options_are_refused() {
    each(|kind| {
        assert!((kind.build)(2, &json!({ "no-such-key": 1 })).is_err(), "{}", kind.name);
    });
}

proptest! {
    #[test]
    fn a_saved_or_copied_model_predicts_what_it_did(
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
            prop_assert!(model.predict_one(&[7.0]).is_finite());
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
