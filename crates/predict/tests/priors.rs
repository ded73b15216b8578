//! A class that a prior knows is predicted before its first row, learns on from there, and nothing pretends.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use features::{Column, FeatureRow, WIDTH};
use predict::{
    About, ClassKey, Learner, Lessons, Models, Options, Outcome, Prediction, Prior, PriorError,
    Priors, Source, Ticket,
};
use types::{Accelerator, Role};

fn row(i: u32) -> FeatureRow {
    let uncached = (200 + i * 613 % 4_000) as f32;
    let decoding = (i * 31 % 24) as f32;
    FeatureRow::from([0.0; WIDTH])
        .with(Column::Prompt, uncached)
        .with(Column::Uncached, uncached)
        .with(Column::Decoding, decoding)
        .with(Column::DecodeTokens, decoding * 500.0)
}

/// TTFT and ITL of an engine that takes `speed` times as long as another.
fn engine(speed: f32, row: &FeatureRow, i: u32) -> (f32, f32) {
    let noise = 1.0 + ((i * 7919 % 21) as f32 - 10.0) / 100.0;
    let ttft = speed * (12.0 + row.get(Column::Uncached) / 40.0) * noise;
    (ttft, speed * (6.0 + 0.05 * row.get(Column::Decoding)) * noise)
}

fn lessons(speed: f32, rows: std::ops::Range<u32>) -> Lessons {
    let known = |i| (row(i), engine(speed, &row(i), i));
    Lessons {
        ttft: rows.clone().map(known).map(|(row, (ttft, _))| (row, ttft)).collect(),
        itl: rows.map(known).map(|(row, (_, itl))| (row, itl)).collect(),
        steps: Vec::new(),
    }
}

fn prior(model: &str, accelerator: &str, tp: u32, speed: f32) -> Prior {
    let about = About {
        model: model.to_owned(),
        accelerator: accelerator.to_owned(),
        tp,
        weights: None,
        strength: 30.0,
    };
    Prior::train(&about, &lessons(speed, 0..600), &lessons(speed, 600..900)).unwrap()
}

fn priors() -> Priors {
    let known = [
        ("llama-3.1-8b", "H100-SXM", 1, 1.0),
        ("llama-3.1-70b", "H100-SXM", 4, 2.5),
        ("llama-3.1-70b-fp8", "H100-SXM", 2, 2.6),
        ("llama-3.1-70b", "H100-SXM", 8, 1.6),
        ("llama-3.1-8b", "L4", 1, 8.0),
    ];
    known.iter().map(|(model, gpu, tp, speed)| prior(model, gpu, *tp, *speed)).collect()
}

fn learner(priors: Priors) -> Learner {
    Learner::with_priors(&Options::default(), Arc::new(priors)).unwrap()
}

fn predict(models: &Models, model: &str, gpu: &str, row: &FeatureRow) -> Option<Prediction> {
    models.of(model).predict(&Accelerator::new(gpu), Role::Both, 0, row)
}

fn teach(learner: &mut Learner, model: &str, gpu: &str, speed: f32, rows: std::ops::Range<u32>) {
    let class =
        ClassKey { model: model.into(), accelerator: Accelerator::new(gpu), role: Role::Both };
    for i in rows {
        let models = learner.publish().of(model);
        let (row, (ttft_ms, itl_ms)) = (row(i), engine(speed, &row(i), i));
        let ticket = Ticket {
            class: class.clone(),
            slot: 0,
            row,
            prediction: models.predict(&class.accelerator, class.role, 0, &row),
            forecasts: models.forecasts(&class.accelerator, class.role, 0, &row).map(Box::new),
            scope: None,
        };
        let outcome =
            Outcome { ttft_ms: Some(ttft_ms), itl_ms: Some(itl_ms), ..Outcome::default() };
        learner.learn(&ticket, &outcome);
    }
}

/// How far the median TTFT is off on rows 2,000 to 2,100, relatively.
fn off(models: &Models, model: &str, gpu: &str, speed: f32) -> f32 {
    let one = |i| {
        let (ttft, _) = engine(speed, &row(i), i);
        (predict(models, model, gpu, &row(i)).unwrap().ttft.p50() / ttft - 1.0).abs()
    };
    (2_000..2_100).map(one).sum::<f32>() / 100.0
}

