//! What a class of endpoints predicts for one of them.

use features::FeatureRow;
use types::Millis;

use crate::{
    calibration::LEVELS,
    target::{Factors, Forecast, Served},
    terms,
    trust::Trust,
};

/// Quantiles of one latency, in milliseconds, by [`LEVELS`](crate::LEVELS): p50, p90, p95, p99.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Quantiles(pub [f32; LEVELS.len()]);

impl Quantiles {
    fn of(point: f32, factors: &Factors) -> Self {
        Self(factors.map(|factor| point * factor))
    }

    /// Median.
    pub fn p50(&self) -> f32 {
        self.0[0]
    }

    /// Exceeded one time in ten.
    pub fn p90(&self) -> f32 {
        self.0[1]
    }

    /// Chance to stay within `limit`: between quantiles linear in the logarithm; below the median by the
    /// mirror image of what is above it; never quite 0 or 1.
    pub fn chance_within(&self, limit: Millis) -> f32 {
        let at = |ms: f32| ms.max(1e-3).ln();
        let (limit, median) = (at(limit.get()), at(self.0[0]));
        let beyond = (limit - median).abs();
        let mut low = (0.0_f32, 0.5_f32);
        for (quantile, level) in self.0.iter().zip(LEVELS).skip(1) {
            let high = ((at(*quantile) - median).max(low.0 + 1e-4), level);
            if beyond <= high.0 {
                let share = (beyond - low.0) / (high.0 - low.0);
                low.1 += share * (high.1 - low.1);
                return if limit >= median { low.1 } else { 1.0 - low.1 };
            }
            low = high;
        }
        let tail = (1.0 - low.1) * (-(beyond - low.0) / low.0.max(0.05)).exp();
        if limit >= median { 1.0 - tail } else { tail }
    }
}

/// What one endpoint is expected to do with one request, and what the request does to the streams
/// that are there. All in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Prediction {
    /// Time to first token.
    pub ttft: Quantiles,
    /// Mean time between tokens.
    pub itl: Quantiles,
    /// Time that this request's own prefill takes.
    pub prefill_ms: f32,
    /// Time that the prefills ahead of it still take.
    pub pending_ms: f32,
    /// ITL of the streams already there if this request goes elsewhere.
    pub itl_without_ms: f32,
    /// What this request adds to it for as long as it runs.
    pub itl_growth_ms: f32,
    /// Labels behind it, the fewer of the two targets.
    pub labels: u32,
    /// What it comes from.
    pub source: Source,
    /// How far it may be trusted.
    pub trust: Trust,
}

/// What a prediction comes from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Labels of the endpoint's own class.
    #[default]
    Learned,
    /// Labels of all classes of the model.
    Pooled,
    /// What was known of the class before its first rows.
    Prior,
}

/// A class as it predicts.
#[derive(Debug)]
pub(crate) struct ServedClass {
    pub(crate) ttft: Served,
    pub(crate) itl: Served,
    /// Whether it has started from a prior.
    pub(crate) grown: bool,
}

/// What was predicted for the request that was sent, kept until its label comes.
#[derive(Clone, Copy, Debug)]
pub struct Forecasts {
    pub(crate) ttft: Forecast,
    pub(crate) itl: Forecast,
}

impl ServedClass {
    pub(crate) fn labels(&self) -> u32 {
        self.ttft.labels.min(self.itl.labels)
    }

    pub(crate) fn predict(&self, slot: u32, row: &FeatureRow) -> Prediction {
        let ttft = self.ttft.predict(slot, row);
        let itl = self.itl.predict(slot, row);
        // What-if questions go to the base, which may be asked anything, on the scale of what is served.
        let ttft_scale = ttft.factor * ttft.factors[0];
        let itl_scale = itl.factor * itl.factors[0];
        let pending = self.ttft.base(&terms::without_own(&ttft.terms, row));
        let idle = self.ttft.base(&terms::without_any(&ttft.terms));
        let without = self.itl.base(&terms::itl_without(&itl.terms, row));
        Prediction {
            ttft: Quantiles::of(ttft.base * ttft.factor, ttft.factors),
            itl: Quantiles::of(itl.base * itl.factor, itl.factors),
            prefill_ms: (ttft.base - pending).max(0.0) * ttft_scale,
            pending_ms: (pending - idle).max(0.0) * ttft_scale,
            itl_without_ms: without * itl_scale,
            itl_growth_ms: (itl.base - without).max(0.0) * itl_scale,
            labels: self.labels(),
            source: Source::Learned,
            trust: Trust::of(
                row,
                self.ttft.covers(&ttft.terms) && self.itl.covers(&itl.terms),
                self.ttft.is_calibrated() && self.itl.is_calibrated(),
            ),
        }
    }

    pub(crate) fn forecasts(&self, slot: u32, row: &FeatureRow) -> Forecasts {
        Forecasts { ttft: self.ttft.forecast(slot, row), itl: self.itl.forecast(slot, row) }
    }
}

impl Prediction {
    /// The same of a class that is `scale` times as slow.
    pub(crate) fn on_scale(self, scale: f32) -> Self {
        let all = |quantiles: Quantiles| Quantiles(quantiles.0.map(|ms| ms * scale));
        Self {
            ttft: all(self.ttft),
            itl: all(self.itl),
            prefill_ms: self.prefill_ms * scale,
            pending_ms: self.pending_ms * scale,
            itl_without_ms: self.itl_without_ms * scale,
            itl_growth_ms: self.itl_growth_ms * scale,
            ..self
        }
    }
}

impl Forecasts {
    /// The same of a class that is `scale` times as slow.
    pub(crate) fn on_scale(self, scale: f32) -> Self {
        Self { ttft: self.ttft.on_scale(scale), itl: self.itl.on_scale(scale) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_follows_the_quantiles() {
        let quantiles = Quantiles([100.0, 200.0, 250.0, 400.0]);
        let chance = |ms| quantiles.chance_within(Millis::new(ms).unwrap());
        for (ms, expected) in [(100.0, 0.5), (200.0, 0.9), (250.0, 0.95), (400.0, 0.99)] {
            assert!((chance(ms) - expected).abs() < 1e-3, "{ms}: {}", chance(ms));
        }
        assert!((chance(50.0) - 0.1).abs() < 1e-3);
        assert!(chance(1.0) > 0.0 && chance(1e6) <= 1.0);
        let rising: Vec<_> = (1..1_000_u16).map(|ms| chance(f32::from(ms))).collect();
        assert!(rising.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6));
    }
}
