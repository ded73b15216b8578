//! Nothing wrong is learned, and what two learners know becomes one.

#![expect(clippy::unwrap_used, reason = "a failing test should fail loudly")]

use features::{Column, FeatureRow, WIDTH};
use predict::{
    ClassKey, Label, Labelled, Learner, Models, Options, Outcome, Prediction, Step, Ticket, Whole,
    teach,
};
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

/// Request `i`, and what an engine makes of it that is `speed` times as slow as the fastest.
fn request(i: u32, speed: f32) -> (FeatureRow, Outcome) {
    let uncached = (200 + i * 613 % 4_000) as f32;
    let decoding = (i * 31 % 24) as f32;
    let noise = 1.0 + ((i * 7919 % 21) as f32 - 10.0) / 100.0;
    let outcome = Outcome {
        ttft_ms: Some(speed * (12.0 + uncached / 40.0 + uncached * uncached / 4e6) * noise),
        itl_ms: Some(speed * (6.0 + 0.05 * decoding) * noise),
        output_tokens: Some(50 + i * 37 % 100),
        prompt: Some((uncached as u32 * 3, uncached as u32)),
        ..Outcome::default()
    };
    (row(uncached, decoding), outcome)
}

fn learn(learner: &mut Learner, class: &str, row: FeatureRow, outcome: &Outcome) {
    let class = key(class);
    let of = learner.publish().of("m");
    let forecasts = of.forecasts(&class.accelerator, class.role, 0, &row).map(Box::new);
    let prediction = of.predict(&class.accelerator, class.role, 0, &row);
    learner.learn(&Ticket { class, slot: 0, scope: None, row, prediction, forecasts }, outcome);
}

fn taught(requests: impl IntoIterator<Item = u32>) -> Learner {
    let mut learner = fresh();
    for i in requests {
        let (row, outcome) = request(i, 1.0);
        learn(&mut learner, "fast", row, &outcome);
    }
    learner
}

fn fresh() -> Learner {
    Learner::new(&Options::default()).unwrap()
}

fn save(learner: &Learner) -> Vec<u8> {
    learner.save(&|slot| Some(format!("e{slot}"))).unwrap()
}

fn slot_of(name: &str) -> Option<u32> {
    name.strip_prefix('e')?.parse().ok()
}

fn predict(models: &Models, class: &str, row: &FeatureRow) -> Option<Prediction> {
    models.of("m").predict(&Accelerator::new(class), Role::Both, 0, row)
}

fn is_finite(prediction: &Prediction) -> bool {
    let times = [prediction.ttft.0, prediction.itl.0].concat();
    let others = [prediction.prefill_ms, prediction.pending_ms, prediction.itl_without_ms];
    let mut all = times.iter().chain(&others).chain([&prediction.itl_growth_ms]);
    all.all(|ms| ms.is_finite() && *ms >= 0.0)
}

/// Outcomes that cannot be true.
fn wrong() -> Vec<Outcome> {
    let mut wrong = Vec::new();
    for ms in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e12, f32::MAX] {
        let good = Outcome { output_tokens: Some(9), prompt: Some((900, 300)), ..ttft(30.0) };
        wrong.extend([
            ttft(ms),
            Outcome { itl_ms: Some(ms), ..good },
            Outcome { itl_so_far: Some(ms), ..good },
            Outcome { e2e: Some(Whole { ms, output_tokens: 9 }), ..good },
        ]);
    }
    wrong.push(Outcome { output_tokens: Some(u32::MAX), ..ttft(30.0) });
    wrong
}

fn ttft(ms: f32) -> Outcome {
    Outcome { ttft_ms: Some(ms), ..Outcome::default() }
}

