//! Quantiles from what the predictions of the past missed by (split conformal on a sliding window).

/// Newest residuals kept.
const WINDOW: usize = 256;
/// Residuals below which quantiles are those of a wide guess.
const ENOUGH: usize = 16;
/// Guessed logarithmic spread from median to p90 while there are too few residuals.
const GUESS_P90: f32 = 0.5;

/// The newest residuals `ln(observed / predicted)` of one target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Residuals {
    ring: Vec<f32>,
    next: usize,
    covered: f32,
    judged: f32,
    relative: f64,
    served: f64,
}

/// What the residuals say, to be multiplied onto a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factors {
    pub(crate) p50: f32,
    pub(crate) p90: f32,
}

impl Residuals {
    pub(crate) fn push(&mut self, residual: f32) {
        if self.ring.len() < WINDOW {
            self.ring.push(residual);
        } else {
            self.ring[self.next] = residual;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Relative error of a served prediction.
    pub(crate) fn served(&mut self, predicted: f32, observed: f32) {
        self.relative += f64::from(((predicted - observed) / observed).abs());
        self.served += 1.0;
    }

    /// Mean absolute relative error of served predictions.
    pub(crate) fn mean_error(&self) -> Option<f32> {
        (self.served > 0.0).then(|| (self.relative / self.served) as f32)
    }

    /// Notes whether an observed value stayed under the p90 that was promised for it.
    pub(crate) fn judge(&mut self, covered: bool) {
        const MEMORY: f32 = 500.0;
        self.judged = (self.judged + 1.0).min(MEMORY);
        self.covered += (f32::from(u8::from(covered)) - self.covered) / self.judged;
    }

    /// Share of observed values that stayed under their promised p90; `None` before the first.
    pub(crate) fn coverage(&self) -> Option<f32> {
        (self.judged > 0.0).then_some(self.covered)
    }

    /// Median absolute relative error; `None` before the first residual.
    pub(crate) fn median_error(&self) -> Option<f32> {
        let mut errors: Vec<f32> = self.ring.iter().map(|r| (r.exp() - 1.0).abs()).collect();
        errors.sort_unstable_by(f32::total_cmp);
        errors.get(errors.len() / 2).copied()
    }

    /// Factors for the median and the p90. The p90 takes the rank `⌈0.9·(n + 1)⌉` of `n` residuals,
    /// which is exceeded by one in ten of the next where past and future are exchangeable.
    pub(crate) fn factors(&self) -> Factors {
        let mut sorted = self.ring.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let n = sorted.len();
        if n < ENOUGH {
            return Factors { p50: 1.0, p90: GUESS_P90.exp() };
        }
        let rank = (0.9 * (n as f32 + 1.0)).ceil() as usize;
        Factors { p50: sorted[n / 2].exp(), p90: sorted[rank.min(n) - 1].exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p90_is_exceeded_by_one_in_ten() {
        let mut residuals = Residuals::default();
        for i in 0_u8..200 {
            residuals.push(f32::from(i) / 200.0);
        }
        let factors = residuals.factors();
        let over = (0_u8..200).filter(|i| (f32::from(*i) / 200.0).exp() > factors.p90).count();
        assert!((18..=20).contains(&over), "{over}");
        assert!(factors.p50 < factors.p90);
    }

    #[test]
    fn only_the_newest_residuals_count() {
        let mut residuals = Residuals::default();
        for _ in 0..1_000 {
            residuals.push(3.0);
        }
        for _ in 0..WINDOW {
            residuals.push(0.0);
        }
        assert_eq!(residuals.factors(), Factors { p50: 1.0, p90: 1.0 });
    }
}