#[test]
fn a_model_never_seen_is_predicted_where_a_prior_knows_its_size_and_accelerator() {
    let models = learner(priors()).publish();
    for (gpu, speed) in [("NVIDIA H100 80GB HBM3", 1.0), ("nvidia-l4", 8.0)] {
        let model = "meta-llama/Llama-3.1-8B-Instruct";
        let predicted = predict(&models, model, gpu, &row(7)).unwrap();
        assert_eq!((predicted.source, predicted.labels), (Source::Prior, 0));
        assert!(off(&models, model, gpu, speed) < 0.15, "{}", off(&models, model, gpu, speed));
        assert!(predicted.ttft.p90() > predicted.ttft.p50());
        assert!(predicted.ttft.p90() < 1.5 * predicted.ttft.p50(), "{predicted:?}");
    }
}

#[test]
fn what_no_prior_knows_is_not_predicted() {
    let models = learner(priors()).publish();
    for (model, gpu) in [("my-model", "H100"), ("llama-3.1-8b", "TPU-v5e"), ("8b", "unknown")] {
        assert!(predict(&models, model, gpu, &row(7)).is_none(), "{model} {gpu}");
    }
    let without = Learner::new(&Options::default()).unwrap().publish();
    assert!(predict(&without, "llama-3.1-8b", "H100", &row(7)).is_none());
}

#[test]
fn weights_and_parallelism_choose_among_priors_of_one_size() {
    let known = priors();
    let tp = |model: &str, gpu: &str| {
        let fit = known.find(model, &Accelerator::new(gpu)).unwrap();
        (fit.prior.tp, fit.scale.to_bits() == 1.0_f32.to_bits(), fit.strength)
    };
    assert_eq!(tp("Llama-3.1-70B", "H100"), (4, true, 30.0));
    assert_eq!(tp("Llama-3.1-70B-FP8", "H100"), (2, true, 30.0));
    assert_eq!(tp("Llama-3.1-70B", "H100 tp8"), (8, true, 30.0));
    // Nothing of this size: the nearest one, scaled, and with less weight.
    assert_eq!(tp("Qwen3-32B", "H100"), (4, false, 8.0));
}

#[test]
fn another_size_is_predicted_from_the_nearest_with_times_scaled() {
    let models = learner(priors()).publish();
    let ttft = |model| predict(&models, model, "H100", &row(7)).unwrap().ttft.p50();
    let factor = ttft("some-14b") / ttft("some-8b");
    assert!((factor - 14.0 / 8.0).abs() < 0.01, "{factor}");
    assert!(predict(&models, "some-0.5b", "L4", &row(7)).is_none(), "too far to scale");
}

#[test]
fn a_class_that_the_prior_is_wrong_about_is_learned_within_dozens_of_rows() {
    let mut learner = learner(priors());
    let (model, gpu) = ("llama-3.1-8b", "H100-SXM");
    teach(&mut learner, model, gpu, 1.5, 0..10);
    let models = learner.publish();
    assert_eq!(predict(&models, model, gpu, &row(7)).unwrap().source, Source::Prior);
    let after_ten = off(&models, model, gpu, 1.5);
    assert!(after_ten < 0.33, "{after_ten}");
    teach(&mut learner, model, gpu, 1.5, 10..60);
    let models = learner.publish();
    assert_eq!(predict(&models, model, gpu, &row(7)).unwrap().source, Source::Learned);
    assert!(off(&models, model, gpu, 1.5) < 0.15, "{}", off(&models, model, gpu, 1.5));
}

#[test]
fn a_scaled_prior_goes_on_learning_from_where_it_stood() {
    let mut learner = learner(priors());
    let (model, gpu) = ("some-14b", "H100-SXM");
    let before = predict(&learner.publish(), model, gpu, &row(7)).unwrap().ttft.p50();
    teach(&mut learner, model, gpu, 14.0 / 8.0, 0..3);
    let after = predict(&learner.publish(), model, gpu, &row(7)).unwrap();
    assert_eq!(after.source, Source::Prior);
    assert!((after.ttft.p50() / before - 1.0).abs() < 0.15, "{before} {after:?}");
}

