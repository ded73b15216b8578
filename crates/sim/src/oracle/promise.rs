//! What a request was promised, and what its fate costs.

use types::Slo;

/// What a miss costs beside the chance terms, which hedge against what no forecast holds.
const MISS: f64 = 1.0;
/// Weight of the smooth chance to miss: slack counts where no miss is in sight.
const RISK: f64 = 1.0;
/// Weight of each objective's length that a first token is late by, so that what is lost anyway does
/// not wait for ever.
const LATENESS: f64 = 0.05;
/// What a second of a request without an objective costs.
const PER_SECOND: f64 = 0.01;

/// What one request was promised, and what is known of it. Milliseconds from the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// When it arrived at the router.
    pub arrived: f64,
    /// When its first token was, or will be, back at the router.
    pub first: Option<f64>,
    /// Ceilings of TTFT and mean ITL, ms; infinite where none was promised.
    pub limits: (f64, f64),
    /// What a miss weighs.
    pub weight: f64,
}

impl Promise {
    pub(super) fn new(slo: Slo, weight: f32, arrived: f64, first: Option<f64>) -> Self {
        let limit = |ms: Option<types::Millis>| {
            ms.map_or(f64::INFINITY, |ms| f64::from(ms.get()).max(1e-3))
        };
        Self {
            arrived,
            first,
            limits: (limit(slo.ttft), limit(slo.itl)),
            weight: f64::from(weight),
        }
    }

    /// Latencies over what was promised, TTFT and mean ITL, of a request of `tokens` tokens whose last
    /// one is back at `end`.
    fn ratios(&self, end: f64, tokens: u32) -> (f64, f64) {
        let first = self.first.unwrap_or(end);
        let itl = if tokens > 1 { (end - first) / f64::from(tokens - 1) } else { 0.0 };
        ((first - self.arrived) / self.limits.0, itl / self.limits.1)
    }

    /// Whether such a request misses.
    pub(super) fn is_missed(&self, end: f64, tokens: u32) -> bool {
        let (ttft, itl) = self.ratios(end, tokens);
        ttft > 1.0 || itl > 1.0
    }

    /// What the fate of such a request costs, in misses.
    pub(super) fn cost(&self, end: f64, tokens: u32) -> f64 {
        if self.limits == (f64::INFINITY, f64::INFINITY) {
            return self.weight * PER_SECOND * (end - self.arrived) * 1e-3;
        }
        let (ttft, itl) = self.ratios(end, tokens);
        let miss = if ttft > 1.0 || itl > 1.0 { MISS } else { 0.0 };
        let risk = 1.0 - (1.0 - chance(ttft)) * (1.0 - chance(itl));
        self.weight * (miss + RISK * risk + LATENESS * (ttft - 1.0).max(0.0))
    }
}

/// Smooth chance to miss an objective, by projected over promised: the form of the learned pick, with a
/// width of a fifth.
fn chance(ratio: f64) -> f64 {
    let square = ratio * ratio;
    let powered = square * square * ratio;
    if powered < 1e12 { powered / (1.0 + powered) } else { 1.0 }
}
