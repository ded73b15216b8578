//! Learns from answers that show no token by itself: their time is split into a TTFT and an ITL.
//!
//! The time of an answer of `n` tokens is `TTFT + (n − 1) · ITL`, which is linear in the weights of both
//! at once. One non-negative RLS over the terms of both learns it; answers of different lengths tell the
//! two apart, and observed TTFTs and ITLs teach their own half.

use features::FeatureRow;
use regress::{Kind, Regressor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{load::LoadError, terms::Target, ticket::Whole};

/// Whole answers before which none is split: until then the split is a guess.
const BEFORE_SPLIT: u32 = 20;
/// Least share of an answer that a part is taken to be.
const LEAST_SHARE: f32 = 1e-3;
/// Most times an answer that a part is predicted to be.
const MOST_SHARES: f32 = 1e3;
/// Least share of its prediction that a part keeps, however fast the whole was.
const LEAST_KEPT: f32 = 0.1;

/// The model of whole answers of one class.
#[derive(Debug)]
pub(crate) struct Joint {
    kind: Kind,
    /// None before the first whole answer.
    model: Option<Box<dyn Regressor>>,
    /// Whole answers learned.
    wholes: u32,
}

/// What is kept of it over a restart.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SavedJoint {
    wholes: u32,
    model: Value,
}

/// A whole answer in its parts, which add up to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Split {
    pub(crate) ttft_ms: f32,
    /// None for a single token.
    pub(crate) itl_ms: Option<f32>,
}

impl Joint {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, model: None, wholes: 0 }
    }

    /// Learns an observed TTFT or ITL, once there have been whole answers.
    pub(crate) fn learn_part(&mut self, target: Target, row: &FeatureRow, ms: f32) {
        if let Some(model) = &mut self.model {
            let of = |part: Target| f32::from(u8::from(part == target));
            model.learn_one(&terms(row, of(Target::Ttft), of(Target::Itl)), ms);
        }
    }

    /// Learns a whole answer, and splits it by what was known before it; `None` while that is too
    /// little, and for one that is not sound.
    pub(crate) fn learn(&mut self, row: &FeatureRow, whole: Whole) -> Option<Split> {
        let gaps = whole.output_tokens.checked_sub(1)? as f32;
        if !(whole.ms.is_finite() && whole.ms > 0.0) {
            return None;
        }
        if self.model.is_none() {
            let width = Target::Ttft.width() + Target::Itl.width();
            self.model = (self.kind.build)(width, &Value::Null).ok();
        }
        let model = self.model.as_mut()?;
        let split = (self.wholes >= BEFORE_SPLIT).then(|| {
            let ttft_ms = model.predict_one(&terms(row, 1.0, 0.0));
            let decode_ms = model.predict_one(&terms(row, 0.0, gaps));
            share(whole.ms, ttft_ms, (gaps > 0.0).then_some((decode_ms, gaps)))
        });
        model.learn_one(&terms(row, 1.0, gaps), whole.ms);
        self.wholes = self.wholes.saturating_add(1);
        split
    }

    /// Folds in what `other` has learned of whole answers.
    pub(crate) fn merge(&mut self, other: &Self) -> regress::Result<()> {
        match (&mut self.model, &other.model) {
            (_, None) => return Ok(()),
            (Some(mine), Some(theirs)) => mine.merge(&theirs.save())?,
            (mine @ None, Some(theirs)) => *mine = Some(theirs.copy()),
        }
        self.wholes = self.wholes.saturating_add(other.wholes);
        Ok(())
    }

    pub(crate) fn save(&self) -> Option<SavedJoint> {
        self.model.as_ref().map(|model| SavedJoint { wholes: self.wholes, model: model.save() })
    }

    pub(crate) fn restore(&mut self, saved: Option<SavedJoint>) -> Result<(), LoadError> {
        if let Some(saved) = saved {
            self.model = Some((self.kind.load)(saved.model)?);
            self.wholes = saved.wholes;
        }
        Ok(())
    }
}

/// The terms of both models, those of the TTFT taken `first` times and those of the ITL `gaps` times.
fn terms(row: &FeatureRow, first: f32, gaps: f32) -> Vec<f32> {
    let (ttft, itl) = (Target::Ttft.terms(row), Target::Itl.terms(row));
    let ttft = ttft.iter().map(|term| term * first);
    ttft.chain(itl.iter().map(|term| term * gaps)).collect()
}

