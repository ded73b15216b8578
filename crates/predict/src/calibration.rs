//! Quantiles of one target, kept true by what they missed.
//!
//! A residual is `ln(observed / point)`. The quantiles of the newest residuals (split conformal on a
//! sliding window) are the head; on each comes an offset that is moved by every miss and every hit
//! (adaptive conformal inference: up by `γ·q` after a miss, down by `γ·(1 − q)` after a hit, so that at
//! rest one in `1/(1 − q)` misses). Offsets of several rates are mixed by their discounted pinball loss,
//! so that a steady stream is not jittered and a shift is followed. Labels come late: a promise is judged
//! when its label comes, in the order in which labels come.

use serde::{Deserialize, Serialize};

use crate::residuals::Residuals;

/// Quantiles that are promised.
pub const LEVELS: [f32; 4] = [0.5, 0.9, 0.95, 0.99];
/// Residuals below which quantiles are guessed.
pub(crate) const ENOUGH: usize = 24;
/// Rates of the offsets, in units of the spread of the window.
const RATES: [f32; 3] = [0.0, 0.02, 0.1];
/// Rate of the offset that the promises themselves move.
const SERVED_RATE: f32 = 0.012;
/// What is kept of the old loss when a new one comes.
const LOSS_MEMORY: f32 = 0.98;
/// How sharply the better rate is preferred.
const SHARPNESS: f32 = 4.0;
/// Promises over which coverage and loss are averaged.
const JUDGED_MEMORY: f32 = 1_000.0;
/// Guessed log quantiles before enough residuals.
const GUESS: [f32; 4] = [0.0, 0.45, 0.6, 0.9];

/// Most that promises are widened by after a change (log), and what is left of it a label later.
const MAX_WIDENED: f32 = 0.3;
const WIDENED_MEMORY: f32 = 0.95;

/// Log offsets of the quantiles from the point, by [`LEVELS`].
pub(crate) type Offsets = [f32; LEVELS.len()];

/// The newest residuals of one target in one regime, and what its promises were worth.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Calibration {
    newest: Residuals,
    rates: [[f32; RATES.len()]; LEVELS.len()],
    losses: [[f32; RATES.len()]; LEVELS.len()],
    judged: f32,
    covered: [f32; LEVELS.len()],
    pinball: f32,
    raw_pinball: f32,
    /// Added to what is promised above the median after a change.
    widened: f32,
    /// Moved by what the promises themselves have missed and kept: what guarantees the level.
    served: [f32; LEVELS.len()],
}

