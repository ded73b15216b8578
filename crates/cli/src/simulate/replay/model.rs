//! The reward model of the direct method: the chance to keep the objective that a row's own prediction
//! tells, set right by how the log's choices came out before.
//!
//! Forward cross-fitting: time is cut into folds, and a row is judged by what the folds before its own have
//! shown, so that its own luck has no part in it. With `p` the chance by the predicted quantiles, TTFT and
//! ITL taken as independent, the model is logistic in `logit p` (Platt scaling), drawn towards `p` itself
//! where there is little to go by.

use predict::Prediction;
use types::Slo;

/// Folds of time.
const FOLDS: usize = 20;
/// Rows that the wish to leave `p` as it is weighs.
const PRIOR_ROWS: f64 = 2.0;
/// Newton's method is at its end long before.
const STEPS: usize = 30;
/// Chances are taken as no nearer to 0 and 1.
const EDGE: f64 = 1e-4;

/// Chance, by the quantiles of `prediction`, to keep `slo`.
pub(super) fn chance(prediction: &Prediction, slo: Slo) -> f64 {
    let ttft = slo.ttft.map_or(1.0, |limit| prediction.ttft.chance_within(limit));
    let itl = slo.itl.map_or(1.0, |limit| prediction.itl.chance_within(limit));
    f64::from(ttft) * f64::from(itl)
}

fn logit(p: f64) -> f64 {
    let p = p.clamp(EDGE, 1.0 - EDGE);
    (p / (1.0 - p)).ln()
}

/// What one fold goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    shift: f64,
    slope: f64,
    /// Share of the rows before that kept their objective.
    mean: f64,
}

impl Default for Fit {
    /// Before anything has been seen.
    fn default() -> Self {
        Self { shift: 0.0, slope: 1.0, mean: 0.5 }
    }
}

impl Fit {
    /// Chance to keep the objective where the prediction tells `p`; where there is none, that of all.
    pub(super) fn chance(&self, p: Option<f64>) -> f64 {
        p.map_or(self.mean, |p| sigmoid(self.shift + self.slope * logit(p)))
    }

    fn of(rows: &[(Option<f64>, bool)]) -> Self {
        if rows.is_empty() {
            return Self::default();
        }
        let met = rows.iter().filter(|(_, met)| *met).count() as f64;
        let points: Vec<(f64, f64)> = rows
            .iter()
            .filter_map(|(p, met)| Some((logit((*p)?), f64::from(u8::from(*met)))))
            .collect();
        let (mut shift, mut slope) = (0.0, 1.0);
        for _ in 0..STEPS {
            // Gradient and curvature of the penalised likelihood.
            let (mut g0, mut g1) = (-PRIOR_ROWS * shift, -PRIOR_ROWS * (slope - 1.0));
            let (mut h00, mut h01, mut h11) = (PRIOR_ROWS, 0.0, PRIOR_ROWS);
            for (x, y) in &points {
                let p = sigmoid(shift + slope * x);
                let weight = p * (1.0 - p);
                g0 += y - p;
                g1 += (y - p) * x;
                h00 += weight;
                h01 += weight * x;
                h11 += weight * x * x;
            }
            let det = h00 * h11 - h01 * h01;
            let (d0, d1) = ((h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det);
            // Far from the end a whole step may go too far.
            let scale = 1.0 / (d0.abs() + d1.abs()).max(1.0);
            shift += scale * d0;
            slope = (slope + scale * d1).max(0.0);
            if d0.abs() + d1.abs() < 1e-9 {
                break;
            }
        }
        Self { shift, slope, mean: met / rows.len() as f64 }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The fit that each of `rows` (chance by its prediction, and whether the objective was kept), in the order
/// of time, is judged by.
pub(super) fn forward_fits(rows: &[(Option<f64>, bool)]) -> Vec<Fit> {
    let fold = rows.len().div_ceil(FOLDS).max(1);
    let starts = (0..rows.len()).step_by(fold);
    starts
        .flat_map(|start| {
            let count = fold.min(rows.len() - start);
            std::iter::repeat_n(Fit::of(&rows[..start]), count)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use predict::Quantiles;
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
    use types::Millis;

    use super::*;

    #[test]
    fn the_chance_is_that_of_both_latencies() {
        let prediction = Prediction {
            ttft: Quantiles([100.0, 200.0, 250.0, 400.0]),
            itl: Quantiles([10.0, 20.0, 25.0, 40.0]),
            ..Prediction::default()
        };
        let slo = Slo { ttft: Millis::new(200.0), itl: Millis::new(20.0) };
        assert!((chance(&prediction, slo) - 0.81).abs() < 1e-3);
        assert!((chance(&prediction, Slo { itl: None, ..slo }) - 0.9).abs() < 1e-3);
    }

    #[test]
    fn a_prediction_that_promises_too_much_is_set_right_by_what_came_before() {
        let mut random = StdRng::seed_from_u64(7);
        let rows: Vec<_> = (0..4_000)
            .map(|_| {
                let told: f64 = random.random_range(0.05..0.95);
                (Some(told), random.random_bool(told * told))
            })
            .collect();
        let fits = forward_fits(&rows);
        assert_eq!(fits[0], Fit::default());
        let (last, mut worst) = (fits[3_999], 0.0_f64);
        for told in [0.2, 0.5, 0.8] {
            worst = worst.max((last.chance(Some(told)) - told * told).abs());
        }
        assert!(worst < 0.06, "{last:?} is off by {worst}");
        assert!((last.chance(None) - 0.33).abs() < 0.05);
    }

    #[test]
    fn rows_that_all_kept_or_all_missed_give_chances() {
        for met in [true, false] {
            let fits = forward_fits(&vec![(Some(0.7), met); 500]);
            let chance = fits[499].chance(Some(0.7));
            assert!((0.0..=1.0).contains(&chance) && (chance > 0.9) == met, "{chance}");
        }
    }
}
