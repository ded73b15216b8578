//! One target (TTFT or ITL) of one class: its models, which of them serves in which regime, its
//! calibration and the correction of each endpoint.

use std::collections::BTreeMap;

use features::FeatureRow;
use regress::{BatchKind, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    calibration::{Calibration, ENOUGH, Offsets},
    experts::{Experts, MAX_EXPERTS, Published, Raws},
    load::LoadError,
    regime::Regime,
    terms::Target,
    window::{Rows, SavedRow},
};

/// A challenger must be better than the champion by this factor.
const HYSTERESIS: f32 = 0.93;
/// Judged rows of a regime before which its champion stays.
const BEFORE_SWITCH: f32 = 40.0;
/// Residuals of a regime from which it is calibrated by itself, not pooled.
const OWN_REGIME: usize = 3 * ENOUGH;

/// What was predicted for a row at the instant of its decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// What every model said.
    pub(crate) raws: Raws,
    /// What was served, before quantiles: the champion with the endpoint's correction.
    pub(crate) point: f32,
    /// Log offsets of the promised quantiles.
    pub(crate) offsets: Offsets,
    /// The endpoint's correction.
    pub(crate) correction: f32,
}

/// Moving mean of one endpoint's log residual.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Correction {
    labels: f32,
    log_bias: f32,
    /// What sudden changes have added (log): believed at once, since it was measured.
    shift: f32,
}

impl Correction {
    /// Shrunk towards no correction while there are few labels.
    fn factor(self) -> f32 {
        const SHRINK: f32 = 15.0;
        (self.shift + self.log_bias * self.labels / (self.labels + SHRINK)).exp()
    }

    fn push(&mut self, residual: f32) {
        const MEMORY: f32 = 60.0;
        self.labels = (self.labels + 1.0).min(MEMORY);
        self.log_bias += ((residual - self.shift).clamp(-1.0, 1.0) - self.log_bias) / self.labels;
    }
}

/// How the models have done in one regime.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Scores {
    judged: f32,
    /// Moving mean of the absolute log error, per model.
    errors: [f32; MAX_EXPERTS],
    champion: usize,
}

/// What is kept of a target over a restart.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Saved {
    /// Every model by name; `None` for a batch model that was never fitted.
    models: Vec<(String, Option<Value>)>,
    scores: [Scores; Regime::ALL.len()],
    labels: u32,
    regimes: [Calibration; Regime::ALL.len()],
    pooled: Calibration,
    /// By endpoint.
    corrections: Vec<(String, Correction)>,
    rows: Vec<SavedRow>,
    mean_error: f64,
    served: f64,
}

/// One target of one class as it learns.
#[derive(Debug)]
pub(crate) struct TargetModel {
    target: Target,
    pub(crate) experts: Experts,
    scores: [Scores; Regime::ALL.len()],
    pub(crate) labels: u32,
    pub(crate) regimes: [Calibration; Regime::ALL.len()],
    pub(crate) pooled: Calibration,
    corrections: BTreeMap<u32, Correction>,
    pub(crate) rows: Rows,
    mean_error: f64,
    served: f64,
}

/// One target as it predicts.
#[derive(Debug)]
pub(crate) struct Served {
    target: Target,
    published: Published,
    champions: [usize; Regime::ALL.len()],
    offsets: [Offsets; Regime::ALL.len()],
    corrections: Vec<(u32, f32)>,
    pub(crate) labels: u32,
}

