//! The learned pick: least expected added misses, and other rules by the same predictions.
//!
//! `cost(e) = own + h · harm + l · load + t · lateness + v · recomputed`. `own` is the chance that the request
//! misses its TTFT or ITL objective on `e`. `harm` is the sum, over the streams on `e`, of what placing it there
//! adds to their chance to miss: a stream's projected mean ITL is `(T + R · itl) / N` for decode time so far `T`,
//! remaining gaps `R` and expected gaps `N`; the request adds one stall as long as its own prefill, and makes each
//! step a little longer for good. Chances are smooth: `x^(1/w) / (1 + x^(1/w))` for projected over objective `x`,
//! with a width `w` that stands for the error of the model and the load still to come. `lateness` is how many
//! objectives of TTFT beyond the first the request is predicted to wait, so that one that is lost anyway does not
//! wait for ever. `recomputed` is the prefill, in objectives of TTFT, of what another candidate holds and this one
//! does not: it takes room from other prefixes, whose recomputation somebody pays for later. Misses are weighted
//! by the class of whoever misses.

use predict::{Prediction, Quantiles};
use serde::{Deserialize, Serialize};
use types::{Millis, Slo};

use crate::{
    candidate::Candidate,
    error::Error,
    rule::{Rule, completion_ms},
};

/// Tuning of the learned pick.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MissOptions {
    /// What is minimised.
    pub rule: Rule,
    /// Weight of the misses caused to others.
    pub harm: f32,
    /// Width of the chance to miss, in units of the logarithm of predicted over objective.
    pub width: Width,
    /// Weight of relative load, which decides where no miss is in sight.
    pub load: f32,
    /// Weight of each objective's length that a request is late by. A request that cannot keep its
    /// objective any more may wait where it harms nobody, but not for ever: at 0.05, twenty
    /// objectives of waiting weigh as much as a miss.
    pub lateness: f32,
    /// Weight of prefill that another candidate would save, in objectives of TTFT.
    pub recompute: f32,
    /// Chance to take any endpoint instead, where all keep the objective, 0..=1.
    pub explore: f32,
}

impl Default for MissOptions {
    fn default() -> Self {
        Self {
            rule: Rule::default(),
            harm: 2.0,
            width: Width::Fixed(0.2),
            load: 0.01,
            lateness: 0.05,
            recompute: 1.0,
            explore: 0.0,
        }
    }
}

/// What a weight must be.
const WEIGHT: &str = "of at least 0";

/// How wide the chance to miss is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Width {
    /// The same for all predictions.
    Fixed(f32),
    /// What the prediction's own quantiles say.
    By(Source),
}

/// Where a width comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// From the distance between p50 and p90, which are kept by calibration.
    Calibrated,
}

/// Bounds of a calibrated width.
const WIDTHS: (f32, f32) = (0.1, 0.4);
/// A logistic chance is 9 in 10 at this many widths from its middle.
const WIDTHS_TO_P90: f32 = 2.197;

impl Width {
    /// The width for what `quantiles` are predicted of.
    fn of(self, quantiles: &Quantiles) -> f32 {
        match self {
            Self::Fixed(width) => width,
            Self::By(Source::Calibrated) => {
                let spread = (quantiles.p90() / quantiles.p50().max(1e-3)).max(1.0).ln();
                (spread / WIDTHS_TO_P90).clamp(WIDTHS.0, WIDTHS.1)
            }
        }
    }
}

/// Cost of one candidate, in expected misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Chance that the request itself misses.
    pub own: f32,
    /// Misses it adds to streams already there.
    pub harm: f32,
    /// Weighted relative load, lateness and recomputed prefill.
    pub load: f32,
    /// What is minimised.
    pub total: f32,
}

/// Chance to miss an objective, for projected over objective `ratio`.
pub(crate) fn chance(ratio: f32, width: f32) -> f32 {
    let powered = ratio.max(0.0).powf(1.0 / width);
    if powered.is_finite() { powered / (1.0 + powered) } else { 1.0 }
}

impl MissOptions {
    /// Whether every number is one that it can be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let width = match self.width {
            Width::Fixed(width) => width,
            Width::By(_) => 1.0,
        };
        let is_weight = |value: f32| value.is_finite() && value >= 0.0;
        for (key, value, fits, wants) in [
            ("harm", self.harm, is_weight(self.harm), WEIGHT),
            ("load", self.load, is_weight(self.load), WEIGHT),
            ("lateness", self.lateness, is_weight(self.lateness), WEIGHT),
            ("recompute", self.recompute, is_weight(self.recompute), WEIGHT),
            ("width", width, is_weight(width) && width > 0.0, "above zero"),
            ("explore", self.explore, (0.0..=1.0).contains(&self.explore), "of 0 to 1"),
        ] {
            if !fits {
                return Err(Error::Tuning { key, value, wants });
            }
        }
        Ok(())
    }

    fn own(&self, slo: Slo, prediction: &Prediction) -> f32 {
        let keeps = |objective: Option<Millis>, predicted: &Quantiles| {
            objective.map_or(1.0, |ms| {
                1.0 - chance(predicted.p50() / ms.get().max(1e-3), self.width.of(predicted))
            })
        };
        1.0 - keeps(slo.ttft, &prediction.ttft) * keeps(slo.itl, &prediction.itl)
    }

    fn harm(&self, candidate: &Candidate, prediction: &Prediction) -> f32 {
        let width = self.width.of(&prediction.itl);
        let added = |bin: &datalayer::Bin| {
            let each = 1.0 / bin.streams;
            let stall = bin.per_stall_ms * each;
            let itl = bin.per_itl_ms * each;
            let without =
                bin.spent * each + stall * prediction.pending_ms + itl * prediction.itl_without_ms;
            let with = without + stall * prediction.prefill_ms + itl * prediction.itl_growth_ms;
            bin.weight * (chance(with, width) - chance(without, width))
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

/// Time, in objectives of TTFT, to compute what `held` prompt tokens of another candidate would save.
fn recomputed(slo: Slo, candidate: &Candidate, prediction: &Prediction, held: u32) -> f32 {
    let demand = &candidate.demand;
    let tokens = held.saturating_sub(demand.cached_tokens) as f32;
    let per_token = prediction.prefill_ms / demand.uncached_tokens() as f32;
    tokens * per_token / slo.ttft.map_or(1_000.0, |ms| ms.get().max(1.0))
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
    let held = candidates.iter().map(|c| c.demand.cached_tokens).max().unwrap_or(0);
    for candidate in candidates {
        let Some(prediction) = &candidate.prediction else { return false };
        let weight = candidate.demand.weight;
        let own = if slo.is_empty() {
            completion_ms(candidate, prediction)
        } else {
            weight * options.own(slo, prediction)
        };
        let load = options.load * relative_load(slo, prediction)
            + weight * options.lateness * lateness(slo, prediction)
            + options.recompute * recomputed(slo, candidate, prediction, held);
        let harm = options.harm(candidate, prediction);
        costs.push(Cost { own, harm, load, total: 0.0 });
    }
    if slo.is_empty() {
        let best = costs.iter().map(|cost| cost.own).fold(f32::MAX, f32::min).max(1e-3);
        for cost in &mut *costs {
            cost.own = cost.own / best - 1.0;
        }
    }
    for (cost, candidate) in costs.iter_mut().zip(candidates) {
        let other = options.rule.other_than_misses(slo, candidate);
        cost.total = other.unwrap_or(cost.own + options.harm * cost.harm + cost.load);
    }
    true
}
