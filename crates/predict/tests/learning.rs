//! A class that is learned from outcomes predicts, says how sure it is, and forgets nobody else.

use features::{Column, FeatureRow, WIDTH};
use predict::{ClassKey, Learner, Models, Options, Outcome, Prediction, Ticket};
use types::{Accelerator, Role};

fn key(accelerator: &str) -> ClassKey {
    ClassKey { model: "m".into(), accelerator: Accelerator::new(accelerator), role: Role::Both }
}

fn row(uncached: f32, decoding: f32) -> FeatureRow {
    FeatureRow::from([0.0; WIDTH])
        .with(Column::Prompt, uncached)
        .with(Column::Uncached, uncached)
        .with(Column::Decoding, decoding)
        .with(Column::DecodeTokens, decoding * 500.0)
}

/// An engine that is no line: a floor, curvature, and noise by `i`.
fn engine(speed: f32, uncached: f32, decoding: f32, i: u32) -> Outcome {
    let noise = 1.0 + ((i * 7919 % 21) as f32 - 10.0) / 100.0;
    let ttft = speed * (12.0 + (uncached / 40.0).max(8.0) + uncached * uncached / 4e6) * noise;
    let itl = speed * (6.0 + 0.05 * decoding + 1e-4 * decoding * decoding) * noise;
    Outcome {
        ttft_ms: Some(ttft),
        itl_ms: Some(itl),
        output_tokens: Some(100),
        prompt: Some((uncached as u32 * 3, uncached as u32)),
    }
}

fn teach(learner: &mut Learner, accelerator: &str, slot: u32, speed: f32, rows: u32) {
    for i in 0..rows {
        let uncached = (200 + i * 613 % 4_000) as f32;
        let decoding = (i * 31 % 24) as f32;
        let row = row(uncached, decoding);
        let ticket = ticket(&learner.publish(), accelerator, slot, row);
        learner.learn(&ticket, &engine(speed, uncached, decoding, i));
    }
}

fn ticket(models: &Models, accelerator: &str, slot: u32, row: FeatureRow) -> Ticket {
    let class = key(accelerator);
    let of = models.of("m");
    let forecasts = of.forecasts(&class.accelerator, class.role, slot, &row).map(Box::new);
    let prediction = predict(models, accelerator, slot, &row);
    Ticket { class, slot, row, prediction, forecasts }
}

fn predict(models: &Models, accelerator: &str, slot: u32, row: &FeatureRow) -> Option<Prediction> {
    models.of("m").predict(&Accelerator::new(accelerator), Role::Both, slot, row)
}

#[test]
fn nothing_is_predicted_before_enough_labels() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 10);
    assert!(predict(&learner.publish(), "fast", 0, &row(1_000.0, 4.0)).is_none());
    assert!(predict(&Models::default(), "fast", 0, &row(1_000.0, 4.0)).is_none());
}

#[test]
fn each_class_learns_its_own_speed() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 400);
    teach(&mut learner, "slow", 1, 3.0, 400);
    let models = learner.publish();
    let asked = row(2_000.0, 8.0);
    for (accelerator, slot, speed) in [("fast", 0, 1.0), ("slow", 1, 3.0)] {
        let predicted = predict(&models, accelerator, slot, &asked).unwrap();
        let truth = engine(speed, 2_000.0, 8.0, 3);
        let off = |predicted: f32, truth: Option<f32>| (predicted / truth.unwrap()).ln().abs();
        assert!(off(predicted.ttft.p50(), truth.ttft_ms) < 0.25, "{predicted:?} {truth:?}");
        assert!(off(predicted.itl.p50(), truth.itl_ms) < 0.25, "{predicted:?} {truth:?}");
        assert!(predicted.ttft.p90() > predicted.ttft.p50());
    }
}

#[test]
fn the_promised_p90_is_kept_about_nine_times_in_ten() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 1_500);
    let error = &learner.errors()[0];
    for target in [&error.ttft, &error.itl] {
        assert!((0.85..=0.95).contains(&target.p90_coverage.unwrap()), "{error:?}");
    }
}

#[test]
fn a_class_never_seen_answers_from_the_pool_of_all() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 100);
    let predicted = predict(&learner.publish(), "new", 9, &row(1_000.0, 4.0));
    assert!(predicted.unwrap().ttft.p50() > 1.0);
}

#[test]
fn one_slow_endpoint_of_a_class_is_told_apart() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    for _ in 0..20 {
        teach(&mut learner, "fast", 0, 1.0, 20);
        teach(&mut learner, "fast", 1, 1.6, 20);
    }
    let models = learner.publish();
    let asked = row(2_000.0, 8.0);
    let ttft = |slot| predict(&models, "fast", slot, &asked).unwrap().ttft.p50();
    assert!(ttft(1) > 1.3 * ttft(0), "{} {}", ttft(0), ttft(1));
}

