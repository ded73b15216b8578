//! Elastic net: a linear model with a penalty on its weights, for relative error, fitted by linfa.
//!
//! Minimises `Σ w · ((y − ŷ) / y)²` with `ŷ = a + Σ bⱼ·zⱼ`, plus the penalty on `b` (Zou and Hastie
//! 2005). Dividing each row by its label turns that into least squares. The `z` are the features,
//! centred and scaled as weighted in that sum; then the intercept `a` has a closed form of its own
//! and goes without penalty.

use linfa::{Dataset, traits::Fit as _};
use linfa_elasticnet::ElasticNet;
use ndarray::{Array1, Array2, ShapeBuilder as _};
use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::{Value, json};
use types::read_options;

use super::{failed, within};
use crate::{
    BatchKind, Fitted, Result,
    window::{Bounds, Sound},
};

pub(crate) const KIND: BatchKind = BatchKind {
    name: "elastic-net",
    fit: |window, options, _seed| {
        let options: Options = read_options(KIND.name, options)?;
        options.check()?;
        Ok(Box::new(Plane::fit(&Sound::of(window)?, &options)?))
    },
    load: |saved| Ok(Box::new(Plane::load(saved)?)),
};

/// Labels below this share of the typical one are divided by it instead: one absurdly small label
/// is not to outweigh a window.
const LEAST_LABEL: f64 = 1e-3;
/// Spread of a feature, as a share of its mean, up to which it counts as constant.
const CONSTANT: f64 = 1e-6;
/// Share of the least label below which nothing is predicted.
const FLOOR: f64 = 0.5;

/// Tuning of one fit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Pull of the weights towards zero, `0..=100`, where 1 is a typical label per standard
    /// deviation of a feature.
    penalty: f64,
    /// Share of the penalty that lets weights vanish (L1), `0..=1`; the rest shrinks them (L2).
    l1_ratio: f64,
    /// Rounds of coordinate descent at most, `1..=10_000`.
    rounds: u32,
    /// Change per round, relative to the largest weight, that ends the descent, `1e-9..=0.1`.
    tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { penalty: 1e-3, l1_ratio: 0.5, rounds: 200, tolerance: 1e-4 }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        within(KIND.name, "penalty", self.penalty, &(0.0..=100.0))?;
        within(KIND.name, "l1_ratio", self.l1_ratio, &(0.0..=1.0))?;
        within(KIND.name, "rounds", f64::from(self.rounds), &(1.0..=10_000.0))?;
        within(KIND.name, "tolerance", self.tolerance, &(1e-9..=0.1))
    }
}

/// `intercept + Σ weights · (row − means)`. All `f32`, which text such as JSON keeps bit for bit;
/// centred, so that this costs no precision where a feature is large and hardly varies.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Plane {
    intercept: f32,
    weights: Vec<f32>,
    means: Vec<f32>,
    /// Least prediction, positive.
    floor: f32,
    /// The typical label, where no better answer is at hand.
    typical: f32,
    bounds: Bounds,
}

/// The rows divided by their labels, as far as a fit needs them.
struct Scaled {
    /// What a row is multiplied by; the squares have mean 1.
    factors: Vec<f64>,
    means: Vec<f64>,
    /// Zero for a constant feature.
    deviations: Vec<f64>,
    /// Weighted mean label.
    intercept: f64,
}

impl Scaled {
    fn of(sound: &Sound, typical: f64) -> Self {
        let count = sound.len() as f64;
        let labels = sound.labels.iter().map(|y| y.max(LEAST_LABEL * typical) / typical);
        let squares: Vec<f64> =
            sound.weights.iter().zip(labels).map(|(w, y)| w / (y * y)).collect();
        let total: f64 = squares.iter().sum();
        let mean = |value: &dyn Fn(usize) -> f64| {
            squares.iter().enumerate().map(|(at, square)| square * value(at)).sum::<f64>() / total
        };
        let x = |at: usize, j: usize| f64::from(sound.row(at)[j]);
        let means: Vec<f64> = (0..sound.width).map(|j| mean(&|at| x(at, j))).collect();
        let deviation = |(j, centre): (usize, &f64)| {
            let spread = mean(&|at| (x(at, j) - centre).powi(2)).sqrt();
            if spread > CONSTANT * centre.abs() { spread } else { 0.0 }
        };
        let deviations = means.iter().enumerate().map(deviation).collect();
        let intercept = mean(&|at| sound.labels[at]);
        let factors = squares.iter().map(|square| (square * count / total).sqrt()).collect();
        Self { factors, means, deviations, intercept }
    }

    /// Feature `j` of row `at`, centred and scaled.
    fn standard(&self, sound: &Sound, at: usize, j: usize) -> f64 {
        let centred = f64::from(sound.row(at)[j]) - self.means[j];
        if self.deviations[j] > 0.0 { centred / self.deviations[j] } else { 0.0 }
    }
}

