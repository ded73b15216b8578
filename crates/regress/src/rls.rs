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

use crate::{Error, Frozen, Kind, Regressor, Result, Scale, is_sound};

pub(crate) const KIND: Kind = Kind {
    name: "rls",
    build: |width, options| Ok(Box::new(Rls::new(width, read_options(KIND.name, options)?))),
    load: |saved| Ok(Box::new(serde_json::from_value::<Rls>(saved)?)),
};

/// Rounds of coordinate descent per label.
const ROUNDS: usize = 3;
/// Most rounds after a merge, where the weights may stand far from where they belong.
const MERGE_ROUNDS: usize = 2_000;
/// Change of every weight, as a share of it, below which such rounds end.
const SETTLED: f64 = 1e-9;
/// Relative surprise beyond which a label counts less, as in Huber's loss.
const SURPRISE: f64 = 0.7;
/// Labels before which no label counts less.
const BURN_IN: f64 = 40.0;

/// Tuning of one RLS model.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
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
pub(crate) struct Rls {
    options: Options,
    labels: f64,
    weights: Vec<f64>,
    information: Vec<f64>,
    vector: Vec<f64>,
}

impl Rls {
    pub(crate) fn new(width: usize, options: Options) -> Self {
        Self {
            options,
            labels: 0.0,
            weights: vec![0.0; width],
            information: vec![0.0; width * width],
            vector: vec![0.0; width],
        }
    }

    /// Labels that its information weighs, `Σ λ^age`; at least one.
    fn weighed(&self) -> f64 {
        let kept = self.options.forgetting;
        let weighed =
            if kept < 1.0 { (1.0 - kept.powf(self.labels)) / (1.0 - kept) } else { self.labels };
        weighed.max(1.0)
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

    /// Why `other` cannot be added to this one.
    fn differs_from(&self, other: &Self) -> Option<String> {
        let width = self.weights.len();
        if other.weights.len() != width {
            return Some(format!("one has {width} terms and the other {}", other.weights.len()));
        }
        if other.information.len() != width * width || other.vector.len() != width {
            return Some("the other has lost a part of its state".to_owned());
        }
        if other.options != self.options {
            return Some(format!("{:?} and {:?}", self.options, other.options));
        }
        let numbers = other.information.iter().chain(&other.vector).chain([&other.labels]);
        let is_sound = numbers.into_iter().all(|number| number.is_finite());
        (!is_sound).then(|| "the other has a value that is no number".to_owned())
    }

    /// Descends until the weights stand still.
    fn settle(&mut self) {
        for _ in 0..MERGE_ROUNDS {
            let before = self.weights.clone();
            self.descend();
            let mut pairs = before.iter().zip(&self.weights);
            if pairs.all(|(old, new)| (new - old).abs() <= SETTLED * new.abs()) {
                return;
            }
        }
    }

    fn descend(&mut self) {
        descend(&mut self.weights, &self.information, &self.vector, self.options.ridge);
    }

    pub(crate) fn width(&self) -> usize {
        self.weights.len()
    }

    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Information matrix, vector, and the labels that they weigh.
    pub(crate) fn sums(&self) -> (&[f64], &[f64], f64) {
        (&self.information, &self.vector, self.weighed())
    }

    pub(crate) fn ridge(&self) -> f64 {
        self.options.ridge
    }
}

/// One round of coordinate descent on `½ θᵀ(A + R)θ − bᵀθ`, `θ ≥ 0`, with `R` the `ridge` share of the
/// diagonal of `A`.
pub(crate) fn descend(weights: &mut [f64], information: &[f64], vector: &[f64], ridge: f64) {
    let width = weights.len();
    for j in 0..width {
        let row = &information[j * width..(j + 1) * width];
        let diagonal = row[j] * (1.0 + ridge);
        if diagonal <= 0.0 {
            continue;
        }
        let others: f64 =
            row.iter().zip(&*weights).map(|(a, w)| a * w).sum::<f64>() - row[j] * weights[j];
        weights[j] = ((vector[j] - others) / diagonal).max(0.0);
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

    fn freeze(&self) -> Frozen {
        Frozen::linear(&self.weights)
    }

    fn soften(&mut self, labels: f64) {
        let share = labels / self.weighed();
        if share < 1.0 {
            for value in self.information.iter_mut().chain(&mut self.vector) {
                *value *= share;
            }
            self.labels = labels;
        }
    }

    /// With labels `s·y` and features `d_j·x_j`, `A` becomes `A_ij·d_i·d_j / s²`, `b` becomes `b_i·d_i / s`
    /// and the weights that solve them `θ_j·s / d_j`.
    fn start_from(&mut self, saved: &Value, scale: &Scale) -> Result<bool> {
        let other = Self::deserialize(saved)?;
        let width = self.weights.len();
        let sizes = [other.weights.len(), other.vector.len(), scale.row.len()];
        if let Some(saved) = sizes.into_iter().find(|size| *size != width) {
            return Err(Error::Width { saved, width });
        }
        if other.information.len() != width * width {
            return Err(Error::Width { saved: other.information.len() / width.max(1), width });
        }
        let share = (scale.labels / other.weighed()).clamp(0.0, 1.0);
        let factor = |j: usize| scale.row[j] / scale.label;
        for i in 0..width {
            for j in 0..width {
                let at = i * width + j;
                self.information[at] = other.information[at] * share * factor(i) * factor(j);
            }
            self.vector[i] = other.vector[i] * share * factor(i);
            self.weights[i] = other.weights[i] / factor(i);
        }
        self.labels = scale.labels.min(other.labels);
        Ok(true)
    }

    /// Adds information and vector, and solves for the weights anew: without forgetting, and while
    /// no label counts less, it is as if one model had learned the rows of both.
    fn merge(&mut self, saved: &Value) -> Result<()> {
        let other = Self::deserialize(saved)?;
        if let Some(difference) = self.differs_from(&other) {
            return Err(Error::Merge(difference));
        }
        let add = |mine: &mut [f64], theirs: &[f64]| {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        };
        add(&mut self.information, &other.information);
        add(&mut self.vector, &other.vector);
        self.labels += other.labels;
        self.settle();
        Ok(())
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
    fn what_starts_from_another_predicts_on_its_scale_and_yields_to_labels() {
        let mut known = Rls::new(2, Options { forgetting: 1.0, ridge: 0.0 });
        for i in 0..1_000_u16 {
            let row = [f32::from(i % 7), 1.0];
            known.learn_one(&row, 3.0 * row[0] + 5.0);
        }
        let mut fresh = Rls::new(2, Options::default());
        // Twice the time; the first feature is a time too, and doubles with it.
        let scale = Scale { labels: 10.0, label: 2.0, row: vec![2.0, 1.0] };
        assert!(fresh.start_from(&known.save(), &scale).unwrap());
        assert!((fresh.predict_one(&[8.0, 1.0]) - 34.0).abs() < 0.1);
        for i in 0..200_u16 {
            let row = [f32::from(i % 7), 1.0];
            fresh.learn_one(&row, 6.0 * row[0] + 20.0);
        }
        assert!((fresh.predict_one(&[8.0, 1.0]) / 68.0 - 1.0).abs() < 0.2);
        let narrow = Rls::new(1, Options::default()).save();
        assert!(fresh.start_from(&narrow, &scale).is_err());
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
