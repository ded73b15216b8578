//! The newest residuals of a target, from which quantiles are read at once.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::outputs::newest_of;

/// Residuals kept.
pub(crate) const WINDOW: usize = 256;

/// The newest residuals, in the order in which they came and in that of their size: every label asks for
/// several quantiles, and sorting for each cost far more than all that a label teaches.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "Ring", into = "Ring")]
pub(crate) struct Residuals {
    ring: Ring,
    /// Ascending.
    sorted: Vec<f32>,
}

/// What of them is saved.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Ring {
    values: Vec<f32>,
    /// Place of the next one, that of the oldest once there are [`WINDOW`].
    next: usize,
}

impl From<Residuals> for Ring {
    fn from(residuals: Residuals) -> Self {
        residuals.ring
    }
}

impl From<Ring> for Residuals {
    fn from(mut ring: Ring) -> Self {
        ring.values.truncate(WINDOW);
        ring.next %= WINDOW;
        let mut sorted = ring.values.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        Self { ring, sorted }
    }
}

impl FromIterator<f32> for Residuals {
    /// The first [`WINDOW`], oldest first.
    fn from_iter<T: IntoIterator<Item = f32>>(residuals: T) -> Self {
        let values: Vec<f32> = residuals.into_iter().take(WINDOW).collect();
        let next = values.len();
        Ring { values, next }.into()
    }
}

impl Residuals {
    /// Residuals held.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Adds the newest; the oldest goes once there are [`WINDOW`].
    pub(crate) fn push(&mut self, residual: f32) {
        let Ring { values, next } = &mut self.ring;
        if values.len() < WINDOW {
            values.push(residual);
        } else {
            let oldest = std::mem::replace(&mut values[*next], residual);
            if let Ok(at) = self.sorted.binary_search_by(|x| x.total_cmp(&oldest)) {
                self.sorted.remove(at);
            }
        }
        *next = (*next + 1) % WINDOW;
        let at = self.sorted.partition_point(|x| x.total_cmp(&residual).is_lt());
        self.sorted.insert(at, residual);
    }

    /// The newest of both, in turn.
    #[must_use]
    pub(crate) fn merged(&self, other: &Self) -> Self {
        newest_of(&self.in_order(), &other.in_order(), WINDOW).into_iter().collect()
    }

    /// Oldest first.
    fn in_order(&self) -> VecDeque<f32> {
        let Ring { values, next } = &self.ring;
        let (newer, older) = values.split_at((*next).min(values.len()));
        older.iter().chain(newer).copied().collect()
    }

    /// Quantile of `level`: rank `⌈q·(n + 1)⌉` of `n` residuals, which is exceeded by `1 − q` of the next
    /// where past and future are exchangeable; zero of none.
    pub(crate) fn quantile(&self, level: f32) -> f32 {
        let count = self.sorted.len();
        let rank = (level * (count as f32 + 1.0)).ceil() as usize;
        self.sorted.get(rank.clamp(1, count.max(1)) - 1).copied().unwrap_or(0.0)
    }

    /// Median absolute relative error; `None` before the first residual.
    pub(crate) fn median_error(&self) -> Option<f32> {
        let mut errors: Vec<f32> = self.sorted.iter().map(|r| (r.exp() - 1.0).abs()).collect();
        errors.sort_unstable_by(f32::total_cmp);
        errors.get(errors.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values in no order, some of them twice.
    fn value(i: u32) -> f32 {
        (i * 7_919 % 301) as f32 / 50.0 - 3.0
    }

    /// The rank among `values`, sought anew.
    fn sought(values: impl Iterator<Item = f32>, level: f32) -> f32 {
        let mut sorted: Vec<f32> = values.collect();
        sorted.sort_by(f32::total_cmp);
        let rank = (level * (sorted.len() as f32 + 1.0)).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    }

    #[test]
    fn quantiles_are_those_of_the_newest_values_however_many_came() {
        let mut residuals = Residuals::default();
        assert!(residuals.quantile(0.9).abs() < f32::EPSILON);
        for i in 0..1_000 {
            residuals.push(value(i));
            for level in [0.01, 0.5, 0.9, 0.99] {
                let newest = (i.saturating_sub(WINDOW as u32 - 1)..=i).map(value);
                let expected = sought(newest, level);
                assert_eq!(residuals.quantile(level).to_bits(), expected.to_bits(), "{i} {level}");
            }
        }
        assert_eq!(residuals.len(), WINDOW);
    }

    #[test]
    fn what_is_saved_goes_on_as_it_was() {
        for count in [3, 256, 700] {
            let mut residuals: Residuals = Residuals::default();
            (0..count).for_each(|i| residuals.push(value(i)));
            let saved = serde_json::to_string(&residuals).unwrap();
            let mut restored: Residuals = serde_json::from_str(&saved).unwrap();
            for i in 0..100 {
                residuals.push(value(i + 5));
                restored.push(value(i + 5));
                assert_eq!(restored.quantile(0.9).to_bits(), residuals.quantile(0.9).to_bits());
            }
        }
    }

    #[test]
    fn two_windows_make_one_of_the_newest_of_both() {
        let both = |mine: u32, theirs: u32| {
            let of = |count, at: f32| (0..count).map(|_| at).collect::<Residuals>();
            of(mine, 1.0).merged(&of(theirs, 2.0))
        };
        assert_eq!(both(3, 2).len(), 5);
        let merged = both(256, 256);
        assert_eq!(merged.len(), WINDOW);
        assert!((merged.quantile(0.25) - 1.0).abs() < 1e-6);
        assert!((merged.quantile(0.75) - 2.0).abs() < 1e-6);
    }
}