impl Plane {
    fn fit(sound: &Sound, options: &Options) -> Result<Self> {
        let typical = sound.log_mean().exp();
        let scaled = Scaled::of(sound, typical);
        let factors = &scaled.factors;
        // Column after column, the order in which coordinate descent reads it.
        let rows = Array2::from_shape_fn((sound.len(), sound.width).f(), |(at, j)| {
            factors[at] * scaled.standard(sound, at, j)
        });
        let labels = Array1::from_shape_fn(sound.len(), |at| {
            factors[at] * (sound.labels[at] - scaled.intercept) / typical
        });
        let fitted = ElasticNet::params()
            .penalty(options.penalty)
            .l1_ratio(options.l1_ratio)
            .max_iterations(options.rounds)
            .tolerance(options.tolerance)
            .with_intercept(false)
            .fit(&Dataset::new(rows, labels))
            .map_err(|error| failed(KIND.name)(Box::new(error)))?;
        let weight = |(slope, deviation): (&f64, &f64)| {
            let weight = (typical * slope / deviation) as f32;
            if weight.is_finite() { weight } else { 0.0 }
        };
        let least = sound.labels.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Self {
            intercept: scaled.intercept as f32,
            weights: fitted.hyperplane().iter().zip(&scaled.deviations).map(weight).collect(),
            means: scaled.means.iter().map(|mean| *mean as f32).collect(),
            floor: ((FLOOR * least) as f32).max(f32::MIN_POSITIVE),
            typical: (typical as f32).max(f32::MIN_POSITIVE),
            bounds: Bounds::of(sound),
        })
    }

    fn load(saved: Value) -> Result<Self> {
        let plane: Self = serde_json::from_value(saved)?;
        let is_positive = |x: f32| x > 0.0 && x.is_finite();
        let width = plane.weights.len();
        if plane.means.len() != width || !plane.bounds.are_of(width) {
            return Err(serde_json::Error::custom("weights and bounds differ in width").into());
        }
        if !is_positive(plane.floor) || !is_positive(plane.typical) {
            return Err(serde_json::Error::custom("a plane without a positive level").into());
        }
        Ok(plane)
    }
}

impl Fitted for Plane {
    fn predict_one(&self, row: &[f32]) -> f32 {
        if row.len() != self.weights.len() {
            return self.typical;
        }
        let mut sum = f64::from(self.intercept);
        for ((x, mean), weight) in row.iter().zip(&self.means).zip(&self.weights) {
            sum += f64::from(*weight) * (f64::from(*x) - f64::from(*mean));
        }
        let estimate = if sum.is_nan() { f64::from(self.typical) } else { sum };
        (estimate.min(f64::from(f32::MAX)) as f32).max(self.floor)
    }

    fn covers(&self, row: &[f32]) -> bool {
        self.bounds.cover(row)
    }

    fn save(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;

    fn fit(rows: &[f32], labels: &[f32], options: Options) -> Plane {
        let weights = vec![1.0; labels.len()];
        let width = rows.len() / labels.len();
        let window = Window { width, rows, labels, weights: &weights };
        Plane::fit(&Sound::of(&window).unwrap(), &options).unwrap()
    }

    /// `3·x + 5`, over three powers of ten, beside a feature that never changes.
    #[test]
    fn recovers_a_plane_without_noise() {
        let rows: Vec<f32> = (0..300).flat_map(|i| [(i * i) as f32 / 100.0, 7.0]).collect();
        let labels: Vec<f32> = rows.chunks(2).map(|row| 3.0 * row[0] + 5.0).collect();
        let plane = fit(&rows, &labels, Options { penalty: 0.0, ..Options::default() });
        for x in [0.0_f32, 1.0, 100.0, 10_000.0] {
            let expected = 3.0 * x + 5.0;
            let predicted = plane.predict_one(&[x, 7.0]);
            assert!((predicted / expected - 1.0).abs() < 0.01, "{x}: {predicted}");
        }
    }

    #[test]
    fn a_falling_line_never_predicts_nothing_or_less() {
        let rows: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let labels: Vec<f32> = rows.iter().map(|x| 200.0 - x).collect();
        let plane = fit(&rows, &labels, Options::default());
        assert!((plane.predict_one(&[1e6]) - 50.5).abs() < 1e-3);
    }

    #[test]
    fn a_feature_without_meaning_gets_no_weight() {
        let rows: Vec<f32> = (0..400).flat_map(|i| [(i / 2) as f32, (i % 2) as f32]).collect();
        let labels: Vec<f32> = rows.chunks(2).map(|row| row[0] + 10.0).collect();
        let plane =
            fit(&rows, &labels, Options { penalty: 0.1, l1_ratio: 1.0, ..Options::default() });
        assert!(plane.weights[0] > 0.5 && plane.weights[1].abs() < 1e-9, "{:?}", plane.weights);
    }
}
