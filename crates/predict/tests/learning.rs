//! A class that is learned from outcomes predicts, says how sure it is, and forgets nobody else.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{cell::RefCell, collections::BTreeSet};

use features::{Column, FeatureRow, WIDTH};
use predict::{ClassKey, Learner, Models, Options, Outcome, Prediction, Ticket, Whole};
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
        ..Outcome::default()
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
    Ticket { class, slot, scope: None, row, prediction, forecasts }
}

/// Answers of `rows` requests of one team that came in one piece.
fn teach_wholes(learner: &mut Learner, rows: u32) {
    for i in 0..rows {
        let (uncached, tokens) = ((200 + i * 613 % 4_000) as f32, 20 + i * 17 % 400);
        let seen = engine(1.0, uncached, 3.0, i);
        let ms = seen.ttft_ms.unwrap() + seen.itl_ms.unwrap() * (tokens - 1) as f32;
        let e2e = Some(Whole { ms, output_tokens: tokens });
        let outcome = Outcome { e2e, output_tokens: Some(tokens), ..Outcome::default() };
        let ticket = Ticket { scope: Some("team".into()), ..bare(row(uncached, 3.0)) };
        learner.learn(&ticket, &outcome);
    }
}

/// A ticket of a request for which nothing was predicted.
fn bare(row: FeatureRow) -> Ticket {
    Ticket { class: key("fast"), slot: 0, scope: None, row, prediction: None, forecasts: None }
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
    assert!((models.expected_output(None, None).mean - 100.0).abs() < 1.0);
    assert!((models.expected_output(None, Some(7)).mean - 7.0).abs() < f32::EPSILON);
    assert!((models.bytes_per_token() - 3.0).abs() < 0.1);
}

#[test]
fn absurd_labels_are_not_learned() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 200);
    let asked = row(1_000.0, 4.0);
    let before = predict(&learner.publish(), "fast", 0, &asked).unwrap();
    for label in [f32::NAN, f32::INFINITY, -3.0, 0.0] {
        let ticket = bare(asked);
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
        let ticket = Ticket { class, ..bare(row(100.0, 1.0)) };
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
    for refit in learner.take_refits(usize::MAX) {
        assert!(learner.install(refit.run()).is_empty());
    }
    teach_wholes(&mut learner, 60);
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
    let length = |models: &Models| models.of("m").expected_output(Some("team"), None);
    assert_eq!(length(&after), length(&before));
    assert!((length(&after).mean - 40.0).abs() > 1.0);
    // What whole answers have taught goes on from where it stood.
    for learner in [&mut learner, &mut restarted] {
        teach_wholes(learner, 30);
    }
    let asked = row(900.0, 5.0);
    let [before, after] =
        [&mut learner, &mut restarted].map(|l| predict(&l.publish(), "fast", 40, &asked));
    assert!(before.is_some());
    assert_eq!(after, before);
}

/// Labels for which a fit is due.
const UNTIL_FIT: u32 = 150;

#[test]
fn fits_are_handed_out_in_the_order_in_which_they_fell_due_and_the_others_wait() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    let classes = ["z", "a", "m"];
    for class in classes {
        teach(&mut learner, class, 0, 1.0, UNTIL_FIT);
    }
    assert!(learner.take_refits(0).is_empty());
    // A class that has learned far more since does not come before one that has waited longer.
    teach(&mut learner, "m", 0, 1.0, 5 * UNTIL_FIT);
    let mut fitted = Vec::new();
    while let Some(refit) = learner.take_refits(1).pop() {
        let told = format!("{refit:?}");
        let of = |class: &&str| told.contains(&format!("{:?}", Accelerator::new(class)));
        fitted.push(*classes.iter().find(|class| of(class)).unwrap());
    }
    assert_eq!(fitted, ["z", "z", "a", "a", "m", "m"]);
    assert!(!learner.has_due());
    teach(&mut learner, "a", 0, 1.0, UNTIL_FIT);
    assert_eq!(learner.take_refits(usize::MAX).len(), 2, "one for each target");
}

/// Endpoints of which something is kept.
fn remembered(learner: &Learner) -> BTreeSet<u32> {
    let slots = RefCell::new(BTreeSet::new());
    let asked = |slot: u32| {
        slots.borrow_mut().insert(slot);
        Some(slot.to_string())
    };
    learner.save(&asked).unwrap();
    slots.into_inner()
}

#[test]
fn endpoints_that_are_gone_are_forgotten_even_if_labels_came_late() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    for slot in 0..50 {
        teach(&mut learner, "fast", slot, 1.0, 25);
        let live = BTreeSet::from([slot, slot + 1]);
        learner.keep_only(&live);
        // Of one that has just gone.
        teach(&mut learner, "fast", slot.saturating_sub(1), 1.0, 2);
    }
    assert!(remembered(&learner).len() <= 3, "{:?}", remembered(&learner));
    learner.keep_only(&BTreeSet::from([49, 50]));
    assert_eq!(remembered(&learner), BTreeSet::from([49]));
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

#[test]
fn whole_answers_alone_make_a_class_that_predicts_both_latencies() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach_wholes(&mut learner, 39);
    let asked = row(2_000.0, 3.0);
    // Twenty labels come before the first split, and twenty make a class.
    assert!(predict(&learner.publish(), "fast", 0, &asked).is_none());
    teach_wholes(&mut learner, 400);
    let predicted = predict(&learner.publish(), "fast", 0, &asked).unwrap();
    let truth = engine(1.0, 2_000.0, 3.0, 3);
    let off = |predicted: f32, truth: Option<f32>| (predicted / truth.unwrap()).ln().abs();
    assert!(off(predicted.ttft.p50(), truth.ttft_ms) < 0.3, "{predicted:?} {truth:?}");
    assert!(off(predicted.itl.p50(), truth.itl_ms) < 0.1, "{predicted:?} {truth:?}");
    // Nothing of it was judged: a split is no truth.
    assert_eq!(learner.errors()[0].ttft.p90_coverage, None);
}

#[test]
fn a_stream_that_goes_on_corrects_a_new_endpoint_before_it_ends() {
    let mut learner = Learner::new(&Options::default()).unwrap();
    teach(&mut learner, "fast", 0, 1.0, 300);
    let asked = row(1_000.0, 5.0);
    let itl = |learner: &mut Learner, slot| {
        predict(&learner.publish(), "fast", slot, &asked).unwrap().itl.p50()
    };
    let before = itl(&mut learner, 7);
    let other = itl(&mut learner, 0);
    let counted = learner.errors();
    for _ in 0..30 {
        let ticket = ticket(&learner.publish(), "fast", 7, asked);
        let so_far = Some(2.0 * before);
        learner.learn(&ticket, &Outcome { itl_so_far: so_far, ..Outcome::default() });
    }
    assert!(itl(&mut learner, 7) > 1.2 * before, "{before}");
    assert_eq!(itl(&mut learner, 0).to_bits(), other.to_bits(), "the others stay as they were");
    assert_eq!(learner.errors(), counted);
}