/// Splits `ms` into the predicted parts. What surprises is shared by the squares of the parts: with
/// independent errors in proportion to each, that is where it most likely came from.
fn share(ms: f32, ttft_ms: f32, decode: Option<(f32, f32)>) -> Split {
    let Some((decode_ms, gaps)) = decode else { return Split { ttft_ms: ms, itl_ms: None } };
    let least = ms * LEAST_SHARE;
    let sound = |part: f32| part.max(least).min(ms * MOST_SHARES);
    let (ttft_ms, decode_ms) = (sound(ttft_ms), sound(decode_ms));
    let surprise = ms - (ttft_ms + decode_ms);
    let square = |part: f32| part * part;
    let weight = square(ttft_ms) / (square(ttft_ms) + square(decode_ms));
    let in_proportion = ms * ttft_ms / (ttft_ms + decode_ms);
    let first = (ttft_ms + surprise * weight)
        .clamp(LEAST_KEPT * in_proportion, ms - LEAST_KEPT * (ms - in_proportion));
    Split { ttft_ms: first, itl_ms: Some((ms - first) / gaps) }
}

#[cfg(test)]
mod tests {
    use features::{Column, WIDTH};

    use super::*;

    fn near(value: f32, expected: f32) {
        assert!((value - expected).abs() < 1e-3 * expected, "{value} {expected}");
    }

    #[test]
    fn a_surprise_goes_where_it_most_likely_came_from() {
        let split = share(1_210.0, 100.0, Some((1_000.0, 100.0)));
        near(split.ttft_ms, 100.0 + 110.0 / 101.0);
        near(split.ttft_ms + split.itl_ms.unwrap() * 100.0, 1_210.0);
        let even = share(300.0, 100.0, Some((100.0, 10.0)));
        near(even.ttft_ms, 150.0);
        near(even.itl_ms.unwrap(), 15.0);
        assert_eq!(share(40.0, 100.0, None), Split { ttft_ms: 40.0, itl_ms: None });
    }

    #[test]
    fn both_parts_stay_positive_and_add_up_whatever_was_predicted() {
        let parts = [-5.0, 0.0, 1e-3, 1.0, 50.0, 1e6, f32::INFINITY, f32::NAN];
        for (ttft, decode) in parts.iter().flat_map(|a| parts.map(|b| (*a, b))) {
            let split = share(60.0, ttft, Some((decode, 3.0)));
            let itl_ms = split.itl_ms.unwrap();
            assert!(split.ttft_ms > 0.0 && itl_ms > 0.0, "{ttft} {decode} {split:?}");
            near(split.ttft_ms + 3.0 * itl_ms, 60.0);
        }
    }

    #[test]
    fn answers_of_different_lengths_tell_prefill_and_decode_apart() {
        let mut joint = Joint::new(regress::kind("rls").unwrap());
        let mut off = Vec::new();
        for i in 0..600_u16 {
            let (uncached, tokens) =
                (f32::from(i * 37 % 4_000) + 100.0, u32::from(i * 91 % 300) + 1);
            let row = FeatureRow::from([0.0; WIDTH])
                .with(Column::Prompt, uncached)
                .with(Column::Uncached, uncached)
                .with(Column::Decoding, f32::from(i * 13 % 16));
            let noise = 1.0 + (f32::from(i * 17 % 21) - 10.0) / 100.0;
            let ttft_ms = 15.0 + uncached / 10.0;
            let itl_ms = 6.0 + 0.2 * f32::from(i * 13 % 16);
            let ms = (ttft_ms + itl_ms * (tokens - 1) as f32) * noise;
            let split = joint.learn(&row, Whole { ms, output_tokens: tokens });
            assert_eq!(split.is_some(), i >= 20);
            if i >= 200 {
                off.push((split.unwrap().ttft_ms / ttft_ms).ln().abs());
            }
        }
        off.sort_by(f32::total_cmp);
        assert!(off[off.len() / 2] < 0.15, "{}", off[off.len() / 2]);
    }

    #[test]
    fn what_is_not_sound_teaches_nothing() {
        let mut joint = Joint::new(regress::kind("rls").unwrap());
        let row = FeatureRow::from([0.0; WIDTH]);
        for (ms, output_tokens) in [(f32::NAN, 5), (-1.0, 5), (0.0, 5), (10.0, 0)] {
            assert_eq!(joint.learn(&row, Whole { ms, output_tokens }), None);
        }
        assert!(joint.save().is_none());
    }
}
