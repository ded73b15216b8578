//! The learned pick: least expected added misses.
//!
//! `cost(e) = own + h · harm + l · load + t · lateness`. `own` is the chance that the request misses its TTFT or ITL
//! objective on `e`. `harm` is the sum, over the streams on `e`, of what placing it there adds to their
//! chance to miss: a stream's projected mean ITL is `(T + R · itl) / N` for decode time so far `T`,
//! remaining gaps `R` and expected gaps `N`; the request adds one stall as long as its own prefill, and
//! makes each step a little longer for good. Chances are smooth: `x^(1/w) / (1 + x^(1/w))` for projected
//! over objective `x`, with a width `w` that stands for the error of the model and the load still to
//! come. `lateness` is how many objectives of TTFT beyond the first the request is predicted to wait, so
//! that one that is lost anyway does not wait for ever. Without an objective, `own` is the completion time, with the delay caused to others, relative
//! to the best candidate's.

use predict::Prediction;
use serde::{Deserialize, Serialize};
use types::Slo;

use crate::candidate::Candidate;

/// Tuning of the learned pick.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MissOptions {
    /// Weight of the misses caused to others.
    pub harm: f32,
    /// Width of the chance to miss, in units of the logarithm of predicted over objective.
    pub width: f32,
    /// Weight of relative load, which decides where no miss is in sight.
    pub load: f32,
    /// Weight of each objective's length that a request is late by. A request that cannot keep its
    /// objective any more may wait where it harms nobody, but not for ever: at 0.05, twenty
    /// objectives of waiting weigh as much as a miss.
    pub lateness: f32,
}

impl Default for MissOptions {
    fn default() -> Self {
        Self { harm: 2.0, width: 0.2, load: 0.01, lateness: 0.05 }
    }
}

/// Cost of one candidate, in expected misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Chance that the request itself misses.
    pub own: f32,
    /// Misses it adds to streams already there.
    pub harm: f32,
    /// Weighted relative load and lateness.
    pub load: f32,
    /// What is minimised.
    pub total: f32,
}

impl MissOptions {
    /// Chance to miss an objective, for projected over objective `ratio`.
    fn chance(&self, ratio: f32) -> f32 {
        let powered = ratio.max(0.0).powf(1.0 / self.width);
        if powered.is_finite() { powered / (1.0 + powered) } else { 1.0 }
    }

    fn own(&self, slo: Slo, prediction: &Prediction) -> f32 {
        let keeps = |objective: Option<types::Millis>, predicted_ms: f32| {
            objective.map_or(1.0, |ms| 1.0 - self.chance(predicted_ms / ms.get().max(1e-3)))
        };
        1.0 - keeps(slo.ttft, prediction.ttft.p50()) * keeps(slo.itl, prediction.itl.p50())
    }

    fn harm(&self, candidate: &Candidate, prediction: &Prediction) -> f32 {
        let added = |bin: &datalayer::Bin| {
            let each = 1.0 / bin.streams;
            let stall = bin.per_stall_ms * each;
            let itl = bin.per_itl_ms * each;
            let without =
                bin.spent * each + stall * prediction.pending_ms + itl * prediction.itl_without_ms;
            let with = without + stall * prediction.prefill_ms + itl * prediction.itl_growth_ms;
            bin.streams * (self.chance(with) - self.chance(without))
        };
        candidate.load.budgets.bins().map(added).sum()
    }
}

/// Load relative to the objective; without one, to a second and to 50 ms.
fn relative_load(slo: Slo, prediction: &Prediction) -> f32 {
    let ttft = slo.ttft.map_or(1_000.0, |ms| ms.get().max(1.0));
    let itl = slo.itl.map_or(50.0, |ms| ms.get().max(1.0));
    (prediction.ttft.p50() / ttft).ln_1p() + (prediction.itl.p50() / itl).ln_1p()
}

/// How many times the TTFT objective a request is late; 0 within it.
fn lateness(slo: Slo, prediction: &Prediction) -> f32 {
    slo.ttft.map_or(0.0, |ms| (prediction.ttft.p50() / ms.get().max(1.0) - 1.0).max(0.0))
}

/// Time to completion plus the delay caused to the streams there.
fn completion_ms(candidate: &Candidate, prediction: &Prediction) -> f32 {
    let own = prediction.ttft.p50() + candidate.demand.output_tokens * prediction.itl.p50();
    let streams = candidate.load.decoding as f32;
    let others = streams * prediction.prefill_ms
        + candidate.load.remaining_tokens * prediction.itl_growth_ms;
    own + others
}

/// Writes the cost of each candidate into `costs`; `false` if a candidate has no prediction, and then
/// the costs mean nothing.
pub fn costs(
    options: &MissOptions,
    slo: Slo,
    candidates: &[Candidate],
    costs: &mut Vec<Cost>,
) -> bool {
    costs.clear();
    for candidate in candidates {
        let Some(prediction) = &candidate.prediction else { return false };
        let load = options.load * relative_load(slo, prediction)
            + options.lateness * lateness(slo, prediction);
        let harm = options.harm(candidate, prediction);
        let own = if slo.is_empty() {
            completion_ms(candidate, prediction)
        } else {
            options.own(slo, prediction)
        };
        costs.push(Cost { own, harm, load, total: 0.0 });
    }
    if slo.is_empty() {
        let best = costs.iter().map(|cost| cost.own).fold(f32::MAX, f32::min).max(1e-3);
        for cost in &mut *costs {
            cost.own = cost.own / best - 1.0;
        }
    }
    for cost in &mut *costs {
        cost.total = cost.own + options.harm * cost.harm + cost.load;
    }
    true
}
