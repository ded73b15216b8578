//! How far a prediction may be trusted: whether its row lies where rows were learned, whether promises were
//! kept lately, and whether what it looks at is fresh.

use features::{Column, FeatureRow};
use serde::{Deserialize, Serialize};

use crate::terms::TTFT_WIDTH;

/// Age of a scrape up to which a row is fresh, in milliseconds.
const FRESH_MS: f32 = 10_000.0;
/// Times what was learned that a term may be.
const REACH: f32 = 2.0;
/// Labels from which a range is known.
const RANGE_LABELS: u32 = 50;
/// Promises over which they are judged, and how many there must be before it counts.
const MEMORY: f32 = 100.0;
const ENOUGH: f32 = 40.0;
/// Promises are broken where fewer values than this come out under their p90 and the mean error (log) is
/// larger than this: a factor of three. Less is no reason to fall: with a threshold of half and 0.9, a
/// queue that formed threw a busy pool onto scorers, which cost it 10 to 20 points of attainment
/// (Azure conversation trace at nine times its rate).
const LEAST_COVERED: f32 = 0.4;
const MOST_ERROR: f32 = 1.1;

/// How far a prediction may be trusted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Trust {
    /// Its row lies where rows were learned, or not far beyond.
    pub in_range: bool,
    /// Promises to rows like it were kept lately, by and large.
    pub calibrated: bool,
    /// What the endpoint's page told is recent.
    pub fresh: bool,
}

impl Default for Trust {
    fn default() -> Self {
        Self { in_range: true, calibrated: true, fresh: true }
    }
}

impl Trust {
    pub(crate) fn of(row: &FeatureRow, in_range: bool, calibrated: bool) -> Self {
        Self { in_range, calibrated, fresh: row.get(Column::SnapshotAge) <= FRESH_MS }
    }

    /// Why it must not decide; `None` if it may.
    pub fn doubt(self) -> Option<&'static str> {
        if !self.calibrated {
            return Some("predictions have been far off lately");
        }
        (!self.in_range && !self.fresh).then_some("load unlike any learned, and no fresh metrics")
    }
}

/// The largest value of each term that was learned.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Reach([f32; TTFT_WIDTH]);

impl Reach {
    pub(crate) fn learn(&mut self, terms: &[f32]) {
        for (reach, term) in self.0.iter_mut().zip(terms) {
            *reach = reach.max(*term);
        }
    }

    /// The largest values.
    pub(crate) fn terms(&self) -> &[f32] {
        &self.0
    }

    /// Whether `terms` lie within, after `labels` labels.
    pub(crate) fn covers(&self, terms: &[f32], labels: u32) -> bool {
        labels < RANGE_LABELS
            || terms.iter().zip(&self.0).all(|(term, reach)| *term <= REACH * reach + 1.0)
    }
}

/// How promises have been kept lately.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Kept {
    judged: f32,
    covered: f32,
    error: f32,
}

impl Kept {
    /// A value came out at `residual` (log) from its point, under its promised p90 or not.
    pub(crate) fn judge(&mut self, residual: f32, is_covered: bool) {
        self.judged = (self.judged + 1.0).min(MEMORY);
        self.covered += (f32::from(u8::from(is_covered)) - self.covered) / self.judged;
        self.error += (residual.abs().min(4.0) - self.error) / self.judged;
    }

    pub(crate) fn is_calibrated(&self) -> bool {
        self.judged < ENOUGH || (self.covered >= LEAST_COVERED || self.error <= MOST_ERROR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_promises_cost_trust_and_kept_ones_win_it_back() {
        let mut kept = Kept::default();
        for _ in 0..39 {
            kept.judge(3.0, false);
            assert!(kept.is_calibrated(), "too few to tell");
        }
        kept.judge(3.0, false);
        assert!(!kept.is_calibrated());
        for _ in 0..300 {
            kept.judge(0.1, true);
        }
        assert!(kept.is_calibrated());
    }

    #[test]
    fn a_load_far_beyond_what_was_learned_is_out_of_range() {
        let mut reach = Reach::default();
        reach.learn(&[1.0, 20.0]);
        assert!(reach.covers(&[1.0, 900.0], 10), "no range is known yet");
        assert!(reach.covers(&[1.0, 40.0], 100));
        assert!(!reach.covers(&[1.0, 900.0], 100));
    }
}
