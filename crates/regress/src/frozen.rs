//! A model as it predicts at one instant: without what only learning needs, so that it is cheap to make,
//! to keep and to ask.

use crate::Regressor;

/// What a model predicts from now on, whatever it learns.
#[derive(Debug)]
pub enum Frozen {
    /// The same for every row.
    Constant(f32),
    /// The row weighed, one weight per feature.
    Linear(Box<[f32]>),
    /// A model that is neither.
    Whole(Box<dyn Regressor>),
}

impl Frozen {
    /// A linear model of these weights.
    pub(crate) fn linear(weights: &[f64]) -> Self {
        Self::Linear(
            weights.iter().map(|weight| (*weight as f32).clamp(f32::MIN, f32::MAX)).collect(),
        )
    }

    /// The estimate for `row`, in single precision.
    #[inline]
    pub fn predict_one(&self, row: &[f32]) -> f32 {
        match self {
            Self::Constant(value) => *value,
            Self::Linear(weights) => dot(weights, row),
            Self::Whole(model) => model.predict_one(row),
        }
    }
}

/// The row weighed. Four sums side by side wait for each other a quarter as long as one.
#[inline]
pub(crate) fn dot(weights: &[f32], row: &[f32]) -> f32 {
    let ((weights, last_weights), (row, last_row)) =
        (weights.as_chunks::<4>(), row.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (weights, row) in weights.iter().zip(row) {
        for at in 0..4 {
            sums[at] += weights[at] * row[at];
        }
    }
    let last: f32 = last_weights.iter().zip(last_row).map(|(w, x)| w * x).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + last
}
