//! Rules that decide by predictions. Least expected added misses is the one that serves; the others are what it
//! is compared with.

use predict::Prediction;
use serde::{Deserialize, Serialize};
use types::{Millis, Slo};

use crate::candidate::Candidate;

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Expected added misses, the request's own and those it causes.
    #[default]
    LeastMisses,
    /// Predicted time to first token.
    LeastTtft,
    /// Predicted time to the end of the answer.
    LeastCompletion,
    /// The larger of predicted TTFT and ITL, each relative to its objective.
    MostSlack,
    /// The least slack that is left, as long as there is any; else the most.
    BestFit,
}

impl Rule {
    /// What this rule minimises for `candidate`, if it is not expected misses.
    pub(crate) fn other_than_misses(self, slo: Slo, candidate: &Candidate) -> Option<f32> {
        let prediction = candidate.prediction.as_ref()?;
        Some(match self {
            Self::LeastMisses => return None,
            Self::LeastTtft => prediction.ttft.p50(),
            Self::LeastCompletion => alone_ms(candidate, prediction),
            Self::MostSlack => used(slo, candidate, prediction),
            Self::BestFit => match used(slo, candidate, prediction) {
                used if used <= 1.0 => 1.0 - used,
                used => used,
            },
        })
    }
}

/// Time to completion plus the delay caused to the streams there.
pub(crate) fn completion_ms(candidate: &Candidate, prediction: &Prediction) -> f32 {
    let own = prediction.ttft.p50() + candidate.demand.output_tokens * prediction.itl.p50();
    let streams = candidate.load.decoding as f32;
    let others = streams * prediction.prefill_ms
        + candidate.load.remaining_tokens * prediction.itl_growth_ms;
    own + others
}

/// Time to completion, whatever it does to others.
fn alone_ms(candidate: &Candidate, prediction: &Prediction) -> f32 {
    prediction.ttft.p50() + candidate.demand.output_tokens * prediction.itl.p50()
}

/// The largest part of an objective that is predicted to be used; without objectives, seconds to completion.
fn used(slo: Slo, candidate: &Candidate, prediction: &Prediction) -> f32 {
    if slo.is_empty() {
        return completion_ms(candidate, prediction) / 1e3;
    }
    let part =
        |objective: Option<Millis>, ms: f32| objective.map_or(0.0, |o| ms / o.get().max(1e-3));
    part(slo.ttft, prediction.ttft.p50()).max(part(slo.itl, prediction.itl.p50()))
}