#[test]
fn lengths_of_answers_and_density_of_prompts_are_learned() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 400);
    let models = learner.publish().of("m");
    assert!((models.expected_output(None).mean - 100.0).abs() < 1.0);
    assert!((models.expected_output(Some(7)).mean - 7.0).abs() < f32::EPSILON);
    assert!((models.bytes_per_token() - 3.0).abs() < 0.1);
}

#[test]
fn absurd_labels_are_not_learned() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 200);
    let asked = row(1_000.0, 4.0);
    let before = predict(&learner.publish(), "fast", 0, &asked).unwrap();
    for label in [f32::NAN, f32::INFINITY, -3.0, 0.0] {
        let ticket =
            Ticket { class: key("fast"), slot: 0, row: asked, prediction: None, forecasts: None };
        let outcome = Outcome { ttft_ms: Some(label), itl_ms: Some(label), ..Outcome::default() };
        learner.learn(&ticket, &outcome);
    }
    assert_eq!(predict(&learner.publish(), "fast", 0, &asked), Some(before));
}

#[test]
fn models_beyond_the_bound_are_not_learned() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    for i in 0..1_000 {
        let class = ClassKey { model: format!("m{i}").into(), ..key("fast") };
        let ticket =
            Ticket { class, slot: 0, row: row(100.0, 1.0), prediction: None, forecasts: None };
        learner.learn(&ticket, &engine(1.0, 100.0, 1.0, i));
    }
    assert!(learner.errors().len() <= 64);
}

#[test]
fn a_restart_predicts_bit_for_bit_what_it_did() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 300);
    teach(&mut learner, "fast", 1, 1.6, 100);
    teach(&mut learner, "slow", 2, 3.0, 200);
    for refit in learner.take_refits() {
        assert!(learner.install(refit.run()).is_empty());
    }
    let saved = learner.save(&|slot| Some(format!("default/e{slot}"))).unwrap();
    let mut restarted = Learner::new(&Options::default()).unwrap();
    // Discovery has given the endpoints other numbers.
    let slot_of = |name: &str| name.strip_prefix("default/e")?.parse::<u32>().ok().map(|s| s + 10);
    restarted.restore(&saved, &slot_of).unwrap();
    let (before, after) = (learner.publish(), restarted.publish());
    for (accelerator, slot) in [("fast", 0), ("fast", 1), ("slow", 2), ("new", 9)] {
        for uncached in [50.0, 900.0, 30_000.0] {
            let asked = row(uncached, 5.0);
            let predicted = predict(&before, accelerator, slot, &asked).unwrap();
            assert_eq!(predict(&after, accelerator, slot + 10, &asked), Some(predicted));
        }
    }
    assert_eq!(learner.errors(), restarted.errors());
}

#[test]
fn what_was_saved_with_other_features_or_models_is_refused_and_changes_nothing() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 60);
    let saved = learner.save(&|_| None).unwrap();
    let text = String::from_utf8(saved.clone()).unwrap();
    let other_features = text.replace("uncached_megapairs", "something_else");
    let fewer = Options { batch: Vec::new(), ..Options::default() };
    let before = learner.errors();
    for (options, saved) in [
        (Options::default(), other_features.into_bytes()),
        (fewer, saved.clone()),
        (Options::default(), saved[..saved.len() / 2].to_vec()),
    ] {
        let mut other = Learner::new(&options).unwrap();
        assert!(other.restore(&saved, &|_| None).is_err());
        assert!(other.errors().is_empty());
    }
    assert_eq!(learner.errors(), before);
}

#[test]
fn an_engine_that_slows_down_is_predicted_slower_before_any_label() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 300);
    let step = |i: u32, slower: f32| {
        let streams = (i % 13 + 1) as f32;
        let step_ms = slower * (7.0 + 0.05 * streams);
        predict::Step { step_ms, streams, kv_tokens: 800.0 * streams }
    };
    for i in 0..200 {
        assert_eq!(learner.observe_step(&key("fast"), 0, &step(i, 1.0)), None);
    }
    let asked = row(1_000.0, 5.0);
    let before = predict(&learner.publish(), "fast", 0, &asked).unwrap();
    let noticed = (0..4).any(|i| learner.observe_step(&key("fast"), 0, &step(i, 1.6)).is_some());
    let after = predict(&learner.publish(), "fast", 0, &asked).unwrap();
    assert!(noticed);
    assert!(after.itl.p50() > 1.35 * before.itl.p50(), "{before:?} {after:?}");
    assert!(after.ttft.p90() > 1.35 * before.ttft.p90());
}