#[test]
fn a_class_grown_from_a_prior_survives_a_restart_bit_for_bit() {
    let mut before = learner(priors());
    let (model, gpu) = ("llama-3.1-8b", "H100-SXM");
    teach(&mut before, model, gpu, 1.2, 0..12);
    let saved = before.save(&|slot| Some(slot.to_string())).unwrap();
    // The restarted one has no priors of its own.
    let mut after = Learner::new(&Options::default()).unwrap();
    after.restore(&saved, &|name| name.parse().ok()).unwrap();
    let predicted = predict(&before.publish(), model, gpu, &row(77));
    assert_eq!(predicted.unwrap().source, Source::Prior);
    assert_eq!(predict(&after.publish(), model, gpu, &row(77)), predicted);
    teach(&mut before, model, gpu, 1.2, 12..60);
    teach(&mut after, model, gpu, 1.2, 12..60);
    let predicted = predict(&before.publish(), model, gpu, &row(77));
    assert_eq!(predict(&after.publish(), model, gpu, &row(77)), predicted);
}

#[test]
fn learners_with_another_base_take_no_priors() {
    let options = Options { regressors: vec!["mean".to_owned()], ..Options::default() };
    let mut learner = Learner::with_priors(&options, Arc::new(priors())).unwrap();
    assert!(predict(&learner.publish(), "llama-3.1-8b", "H100", &row(7)).is_none());
    teach(&mut learner, "llama-3.1-8b", "H100", 1.0, 0..3);
    assert!(predict(&learner.publish(), "llama-3.1-8b", "H100", &row(7)).is_none());
}

#[test]
fn a_prior_is_read_as_it_was_written_and_others_are_refused_by_file_and_line() {
    let one = serde_json::to_value(prior("llama-3.1-8b", "H100-SXM", 1, 1.0)).unwrap();
    let text = format!("{one}\n\n{one}\n");
    let read = Priors::parse(&text, "p.jsonl").unwrap();
    let again: Vec<_> = read.iter().map(|prior| serde_json::to_value(prior).unwrap()).collect();
    assert_eq!(again, [one.clone(), one.clone()]);
    let refused = |key: &str, value: serde_json::Value| {
        let mut bad = one.clone();
        bad[key] = value;
        Priors::parse(&format!("{one}\n{bad}\n"), "p.jsonl").unwrap_err()
    };
    for (key, value, words) in [
        ("format", 7.into(), "format 7, not 1"),
        ("columns", serde_json::json!(["a"]), "other features"),
        ("terms", "old".into(), "other terms (old"),
    ] {
        let error = refused(key, value);
        assert!(matches!(error, PriorError::Other { line: 2, .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("p.jsonl:2: ") && text.contains(words), "{text}");
        assert!(text.contains("slackline train"), "{text}");
    }
    assert!(refused("ttft", "no".into()).to_string().starts_with("p.jsonl:2: "));
    assert!(Priors::parse("{", "p.jsonl").unwrap_err().to_string().starts_with("p.jsonl:1: "));
    let state = serde_json::json!({"regressor": "magic", "state": {}, "residuals": []});
    assert!(refused("itl", state).to_string().contains("does not fit its regressor"));
}

#[test]
fn equal_rows_make_equal_priors_and_too_few_make_none() {
    let text = |prior| serde_json::to_string(&prior).unwrap();
    let one = || prior("llama-3.1-8b", "H100-SXM", 1, 1.0);
    assert_eq!(text(one()), text(one()));
    let about = |model: &str| About {
        model: model.to_owned(),
        accelerator: "H100".to_owned(),
        tp: 1,
        weights: None,
        strength: 30.0,
    };
    let train = |model, rows| Prior::train(&about(model), &lessons(1.0, rows), &Lessons::default());
    assert!(train("a-8b", 0..99).unwrap_err().to_string().contains("99 labels of ttft"));
    assert!(train("a", 0..300).unwrap_err().to_string().contains("`a` tells no size"));
}
