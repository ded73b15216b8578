//! Recursive least squares on non-negative weights, with a forgetting factor, for relative error.
//!
//! Minimises `Σ λ^age · ((y − θ·x) / y)² + ridge`, subject to `θ ≥ 0`. Latency terms are times that add
//! up, so a negative weight is never physics, only collinearity; without the bound, a load that was
//! never seen may be predicted faster than an idle engine. The state is the information matrix
//! `A = Σ w·x·xᵀ` and vector `b = Σ w·x·y` (so two states of like options add up), and the weights
//! follow by a few rounds of coordinate descent from where they stood. A label costs `O(width²)`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::read_options;

use crate::{Kind, Regressor, is_sound};

pub(crate) const KIND: Kind = Kind {
    name: "rls",
    build: |width, options| Ok(Box::new(Rls::new(width, read_options(KIND.name, options)?))),
    load: |saved| Ok(Box::new(serde_json::from_value::<Rls>(saved)?)),
};

/// Rounds of coordinate descent per label.
const ROUNDS: usize = 3;
/// Relative surprise beyond which a label counts less, as in Huber's loss.
const SURPRISE: f64 = 0.7;
/// Labels before which no label counts less.
const BURN_IN: f64 = 40.0;

/// Tuning of one RLS model.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Weight of the past, `0.9..=1.0`; lower follows drift faster.
    forgetting: f64,
    /// Pull towards zero, as a share of what each term has been seen to contribute.
    ridge: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { forgetting: 0.998, ridge: 3e-3 }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Rls {
    options: Options,
    labels: f64,
    weights: Vec<f64>,
    information: Vec<f64>,
    vector: Vec<f64>,
}

impl Rls {
    fn new(width: usize, options: Options) -> Self {
        Self {
            options,
            labels: 0.0,
            weights: vec![0.0; width],
            information: vec![0.0; width * width],
            vector: vec![0.0; width],
        }
    }

    /// A label far from its prediction counts less: a stalled engine must not bend the plane.
    fn trust(&self, row: &[f32], label: f64) -> f64 {
        if self.labels < BURN_IN {
            return 1.0;
        }
        let predicted = f64::from(self.predict_one(row)).max(1e-9);
        let surprise = (label / predicted).ln().abs();
        (SURPRISE / surprise).min(1.0)
    }

    /// One round of coordinate descent on `½ θᵀ(A + R)θ − bᵀθ`, `θ ≥ 0`.
    fn descend(&mut self) {
        let width = self.weights.len();
        for j in 0..width {
            let row = &self.information[j * width..(j + 1) * width];
            let diagonal = row[j] * (1.0 + self.options.ridge);
            if diagonal <= 0.0 {
                continue;
            }
            let others: f64 = row.iter().zip(&self.weights).map(|(a, w)| a * w).sum::<f64>()
                - row[j] * self.weights[j];
            self.weights[j] = ((self.vector[j] - others) / diagonal).max(0.0);
        }
    }
}

impl Regressor for Rls {
    fn predict_one(&self, row: &[f32]) -> f32 {
        self.weights.iter().zip(row).map(|(w, x)| w * f64::from(*x)).sum::<f64>() as f32
    }

    fn learn_one(&mut self, row: &[f32], label: f32) {
        let width = self.weights.len();
        if !is_sound(row, label) || row.len() != width {
            return;
        }
        let label = f64::from(label);
        let weight = self.trust(row, label) / (label * label);
        let keep = self.options.forgetting;
        for (i, x_i) in row.iter().enumerate() {
            let scaled = weight * f64::from(*x_i);
            for (a, x_j) in self.information[i * width..(i + 1) * width].iter_mut().zip(row) {
                *a = keep * *a + scaled * f64::from(*x_j);
            }
            self.vector[i] = keep * self.vector[i] + scaled * label;
        }
        self.labels += 1.0;
        for _ in 0..ROUNDS {
            self.descend();
        }
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn copy(&self) -> Box<dyn Regressor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovers_a_plane_without_noise() {
        let mut model = Rls::new(2, Options { ridge: 0.0, ..Options::default() });
        for i in 0..400_u16 {
            let row = [f32::from(i % 7), 1.0];
            model.learn_one(&row, 3.0 * row[0] + 5.0);
        }
        assert!((model.predict_one(&[10.0, 1.0]) - 35.0).abs() < 0.1);
    }

    #[test]
    fn more_of_a_cost_never_predicts_less_time() {
        let mut model = Rls::new(2, Options::default());
        for i in 0..300_u16 {
            let x = f32::from(i % 10);
            model.learn_one(&[1.0, x], 20.0 - x);
        }
        assert!(model.predict_one(&[1.0, 1_000.0]) >= model.predict_one(&[1.0, 1.0]));
    }
}
