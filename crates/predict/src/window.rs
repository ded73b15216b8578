//! The rows that batch models are fitted to: the newest of each regime, older ones counting less.

use std::collections::VecDeque;

use features::{FeatureRow, WIDTH};
use regress::{BatchKind, Fitted, Window};

use crate::{experts::Input, key::ClassKey, regime::Regime, terms::Target};

/// Rows kept of each regime.
const PER_REGIME: usize = 1_000;
/// Labels after which a row counts half.
const HALF_LIFE: f64 = 4_000.0;
/// Labels at which the first fit is due; each further one is due after half as many again, at most
/// [`EVERY`].
const FIRST: u64 = 150;
const EVERY: u64 = 1_500;

#[derive(Clone, Copy, Debug)]
struct Kept {
    row: FeatureRow,
    label: f32,
    at: u64,
}

/// The newest labelled rows of one target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    regimes: [VecDeque<Kept>; Regime::ALL.len()],
    seen: u64,
    due: u64,
    fell_due: bool,
}

/// Rows kept over a restart, of each regime.
const SAVED_PER_REGIME: usize = 400;

/// A labelled row as it is kept over a restart: the features and the label.
pub(crate) type SavedRow = (Vec<f32>, f32);

impl Rows {
    /// The newest rows, oldest first.
    pub(crate) fn save(&self) -> Vec<SavedRow> {
        let newest = |kept: &VecDeque<Kept>| {
            let skipped = kept.len().saturating_sub(SAVED_PER_REGIME);
            kept.iter().skip(skipped).copied().collect::<Vec<_>>()
        };
        let mut rows: Vec<Kept> = self.regimes.iter().flat_map(newest).collect();
        rows.sort_by_key(|kept| kept.at);
        rows.iter().map(|kept| (kept.row.as_slice().to_vec(), kept.label)).collect()
    }

    /// Takes over saved rows; the next fit waits for new ones.
    pub(crate) fn restore(&mut self, saved: &[SavedRow]) {
        for (values, label) in saved {
            if let Ok(values) = <[f32; WIDTH]>::try_from(values.as_slice()) {
                self.push(&FeatureRow::from(values), *label);
            }
        }
        self.due = self.seen + FIRST;
    }

    /// Folds in the newest rows of `other`, taken as of the same time as these.
    pub(crate) fn merge(&mut self, other: &Self) {
        let seen = self.seen + other.seen;
        let moved = |kept: &Kept, of: u64| {
            let at = (kept.at as f64 / of.max(1) as f64 * seen as f64).round() as u64;
            Kept { at, ..*kept }
        };
        for (mine, theirs) in self.regimes.iter_mut().zip(&other.regimes) {
            let both = mine.iter().map(|kept| moved(kept, self.seen));
            let mut both: Vec<_> =
                both.chain(theirs.iter().map(|kept| moved(kept, other.seen))).collect();
            both.sort_by_key(|kept| kept.at);
            let old = both.len().saturating_sub(PER_REGIME);
            *mine = both.into_iter().skip(old).collect();
        }
        self.seen = seen;
        self.due = seen + FIRST;
    }

    pub(crate) fn push(&mut self, row: &FeatureRow, label: f32) {
        let kept = &mut self.regimes[Regime::of(row) as usize];
        if kept.len() == PER_REGIME {
            kept.pop_front();
        }
        self.seen += 1;
        kept.push_back(Kept { row: *row, label, at: self.seen });
        self.fell_due |= self.seen == self.due.max(FIRST);
    }

    /// Whether a fit has fallen due since this was last asked.
    pub(crate) fn has_fallen_due(&mut self) -> bool {
        std::mem::take(&mut self.fell_due)
    }

    /// Whether a fit is due; then the wait for the next begins.
    pub(crate) fn take_due(&mut self) -> bool {
        if self.seen < self.due.max(FIRST) {
            return false;
        }
        self.due = self.seen + (self.seen / 2).clamp(FIRST / 2, EVERY);
        true
    }

