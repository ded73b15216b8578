//! The rows a batch model is fitted to: cleaned once, and remembered as the range it may be trusted
//! in.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, is_sound};

/// Sound rows below which no batch model is fitted.
pub const LEAST_ROWS: usize = 60;
/// Share of a feature's span that a row may lie outside it and still count as covered.
const SPAN_MARGIN: f32 = 0.05;
/// The same as a share of the bound itself, for features that hardly vary.
const BOUND_MARGIN: f32 = 1e-3;

/// Labelled rows of one width. Rows that may not be learned are left out of a fit: those with a
/// value that is not finite, and those whose label or weight is not finite and positive.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Features per row.
    pub width: usize,
    /// The rows, one after the other: `width` values each.
    pub rows: &'a [f32],
    /// One positive label per row, or a positive ratio for a model of residuals.
    pub labels: &'a [f32],
    /// How much each row counts, relative to the others.
    pub weights: &'a [f32],
}

/// What is left of a window: sound rows only, and no fewer than [`LEAST_ROWS`].
#[derive(Debug)]
pub(crate) struct Sound {
    pub(crate) width: usize,
    /// Row after row.
    pub(crate) rows: Vec<f32>,
    pub(crate) labels: Vec<f64>,
    pub(crate) weights: Vec<f64>,
}

impl Sound {
    pub(crate) fn of(window: &Window<'_>) -> Result<Self> {
        let Window { width, rows, labels, weights } = *window;
        let fits = labels.len().checked_mul(width) == Some(rows.len())
            && weights.len() == labels.len()
            && (1..=usize::from(u16::MAX)).contains(&width);
        if !fits {
            let (values, labels, weights) = (rows.len(), labels.len(), weights.len());
            return Err(Error::Shape { width, values, labels, weights });
        }
        let mut sound = Self { width, rows: vec![], labels: vec![], weights: vec![] };
        for ((row, label), weight) in rows.chunks_exact(width).zip(labels).zip(weights) {
            if is_sound(row, *label) && weight.is_finite() && *weight > 0.0 {
                sound.rows.extend_from_slice(row);
                sound.labels.push(f64::from(*label));
                sound.weights.push(f64::from(*weight));
            }
        }
        if sound.len() < LEAST_ROWS {
            return Err(Error::TooFewRows { rows: sound.len(), least: LEAST_ROWS });
        }
        Ok(sound)
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn row(&self, at: usize) -> &[f32] {
        &self.rows[at * self.width..(at + 1) * self.width]
    }

    /// The weighted mean of the logarithms of the labels.
    pub(crate) fn log_mean(&self) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let logs = self.labels.iter().zip(&self.weights).map(|(y, w)| w * y.ln());
        logs.sum::<f64>() / total
    }

    /// The features column by column: the rows of `which`, in that order.
    pub(crate) fn columns(&self, which: &[usize]) -> Vec<f32> {
        let column = |j| which.iter().map(move |at| self.rows[at * self.width + j]);
        (0..self.width).flat_map(column).collect()
    }

    /// As many row numbers as there are rows, each as often as its weight asks for, for models that
    /// know no weights.
    ///
    /// Systematic resampling (Kitagawa 1996): one random offset, then a comb of equal steps through
    /// the summed weights. No row comes more than one time off its exact share, and rows of equal
    /// weight come once each.
    pub(crate) fn resampled(&self, seed: u64) -> Vec<usize> {
        let step = self.weights.iter().sum::<f64>() / self.len() as f64;
        // Away from the ends, where rounding of the sums would cost a row its turn.
        let offset = 0.25 + 0.5 * StdRng::seed_from_u64(seed).random::<f64>();
        let mut drawn = Vec::with_capacity(self.len());
        let mut reached = 0.0;
        for (at, weight) in self.weights.iter().enumerate() {
            reached += weight;
            while drawn.len() < self.len() && (drawn.len() as f64 + offset) * step <= reached {
                drawn.push(at);
            }
        }
        drawn
    }
}

/// The least and largest value of each feature, widened by a margin.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Bounds {
    low: Vec<f32>,
    high: Vec<f32>,
}

impl Bounds {
    pub(crate) fn of(sound: &Sound) -> Self {
        let mut low = sound.row(0).to_vec();
        let mut high = low.clone();
        for at in 1..sound.len() {
            for (j, x) in sound.row(at).iter().enumerate() {
                low[j] = low[j].min(*x);
                high[j] = high[j].max(*x);
            }
        }
        for (low, high) in low.iter_mut().zip(&mut high) {
            // Halves first: a span of two huge bounds is not to overflow.
            let span = 2.0 * SPAN_MARGIN * (*high / 2.0 - *low / 2.0);
            let margin = span.max(BOUND_MARGIN * low.abs().max(high.abs()));
            *low = (*low - margin).max(f32::MIN);
            *high = (*high + margin).min(f32::MAX);
        }
        Self { low, high }
    }

    /// Whether these are bounds of `width` features.
    pub(crate) fn are_of(&self, width: usize) -> bool {
        self.low.len() == width && self.high.len() == width
    }

    pub(crate) fn cover(&self, row: &[f32]) -> bool {
        // All are looked at, since a branch for each takes longer: most rows are covered. What is no number
        // lies outside.
        let both = row.iter().zip(&self.low).zip(&self.high);
        let outside = both.filter(|((x, low), high)| !(*low..=*high).contains(x)).count();
        outside == 0 && row.len() == self.low.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(weights: &[f32]) -> Sound {
        let rows: Vec<f32> = (0..weights.len()).map(|i| i as f32).collect();
        let labels = vec![1.0; weights.len()];
        Sound::of(&Window { width: 1, rows: &rows, labels: &labels, weights }).unwrap()
    }

    #[test]
    fn rows_of_equal_weight_are_drawn_once_each() {
        for seed in 0..50 {
            let drawn = window(&[0.1; 997]).resampled(seed);
            assert_eq!(drawn, (0..997).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_row_is_drawn_as_often_as_its_weight_asks_for() {
        let mut weights = [1.0; 100];
        weights[..10].fill(11.0);
        let drawn = window(&weights).resampled(3);
        let heavy = drawn.iter().filter(|at| **at < 10).count();
        assert_eq!(drawn.len(), 100);
        assert!((54..=56).contains(&heavy), "{heavy}");
    }

    #[test]
    fn unsound_rows_are_left_out() {
        let rows: Vec<f32> = (0..100).map(|i| if i == 3 { f32::NAN } else { 1.0 }).collect();
        let mut labels = [1.0; 100];
        labels[7] = 0.0;
        labels[8] = f32::INFINITY;
        let mut weights = [1.0; 100];
        weights[9] = -1.0;
        let window = Window { width: 1, rows: &rows, labels: &labels, weights: &weights };
        assert_eq!(Sound::of(&window).unwrap().len(), 96);
    }

    #[test]
    fn slices_that_do_not_fit_together_are_refused() {
        let window =
            Window { width: 2, rows: &[1.0; 199], labels: &[1.0; 100], weights: &[1.0; 100] };
        assert!(matches!(Sound::of(&window), Err(Error::Shape { .. })));
    }
}