#[test]
fn an_outcome_that_cannot_be_true_changes_no_bit() {
    let mut learner = taught(0..200);
    let before = save(&learner);
    for outcome in wrong() {
        for class in ["fast", "never-seen"] {
            learn(&mut learner, class, row(500.0, 3.0), &outcome);
        }
        assert!(save(&learner) == before, "{outcome:?}");
    }
    for column in [Column::Uncached, Column::Decoding, Column::Step] {
        for value in [f32::NAN, f32::INFINITY] {
            let row = row(500.0, 3.0).with(column, value);
            learn(&mut learner, "fast", row, &ttft(40.0));
            assert!(save(&learner) == before, "{column:?} {value}");
        }
    }
}

#[test]
fn a_step_that_cannot_be_true_changes_no_bit() {
    let mut learner = taught(0..200);
    let step = |step_ms| Step { step_ms, streams: 4.0, kv_tokens: 2_000.0 };
    for _ in 0..100 {
        learner.observe_step(&key("fast"), 0, &step(7.0));
    }
    let before = save(&learner);
    for ms in [f32::NAN, -1.0, 0.0, 1e12, f32::INFINITY] {
        assert_eq!(learner.observe_step(&key("fast"), 0, &step(ms)), None);
    }
    let unknown = Step { streams: f32::NAN, ..step(7.0) };
    assert_eq!(learner.observe_step(&key("fast"), 0, &unknown), None);
    assert!(save(&learner) == before);
}

#[test]
fn predictions_stay_finite_whatever_is_learned_in_between() {
    let mut learner = fresh();
    let wrong = wrong();
    for i in 0..400 {
        let (good_row, good) = request(i, 1.0);
        learn(&mut learner, "fast", good_row, &good);
        let bad = &wrong[i as usize % wrong.len()];
        learn(&mut learner, "fast", row((i * 7) as f32, 1.0), bad);
        // Extreme, and yet it may have happened.
        let slow = Outcome { ttft_ms: Some(3_000_000.0), itl_ms: Some(0.001), ..good };
        if i % 50 == 0 {
            learn(&mut learner, "fast", row(f32::from(u16::MAX) * 1e6, 1e9), &slow);
        }
    }
    let models = learner.publish();
    for uncached in [0.0, 1.0, 5_000.0, 1e9] {
        for decoding in [0.0, 20.0, 1e6] {
            let predicted = predict(&models, "fast", &row(uncached, decoding)).unwrap();
            assert!(is_finite(&predicted), "{uncached} {decoding} {predicted:?}");
        }
    }
}

/// How far two predictions are apart at most, over requests as they were taught.
fn apart(one: &mut Learner, other: &mut Learner) -> f32 {
    let (one, other) = (one.publish(), other.publish());
    let off = (0..100).map(|i| {
        let (row, _) = request(i * 7 + 3, 1.0);
        let (one, other) =
            (predict(&one, "fast", &row).unwrap(), predict(&other, "fast", &row).unwrap());
        let ttft = (one.ttft.p50() / other.ttft.p50() - 1.0).abs();
        ttft.max((one.itl.p50() / other.itl.p50() - 1.0).abs())
    });
    off.fold(0.0, f32::max)
}

#[test]
fn two_halves_merged_predict_as_one_that_saw_all() {
    let mut all = taught(0..600);
    let mut even = taught((0..600).filter(|i| i % 2 == 0));
    let odd = taught((0..600).filter(|i| i % 2 == 1));
    even.merge(&save(&odd), &slot_of).unwrap();
    let off = apart(&mut even, &mut all);
    assert!(off < 0.03, "{off}");
    let (merged, whole) = (&even.errors()[0], &all.errors()[0]);
    assert_eq!(merged.ttft.labels, whole.ttft.labels);
    let coverage = merged.ttft.p90_coverage.unwrap();
    assert!((coverage - whole.ttft.p90_coverage.unwrap()).abs() < 0.05, "{coverage}");
    let expected = |learner: &mut Learner| {
        let of = learner.publish().of("m");
        (of.expected_output(None, None).mean, of.bytes_per_token())
    };
    let (merged, whole) = (expected(&mut even), expected(&mut all));
    assert!((merged.0 / whole.0 - 1.0).abs() < 0.03, "{merged:?} {whole:?}");
    assert!((merged.1 / whole.1 - 1.0).abs() < 0.03, "{merged:?} {whole:?}");
    // It goes on learning, is saved and restored like any other.
    let (row, outcome) = request(601, 1.0);
    learn(&mut even, "fast", row, &outcome);
    let mut restored = fresh();
    restored.restore(&save(&even), &slot_of).unwrap();
    assert!(apart(&mut restored, &mut even) < 1e-6);
}

