//! The models of one class of endpoints: TTFT and ITL, each with its challengers, calibration and
//! per-endpoint correction.

use std::{collections::BTreeMap, fmt, sync::Arc};

use features::FeatureRow;
use regress::Regressor;
use types::{Accelerator, Role};

use crate::{
    residuals::{Factors, Residuals},
    terms,
};

/// What a class of endpoints has in common.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClassKey {
    /// Model served.
    pub model: Arc<str>,
    /// Accelerator class.
    pub accelerator: Accelerator,
    /// Phases served.
    pub role: Role,
}

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.model, self.accelerator.as_str(), self.role.as_str())
    }
}

/// What one endpoint is expected to do with one request, and what the request does to the streams
/// that are there. All in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Prediction {
    /// Median time to first token.
    pub ttft_ms: f32,
    /// Time to first token that is exceeded one time in ten.
    pub ttft_p90_ms: f32,
    /// Median of the mean time between tokens.
    pub itl_ms: f32,
    /// Mean time between tokens that is exceeded one time in ten.
    pub itl_p90_ms: f32,
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
}

/// One model among several that learn the same target.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) model: Box<dyn Regressor>,
    /// Moving mean of the absolute log error, each row judged before it is learned.
    pub(crate) error: f32,
}

/// Moving mean of one endpoint's log residual.
#[derive(Clone, Copy, Debug, Default)]
struct Correction {
    labels: f32,
    log_bias: f32,
}

impl Correction {
    /// Shrunk towards no correction while there are few labels.
    fn factor(self) -> f32 {
        const SHRINK: f32 = 20.0;
        (self.log_bias * self.labels / (self.labels + SHRINK)).exp()
    }

    fn push(&mut self, residual: f32) {
        const MEMORY: f32 = 60.0;
        self.labels = (self.labels + 1.0).min(MEMORY);
        self.log_bias += (residual.clamp(-1.0, 1.0) - self.log_bias) / self.labels;
    }
}

/// One target (TTFT or ITL) of one class, as it learns.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) champion: usize,
    pub(crate) labels: u32,
    pub(crate) residuals: Residuals,
    corrections: BTreeMap<u32, Correction>,
}

/// One target as it predicts.
#[derive(Debug)]
pub(crate) struct Served {
    model: Box<dyn Regressor>,
    factors: Factors,
    corrections: Vec<(u32, f32)>,
    labels: u32,
}

/// A challenger must be better than the champion by this factor.
const HYSTERESIS: f32 = 0.95;
/// Labels before which the champion stays.
const BEFORE_SWITCH: u32 = 30;

impl Target {
    pub(crate) fn new(contenders: Vec<Contender>) -> Self {
        let champion = contenders.len().saturating_sub(1);
        Self {
            contenders,
            champion,
            labels: 0,
            residuals: Residuals::default(),
            corrections: BTreeMap::new(),
        }
    }

    /// Learns `label` for the terms of a row on endpoint `slot`; `p90` is what was promised for it, if
    /// anything was.
    pub(crate) fn learn(
        &mut self,
        slot: u32,
        terms: &[f32],
        label: f32,
        served: Option<(f32, f32)>,
    ) {
        const MEMORY: f32 = 200.0;
        let memory = (self.labels as f32 + 1.0).min(MEMORY);
        let now = self.contenders[self.champion].model.predict_one(terms);
        for contender in &mut self.contenders {
            let predicted = contender.model.predict_one(terms).max(1e-3);
            contender.error += ((label / predicted).ln().abs().min(5.0) - contender.error) / memory;
            contender.model.learn_one(terms, label);
        }
        self.labels = self.labels.saturating_add(1);
        if self.labels > 3 {
            let correction = self.corrections.entry(slot).or_default();
            let corrected = now.max(1e-3) * correction.factor();
            self.residuals.push((label / corrected).ln().clamp(-5.0, 5.0));
            correction.push((label / now.max(1e-3)).ln());
        }
        if let Some((p50, p90)) = served {
            self.residuals.served(p50, label);
            self.residuals.judge(label <= p90);
        }
        self.promote();
    }

    fn promote(&mut self) {
        if self.labels < BEFORE_SWITCH {
            return;
        }
        let best = (0..self.contenders.len())
            .min_by(|a, b| self.contenders[*a].error.total_cmp(&self.contenders[*b].error));
        if let Some(best) = best
            && self.contenders[best].error < self.contenders[self.champion].error * HYSTERESIS
        {
            self.champion = best;
        }
    }

    pub(crate) fn forget(&mut self, slot: u32) {
        self.corrections.remove(&slot);
    }

    pub(crate) fn publish(&self) -> Served {
        Served {
            model: self.contenders[self.champion].model.copy(),
            factors: self.residuals.factors(),
            corrections: self.corrections.iter().map(|(slot, c)| (*slot, c.factor())).collect(),
            labels: self.labels,
        }
    }
}

impl Served {
    fn correction(&self, slot: u32) -> f32 {
        let found = self.corrections.binary_search_by_key(&slot, |(slot, _)| *slot);
        found.map_or(1.0, |at| self.corrections[at].1)
    }
}

/// A class as it predicts.
#[derive(Debug)]
pub(crate) struct ServedClass {
    pub(crate) ttft: Served,
    pub(crate) itl: Served,
}

impl ServedClass {
    pub(crate) fn predict(&self, slot: u32, row: &FeatureRow) -> Prediction {
        let Self { ttft, itl } = self;
        let (ttft_bias, itl_bias) = (ttft.correction(slot), itl.correction(slot));
        let raw_ttft_ms = ttft.model.predict_one(&terms::ttft(row)).max(0.01) * ttft_bias;
        let raw_itl_ms = itl.model.predict_one(&terms::itl(row)).max(0.01) * itl_bias;
        let ttft_scale = ttft_bias * ttft.factors.p50;
        let itl_scale = itl_bias * itl.factors.p50;
        let itl_ms = raw_itl_ms * itl.factors.p50;
        let own = ttft.model.predict_one(&terms::ttft(row));
        let pending = ttft.model.predict_one(&terms::without_own(row));
        let idle = ttft.model.predict_one(&terms::without_any(row));
        let itl_without_ms = itl.model.predict_one(&terms::itl_without(row)).max(0.01) * itl_scale;
        Prediction {
            ttft_ms: raw_ttft_ms * ttft.factors.p50,
            ttft_p90_ms: raw_ttft_ms * ttft.factors.p90,
            itl_ms,
            itl_p90_ms: raw_itl_ms * itl.factors.p90,
            prefill_ms: (own - pending).max(0.0) * ttft_scale,
            pending_ms: (pending - idle).max(0.0) * ttft_scale,
            itl_without_ms,
            itl_growth_ms: (itl_ms - itl_without_ms).max(0.0),
            labels: ttft.labels.min(itl.labels),
        }
    }
}
