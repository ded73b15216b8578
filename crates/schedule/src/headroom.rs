//! How far a predicted latency is from its objective, in the words of llm-d's latency predictor.

use predict::Prediction;
use types::{Millis, Slo};

/// Objective less the predicted median, in milliseconds; negative where a miss is predicted.
///
/// As there, an objective that is not given counts as 0, so that the headroom is then the negative of the
/// predicted latency. What else runs on the endpoint does not tighten the objective here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Headroom {
    /// Of the time to first token.
    pub(crate) ttft_ms: f32,
    /// Of the time between tokens.
    pub(crate) itl_ms: f32,
}

impl Headroom {
    pub(crate) fn of(slo: Slo, prediction: &Prediction) -> Self {
        let objective = |ms: Option<Millis>| ms.map_or(0.0, Millis::get);
        Self {
            ttft_ms: objective(slo.ttft) - prediction.ttft.p50(),
            itl_ms: objective(slo.itl) - prediction.itl.p50(),
        }
    }

    /// Whether neither objective is predicted to be missed.
    pub(crate) fn is_positive(self) -> bool {
        self.ttft_ms >= 0.0 && self.itl_ms >= 0.0
    }
}