#[test]
fn what_only_one_has_learned_both_know_after_a_merge() {
    let mut mine = taught(0..100);
    let mut theirs = fresh();
    for i in 0..100 {
        let (row, outcome) = request(i, 3.0);
        learn(&mut theirs, "slow", row, &outcome);
    }
    mine.merge(&save(&theirs), &slot_of).unwrap();
    let models = mine.publish();
    let asked = row(1_000.0, 5.0);
    let [fast, slow] = ["fast", "slow"].map(|class| predict(&models, class, &asked).unwrap());
    assert!(slow.ttft.p50() > 2.0 * fast.ttft.p50(), "{fast:?} {slow:?}");
    let mut nothing = fresh();
    nothing.merge(&save(&mine), &slot_of).unwrap();
    assert!(apart(&mut nothing, &mut mine) < 1e-6);
}

#[test]
fn a_merge_with_other_features_or_models_is_refused_and_changes_nothing() {
    let mut learner = taught(0..60);
    let before = save(&learner);
    let text = String::from_utf8(save(&taught(0..60))).unwrap();
    let other_features = text.replace("uncached_megapairs", "something_else");
    let fewer = Options { batch: Vec::new(), ..Options::default() };
    let mut other = Learner::new(&fewer).unwrap();
    learn(&mut other, "fast", row(100.0, 1.0), &ttft(20.0));
    for (saved, words) in [
        (other_features.into_bytes(), "`something_else`"),
        (save(&other), "other regressors"),
        (before[..before.len() / 2].to_vec(), "not readable"),
    ] {
        let error = learner.merge(&saved, &slot_of).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(save(&learner) == before);
    }
}

/// Recorded rows, one every 50 ms, of which every third was a JSON answer.
fn recorded(count: u32) -> Vec<Labelled> {
    let one = |i: u32| {
        let (row, outcome) = request(i, 1.0);
        let decided_at_ms = f64::from(i) * 50.0;
        let label =
            |ms: f32| Label { ms, known_at_ms: decided_at_ms + f64::from(ms).max(1.0) * 20.0 };
        let tokens = outcome.output_tokens.unwrap();
        let is_whole = i.is_multiple_of(3);
        let whole = outcome.ttft_ms.unwrap() + outcome.itl_ms.unwrap() * (tokens - 1) as f32;
        Labelled {
            decided_at_ms,
            class: key("fast"),
            slot: 0,
            row,
            ttft: outcome.ttft_ms.filter(|_| !is_whole).map(label),
            itl: outcome.itl_ms.filter(|_| !is_whole).map(label),
            itl_so_far: Vec::new(),
            steps: Vec::new(),
            e2e: is_whole.then(|| label(whole)),
            output_tokens: tokens,
        }
    };
    (0..count).map(one).collect()
}

#[test]
fn a_learner_taught_from_recorded_rows_predicts_and_promises_as_one_that_was_there() {
    let mut learner = fresh();
    teach(&mut learner, &recorded(600));
    let off = apart(&mut learner, &mut taught(0..600));
    // At most: a third of the answers had to be split into their parts first.
    assert!(off < 0.25, "{off}");
    let error = &learner.errors()[0];
    assert!(error.ttft.labels >= 400, "{error:?}");
    assert!((0.8..=1.0).contains(&error.ttft.p90_coverage.unwrap()), "{error:?}");
    let expected = learner.publish().of("m").expected_output(None, None).mean;
    assert!((80.0..120.0).contains(&expected), "{expected}");
    assert!(!learner.take_refits(usize::MAX).is_empty(), "batch models are fitted next");
}