    fn all(&self) -> impl Iterator<Item = (&Kept, f32)> {
        let newest = self.seen as f64;
        self.regimes.iter().flatten().map(move |kept| {
            let age = newest - kept.at as f64;
            (kept, (-age / HALF_LIFE * std::f64::consts::LN_2).exp() as f32)
        })
    }
}

/// Whose batch models are fitted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) class: ClassKey,
    pub(crate) target: Target,
}

/// A fit that is due: plain data, to be run wherever there is time.
#[derive(Debug)]
pub struct Refit {
    place: Place,
    kinds: Vec<(&'static BatchKind, Input)>,
    rows: Vec<f32>,
    terms: Vec<f32>,
    labels: Vec<f32>,
    ratios: Vec<f32>,
    weights: Vec<f32>,
    seed: u64,
}

/// What a fit has given: one model per kind, or why there is none.
#[derive(Debug)]
pub struct Refitted {
    pub(crate) place: Place,
    pub(crate) models: Vec<Result<Box<dyn Fitted>, regress::Error>>,
}

impl Refit {
    pub(crate) fn new(
        place: Place,
        kinds: Vec<(&'static BatchKind, Input)>,
        kept: &Rows,
        base: impl Fn(&[f32]) -> f32,
    ) -> Self {
        let target = place.target;
        let mut refit = Self {
            place,
            kinds,
            rows: Vec::new(),
            terms: Vec::new(),
            labels: Vec::new(),
            ratios: Vec::new(),
            weights: Vec::new(),
            seed: kept.seen,
        };
        for (kept, weight) in kept.all() {
            let terms = target.terms(&kept.row);
            refit.ratios.push((kept.label / base(&terms)).clamp(0.05, 20.0));
            refit.rows.extend_from_slice(kept.row.as_slice());
            refit.terms.extend_from_slice(&terms);
            refit.labels.push(kept.label);
            refit.weights.push(weight);
        }
        refit
    }

    /// Fits every kind. Takes up to seconds; touches nothing but itself.
    pub fn run(self) -> Refitted {
        let target = self.place.target;
        let fit = |(kind, input): &(&'static BatchKind, Input)| {
            let (width, rows, labels) = match input {
                Input::Terms => (target.width(), &self.terms, &self.labels),
                Input::Row => (WIDTH, &self.rows, &self.labels),
                Input::Ratio => (WIDTH, &self.rows, &self.ratios),
            };
            let window = Window { width, rows, labels, weights: &self.weights };
            (kind.fit)(&window, &serde_json::Value::Null, self.seed)
        };
        let models = self.kinds.iter().map(fit).collect();
        Refitted { place: self.place, models }
    }
}

#[cfg(test)]
mod tests {
    use features::Column;

    use super::*;

    #[test]
    fn fits_are_due_often_at_first_and_seldom_later() {
        let mut rows = Rows::default();
        let row = FeatureRow::from([1.0; WIDTH]);
        let mut due = Vec::new();
        for label in 0..10_000_u64 {
            rows.push(&row, 1.0);
            if rows.has_fallen_due() {
                due.push(label + 1);
                assert!(rows.take_due());
            }
            assert!(!rows.take_due());
        }
        assert_eq!(due[0], FIRST);
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] <= EVERY));
        assert!((8..20).contains(&due.len()), "{due:?}");
    }

    #[test]
    fn a_flood_of_one_regime_does_not_push_out_another() {
        let mut rows = Rows::default();
        let idle = FeatureRow::from([0.0; WIDTH]);
        rows.push(&idle, 1.0);
        for _ in 0..3 * PER_REGIME {
            rows.push(&idle.with(Column::Decoding, 1.0), 2.0);
        }
        assert_eq!(rows.all().count(), PER_REGIME + 1);
    }
}