impl Calibration {
    /// Folds in the newest residuals of `other`, and what its promises were worth; offsets are those of
    /// the one that has judged more.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.judged > self.judged {
            (self.rates, self.losses, self.served) = (other.rates, other.losses, other.served);
        }
        let judged = self.judged + other.judged;
        if judged > 0.0 {
            let share = other.judged / judged;
            let mix = |mine: &mut f32, theirs: f32| *mine += share * (theirs - *mine);
            for (mine, theirs) in self.covered.iter_mut().zip(other.covered) {
                mix(mine, theirs);
            }
            mix(&mut self.pinball, other.pinball);
            mix(&mut self.raw_pinball, other.raw_pinball);
            self.judged = judged.min(JUDGED_MEMORY);
        }
        self.widened = self.widened.max(other.widened);
        self.newest = self.newest.merged(&other.newest);
    }

    /// Residuals held.
    pub(crate) fn len(&self) -> usize {
        self.newest.len()
    }

    /// Starts from residuals that others have seen.
    pub(crate) fn start_from(&mut self, residuals: &[f32]) {
        self.newest = residuals.iter().copied().filter(|r| r.is_finite()).collect();
    }

    /// A row predicted at `point` with the promises `promised` (both in milliseconds) came out as
    /// `observed`.
    pub(crate) fn learn(&mut self, point: f32, observed: f32, promised: Option<&Offsets>) {
        let residual = (observed / point).ln().clamp(-4.0, 4.0);
        if let Some(promised) = promised {
            self.judge(residual, promised, point);
        }
        self.adapt(residual);
        self.widened *= WIDENED_MEMORY;
        self.newest.push(residual);
    }

    /// Moves every offset by what it would have missed or hit.
    fn adapt(&mut self, residual: f32) {
        if self.newest.len() < ENOUGH {
            return;
        }
        let head = self.head();
        let spread = (head[1] - head[0]).max(0.01);
        for (at, level) in LEVELS.into_iter().enumerate() {
            for (k, rate) in RATES.into_iter().enumerate() {
                let promise = head[at] + self.rates[at][k];
                let missed = residual > promise;
                let loss = pinball(residual, promise, level) / spread;
                let kept = &mut self.losses[at][k];
                *kept = LOSS_MEMORY * *kept + (1.0 - LOSS_MEMORY) * loss;
                let step = if missed { level } else { level - 1.0 };
                let moved = self.rates[at][k] + rate * spread * step;
                self.rates[at][k] = moved.clamp(-2.0 * spread, 8.0 * spread);
            }
        }
    }

    fn judge(&mut self, residual: f32, promised: &Offsets, point: f32) {
        self.judged = (self.judged + 1.0).min(JUDGED_MEMORY);
        if self.newest.len() >= ENOUGH {
            let head = self.head();
            let spread = (head[1] - head[0]).max(0.01);
            for (at, level) in LEVELS.into_iter().enumerate().skip(1) {
                let step = if residual > promised[at] { level } else { level - 1.0 };
                let moved = self.served[at] + SERVED_RATE * spread * step;
                self.served[at] = moved.clamp(-spread, 2.0 * spread);
            }
        }
        for (covered, promise) in self.covered.iter_mut().zip(promised) {
            *covered += (f32::from(u8::from(residual <= *promise)) - *covered) / self.judged;
        }
        let in_ms = |offset: f32| pinball(residual.exp(), offset.exp(), 0.9) * point;
        self.pinball += (in_ms(promised[1]) - self.pinball) / self.judged;
        self.raw_pinball += (in_ms(self.uncorrected()) - self.raw_pinball) / self.judged;
    }

    /// Quantiles of the window.
    fn head(&self) -> Offsets {
        LEVELS.map(|level| self.newest.quantile(level))
    }

    /// Log offset of the window's own p90.
    pub(crate) fn uncorrected(&self) -> f32 {
        if self.newest.len() < ENOUGH { GUESS[1] } else { self.head()[1] }
    }

    /// Log offsets of the quantiles, never decreasing.
    pub(crate) fn offsets(&self) -> Offsets {
        if self.newest.len() < ENOUGH {
            return GUESS;
        }
        let mut offsets = self.head();
        // The median is the point: its bias is corrected per endpoint already. Correcting it by the
        // window, too, doubles the correction while load rises and labels are late: TTFT error on a
        // saturated ramp was 28 % instead of 12 % (`slackline evaluate --simulate saturated`).
        offsets[0] = 0.0;
        for (at, offset) in offsets.iter_mut().enumerate().skip(1) {
            let best = self.losses[at].iter().copied().fold(f32::MAX, f32::min).max(1e-6);
            let weight = |loss: f32| (-SHARPNESS * (loss / best - 1.0)).exp();
            let total: f32 = self.losses[at].iter().map(|loss| weight(*loss)).sum();
            let pairs = self.losses[at].iter().zip(&self.rates[at]);
            *offset += pairs.map(|(loss, rate)| weight(*loss) * rate).sum::<f32>() / total;
        }
        for at in 1..offsets.len() {
            offsets[at] += self.widened + self.served[at];
            offsets[at] = offsets[at].max(offsets[at - 1]);
        }
        offsets
    }

    /// Widens what is promised until new residuals tell more: the engine has changed by `shift` (log).
    pub(crate) fn widen(&mut self, shift: f32) {
        // The point is corrected at once; what stays uncertain is a share of the shift.
        self.widened = self.widened.max((0.5 * shift.abs()).min(MAX_WIDENED));
    }

    /// Share of observed values under each promised quantile; `None` before the first.
    pub(crate) fn coverage(&self) -> Option<Offsets> {
        (self.judged > 0.0).then_some(self.covered)
    }

    /// Mean pinball loss of the promised p90 and of the window's own, in milliseconds.
    pub(crate) fn pinball(&self) -> Option<(f32, f32)> {
        (self.judged > 0.0).then_some((self.pinball, self.raw_pinball))
    }

    /// Median absolute relative error; `None` before the first residual.
    pub(crate) fn median_error(&self) -> Option<f32> {
        self.newest.median_error()
    }
}

/// Pinball loss of promising `promise` at `level` for `value`.
fn pinball(value: f32, promise: f32, level: f32) -> f32 {
    let over = value - promise;
    if over > 0.0 { level * over } else { (level - 1.0) * over }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Residuals of a fixed, skewed shape.
    fn residual(i: u32, scale: f32, shift: f32) -> f32 {
        let u = ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0).clamp(0.001, 0.999);
        shift + scale * (-(1.0 - u).ln())
    }

    fn run(
        calibration: &mut Calibration,
        rows: std::ops::Range<u32>,
        scale: f32,
        shift: f32,
    ) -> f32 {
        let mut covered = 0.0;
        let count = rows.len() as f32;
        for i in rows {
            let promised = calibration.offsets();
            let seen = residual(i, scale, shift);
            covered += f32::from(u8::from(seen <= promised[1]));
            calibration.learn(100.0, 100.0 * seen.exp(), Some(&promised));
        }
        covered / count
    }

    #[test]
    fn a_steady_p90_is_exceeded_by_one_in_ten() {
        let mut calibration = Calibration::default();
        run(&mut calibration, 0..500, 0.1, 0.0);
        let coverage = run(&mut calibration, 500..4_000, 0.1, 0.0);
        assert!((0.885..=0.915).contains(&coverage), "{coverage}");
        let (served, raw) = calibration.pinball().unwrap();
        assert!(served < raw * 1.03, "{served} {raw}");
    }

    #[test]
    fn after_a_shift_coverage_comes_back_within_a_few_dozen_labels() {
        let mut calibration = Calibration::default();
        run(&mut calibration, 0..1_000, 0.1, 0.0);
        run(&mut calibration, 1_000..1_060, 0.1, 0.47);
        let coverage = run(&mut calibration, 1_060..1_260, 0.1, 0.47);
        assert!(coverage > 0.85, "{coverage}");
    }

    #[test]
    fn quantiles_never_cross() {
        let mut calibration = Calibration::default();
        run(&mut calibration, 0..700, 0.3, 0.0);
        let offsets = calibration.offsets();
        assert!(offsets.windows(2).all(|pair| pair[0] <= pair[1]), "{offsets:?}");
    }
}