impl TargetModel {
    pub(crate) fn new(target: Target, kinds: &[Kind], batch: &[&'static BatchKind]) -> Self {
        let experts = Experts::new(kinds, batch, target.width());
        let fresh = Scores { judged: 0.0, errors: [0.0; MAX_EXPERTS], champion: experts.base() };
        Self {
            target,
            experts,
            scores: [fresh; Regime::ALL.len()],
            labels: 0,
            regimes: Default::default(),
            pooled: Calibration::default(),
            corrections: BTreeMap::new(),
            rows: Rows::default(),
            mean_error: 0.0,
            served: 0.0,
        }
    }

    /// Learns `label` for `row` on endpoint `slot`; `forecast` is what was predicted for it when it was
    /// decided, if anything was. Names the new champion if the label made one.
    pub(crate) fn learn(
        &mut self,
        slot: u32,
        row: &FeatureRow,
        label: f32,
        forecast: Option<&Forecast>,
    ) -> Option<(Regime, &'static str)> {
        let regime = Regime::of(row);
        let terms = self.target.terms(row);
        let mut promoted = None;
        if let Some(forecast) = forecast {
            promoted = self.judge(regime, label, forecast);
            let correction = self.corrections.entry(slot).or_default();
            correction.push((label / (forecast.point / forecast.correction)).ln());
            let promised = Some(&forecast.offsets);
            self.regimes[regime as usize].learn(forecast.point, label, promised);
            self.pooled.learn(forecast.point, label, promised);
        } else if self.labels > 3 {
            let base = self.experts.base_now(&terms);
            self.pooled.learn(base, label, None);
        }
        self.experts.learn(&terms, label);
        self.rows.push(row, label);
        self.labels = self.labels.saturating_add(1);
        promoted
    }

    fn judge(
        &mut self,
        regime: Regime,
        label: f32,
        forecast: &Forecast,
    ) -> Option<(Regime, &'static str)> {
        const MEMORY: f32 = 250.0;
        let p50 = forecast.point * forecast.offsets[0].exp();
        self.mean_error += f64::from(((p50 - label) / label).abs());
        self.served += 1.0;
        let experts = self.experts.len();
        let base = forecast.raws[self.experts.base()];
        let scores = &mut self.scores[regime as usize];
        scores.judged = (scores.judged + 1.0).min(MEMORY);
        for (error, raw) in scores.errors.iter_mut().zip(forecast.raws).take(experts) {
            // One that abstains leaves the base to stand.
            let raw = if raw.is_finite() { raw } else { base };
            let off = (label / (raw * forecast.correction)).ln().abs().min(3.0);
            *error += (off - *error) / scores.judged;
        }
        if scores.judged < BEFORE_SWITCH {
            return None;
        }
        let best = (0..experts).min_by(|a, b| scores.errors[*a].total_cmp(&scores.errors[*b]))?;
        if scores.errors[best] >= scores.errors[scores.champion] * HYSTERESIS {
            return None;
        }
        scores.champion = best;
        Some((regime, self.experts.name(best)))
    }

    /// The endpoint is slower or faster than its model by `shift` (log) since a moment ago.
    pub(crate) fn shift(&mut self, slot: u32, shift: f32) {
        // Few labels weigh what was learned before, so that the next ones move it fast.
        const LABELS_AFTER: f32 = 10.0;
        let correction = self.corrections.entry(slot).or_default();
        correction.shift = (correction.shift + shift).clamp(-3.0, 3.0);
        correction.labels = correction.labels.min(LABELS_AFTER);
        for calibration in self.regimes.iter_mut().chain([&mut self.pooled]) {
            calibration.widen(shift);
        }
    }

    /// All of it, with endpoints by the name that `name_of` gives a slot.
    pub(crate) fn save(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Saved {
        let named = |(slot, correction): (&u32, &Correction)| Some((name_of(*slot)?, *correction));
        Saved {
            models: self.experts.save(),
            scores: self.scores,
            labels: self.labels,
            regimes: self.regimes.clone(),
            pooled: self.pooled.clone(),
            corrections: self.corrections.iter().filter_map(named).collect(),
            rows: self.rows.save(),
            mean_error: self.mean_error,
            served: self.served,
        }
    }

    /// Takes over what was saved. Fails if it was saved with other models.
    pub(crate) fn restore(
        &mut self,
        saved: Saved,
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        self.experts.restore(saved.models)?;
        let slotted =
            |(name, correction): (String, Correction)| Some((slot_of(&name)?, correction));
        let champions = saved.scores.iter().map(|scores| scores.champion);
        if champions.into_iter().any(|champion| champion >= self.experts.len()) {
            return Err(LoadError::Models);
        }
        self.scores = saved.scores;
        self.labels = saved.labels;
        self.regimes = saved.regimes;
        self.pooled = saved.pooled;
        self.corrections = saved.corrections.into_iter().filter_map(slotted).collect();
        self.rows.restore(&saved.rows);
        self.mean_error = saved.mean_error;
        self.served = saved.served;
        Ok(())
    }

    pub(crate) fn forget(&mut self, slot: u32) {
        self.corrections.remove(&slot);
    }

    /// The calibration of all regimes together, which has judged every promise.
    pub(crate) fn overall(&self) -> &Calibration {
        &self.pooled
    }

    /// Mean absolute relative error of what was served; `None` before the first.
    pub(crate) fn mean_error(&self) -> Option<f32> {
        (self.served > 0.0).then(|| (self.mean_error / self.served) as f32)
    }

    pub(crate) fn champion(&self, regime: Regime) -> &'static str {
        self.experts.name(self.scores[regime as usize].champion)
    }

    pub(crate) fn publish(&self) -> Served {
        let pooled = self.pooled.offsets();
        let offsets = |regime: Regime| {
            let own = &self.regimes[regime as usize];
            if own.len() >= OWN_REGIME { own.offsets() } else { pooled }
        };
        Served {
            target: self.target,
            published: self.experts.publish(),
            champions: self.scores.map(|scores| scores.champion),
            offsets: Regime::ALL.map(offsets),
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

    /// What the base predicts for endpoint `slot`, how far what is served is from it, as a factor, and the
    /// log offsets of its quantiles.
    pub(crate) fn predict(&self, slot: u32, row: &FeatureRow) -> (f32, f32, Offsets) {
        let regime = Regime::of(row) as usize;
        let terms = self.target.terms(row);
        let base = self.published.base(&terms);
        let champion =
            self.published.one(self.champions[regime], &terms, row, base).unwrap_or(base);
        let factor = champion / base * self.correction(slot);
        (base, factor, self.offsets[regime])
    }

    /// What the base predicts for `terms`.
    pub(crate) fn base(&self, terms: &[f32]) -> f32 {
        self.published.base(terms)
    }

    /// What every model says, beside what is served: for a row that will be judged.
    pub(crate) fn forecast(&self, slot: u32, row: &FeatureRow) -> Forecast {
        let (base, factor, offsets) = self.predict(slot, row);
        let raws = self.published.all(&self.target.terms(row), row);
        Forecast { raws, point: base * factor, offsets, correction: self.correction(slot) }
    }
}
