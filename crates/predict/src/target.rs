//! One target (TTFT or ITL) of one class: its models, which of them serves in which regime, its
//! calibration and the correction of each endpoint.

use std::collections::{BTreeMap, BTreeSet};

use features::FeatureRow;
use regress::Scale;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    calibration::{Calibration, ENOUGH, Offsets},
    correction::Correction,
    experts::{Experts, Kinds, MAX_EXPERTS, Published, Query, Raws},
    load::LoadError,
    regime::Regime,
    terms::{Target, Terms},
    trust::{Kept, Reach},
    window::{Rows, SavedRow},
};

/// A challenger must be better than the champion by this factor.
const HYSTERESIS: f32 = 0.97;
/// Judged rows of a regime before which its champion stays.
const BEFORE_SWITCH: f32 = 40.0;
/// Residuals of a regime from which it is calibrated by itself, not pooled.
const OWN_REGIME: usize = 3 * ENOUGH;

/// Rows over which the errors of the models are averaged.
const SCORES_MEMORY: f32 = 150.0;

/// What was predicted for a row at the instant of its decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// What every model said.
    pub(crate) raws: Raws,
    /// What was served, before quantiles: the champion with the endpoint's correction.
    pub(crate) point: f32,
    /// Log offsets of the promised quantiles.
    pub(crate) offsets: Offsets,
    /// Log offset of the p90 that the window of residuals gives by itself.
    pub(crate) uncorrected: f32,
    /// The endpoint's correction.
    pub(crate) correction: f32,
}

/// How the models have done in one regime.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Scores {
    judged: f32,
    /// Moving mean of the absolute log error, per model.
    errors: [f32; MAX_EXPERTS],
    champion: usize,
}

impl Scores {
    /// Both, weighed by what was judged; the champion is that of the one that has judged more.
    fn merge(&mut self, other: &Self) {
        let judged = self.judged + other.judged;
        if judged > 0.0 {
            for (mine, theirs) in self.errors.iter_mut().zip(other.errors) {
                *mine += (theirs - *mine) * other.judged / judged;
            }
        }
        if other.judged > self.judged {
            self.champion = other.champion;
        }
        self.judged = judged.min(SCORES_MEMORY);
    }
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
    reach: Reach,
    kept: Kept,
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
    reach: Reach,
    kept: Kept,
}

/// One target as it predicts.
#[derive(Debug)]
pub(crate) struct Served {
    target: Target,
    published: Published,
    champions: [usize; Regime::ALL.len()],
    offsets: [Offsets; Regime::ALL.len()],
    /// Log offsets of the p90 by the window alone.
    uncorrected: [f32; Regime::ALL.len()],
    /// Exponentials of the offsets.
    factors: [Factors; Regime::ALL.len()],
    corrections: Vec<(u32, f32)>,
    pub(crate) labels: u32,
    reach: Reach,
    is_calibrated: bool,
}

/// Factors of the promised quantiles on the point.
pub(crate) type Factors = Offsets;

/// One target as it is predicted for a row.
#[derive(Debug)]
pub(crate) struct Predicted<'a> {
    /// The physical terms of the row.
    pub(crate) terms: Terms,
    /// What the base predicts.
    pub(crate) base: f32,
    /// How far what is served is from it.
    pub(crate) factor: f32,
    pub(crate) factors: &'a Factors,
}

impl TargetModel {
    pub(crate) fn new(target: Target, kinds: &Kinds) -> Self {
        let experts = Experts::new(kinds, target);
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
            reach: Reach::default(),
            kept: Kept::default(),
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
        let query = Query { slot, row, terms: &terms };
        let mut promoted = None;
        if let Some(forecast) = forecast {
            promoted = self.judge(regime, label, forecast);
            self.correct(&query, label);
            let promised = Some(&forecast.offsets);
            self.regimes[regime as usize].learn(forecast.point, label, promised);
            self.pooled.learn(forecast.point, label, promised);
        } else if self.labels > 3 {
            let base = self.experts.base_now(&terms);
            self.pooled.learn(base, label, None);
        }
        self.experts.learn(&query, label);
        self.reach.learn(&terms);
        if self.experts.has_batch() {
            self.rows.push(row, label);
        }
        self.labels = self.labels.saturating_add(1);
        promoted
    }

    /// Learns `label`, the mean so far of a stream that goes on. It moves the correction of an endpoint that
    /// is new or has just changed; the whole stream is what is learned, judged and counted.
    pub(crate) fn learn_early(
        &mut self,
        slot: u32,
        row: &FeatureRow,
        label: f32,
        forecast: Option<&Forecast>,
    ) {
        if forecast.is_some() && self.corrections.get(&slot).is_none_or(|of| of.is_young()) {
            let terms = self.target.terms(row);
            self.correct(&Query { slot, row, terms: &terms }, label);
        }
    }

    /// Moves the endpoint's correction by what the champion would say now. What it said at the decision
    /// is no measure: the label came late, and what the models have learned since would be added twice.
    fn correct(&mut self, query: &Query<'_>, label: f32) {
        let champion = self.scores[Regime::of(query.row) as usize].champion;
        let now = self.experts.now(champion, query);
        self.corrections.entry(query.slot).or_default().push((label / now).ln());
    }

    fn judge(
        &mut self,
        regime: Regime,
        label: f32,
        forecast: &Forecast,
    ) -> Option<(Regime, &'static str)> {
        let p50 = forecast.point * forecast.offsets[0].exp();
        self.mean_error += f64::from(((p50 - label) / label).abs());
        self.served += 1.0;
        let residual = (label / forecast.point).ln();
        self.kept.judge(residual, residual <= forecast.offsets[1]);
        let experts = self.experts.len();
        let base = forecast.raws[self.experts.base()];
        let scores = &mut self.scores[regime as usize];
        scores.judged = (scores.judged + 1.0).min(SCORES_MEMORY);
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
        self.corrections.entry(slot).or_default().shift(shift);
        self.experts.reset(slot);
        for calibration in self.regimes.iter_mut().chain([&mut self.pooled]) {
            calibration.widen(shift);
        }
    }

    /// All of it, with endpoints by the name that `name_of` gives a slot.
    pub(crate) fn save(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Saved {
        let named = |(slot, correction): (&u32, &Correction)| Some((name_of(*slot)?, *correction));
        Saved {
            models: self.experts.save(name_of),
            scores: self.scores,
            labels: self.labels,
            regimes: self.regimes.clone(),
            pooled: self.pooled.clone(),
            corrections: self.corrections.iter().filter_map(named).collect(),
            rows: self.rows.save(),
            mean_error: self.mean_error,
            served: self.served,
            reach: self.reach,
            kept: self.kept,
        }
    }

    /// Takes over what was saved. Fails if it was saved with other models.
    pub(crate) fn restore(
        &mut self,
        saved: Saved,
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        self.experts.restore(saved.models, slot_of)?;
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
        self.reach = saved.reach;
        self.kept = saved.kept;
        Ok(())
    }

    /// Folds in what `other`, the same target elsewhere, has learned. On an error nothing has changed.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), LoadError> {
        self.experts.merge(&other.experts, other.labels > self.labels)?;
        for (mine, theirs) in self.scores.iter_mut().zip(&other.scores) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.regimes.iter_mut().zip(&other.regimes) {
            mine.merge(theirs);
        }
        self.pooled.merge(&other.pooled);
        for (slot, theirs) in &other.corrections {
            self.corrections.entry(*slot).or_default().merge(*theirs);
        }
        self.rows.merge(&other.rows);
        self.labels = self.labels.saturating_add(other.labels);
        self.mean_error += other.mean_error;
        self.served += other.served;
        self.reach.learn(other.reach.terms());
        Ok(())
    }

    /// Starts the base from what one of `kind` has saved, on `scale`, and the calibration from
    /// `residuals`; `false`, and nothing has changed, if the base is of another kind.
    pub(crate) fn start_from(
        &mut self,
        (kind, saved): (&str, &Value),
        residuals: &[f32],
        scale: &Scale,
    ) -> regress::Result<bool> {
        let started = self.experts.start_from(kind, saved, scale)?;
        if started {
            self.pooled.start_from(residuals);
        }
        Ok(started)
    }

    pub(crate) fn keep_only(&mut self, live: &BTreeSet<u32>) {
        self.corrections.retain(|slot, _| live.contains(slot));
        self.experts.keep_only(live);
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
        let own = |regime: Regime| {
            Some(&self.regimes[regime as usize]).filter(|own| own.len() >= OWN_REGIME)
        };
        let offsets = Regime::ALL.map(|regime| own(regime).map_or(pooled, Calibration::offsets));
        let uncorrected = |regime| own(regime).unwrap_or(&self.pooled).uncorrected();
        Served {
            target: self.target,
            published: self.experts.publish(),
            champions: self.scores.map(|scores| scores.champion),
            offsets,
            uncorrected: Regime::ALL.map(uncorrected),
            factors: offsets.map(|offsets| offsets.map(f32::exp)),
            corrections: self.corrections.iter().map(|(slot, c)| (*slot, c.factor())).collect(),
            labels: self.labels,
            reach: self.reach,
            is_calibrated: self.kept.is_calibrated(),
        }
    }
}

impl Forecast {
    /// The same of a class that is `scale` times as slow.
    pub(crate) fn on_scale(self, scale: f32) -> Self {
        Self { raws: self.raws.map(|raw| raw * scale), point: self.point * scale, ..self }
    }
}

impl Served {
    fn correction(&self, slot: u32) -> f32 {
        let found = self.corrections.binary_search_by_key(&slot, |(slot, _)| *slot);
        found.map_or(1.0, |at| self.corrections[at].1)
    }

    /// What is predicted for endpoint `slot`.
    pub(crate) fn predict(&self, slot: u32, row: &FeatureRow) -> Predicted<'_> {
        let regime = Regime::of(row) as usize;
        let terms = self.target.terms(row);
        let query = Query { slot, row, terms: &terms };
        let base = self.published.base(&terms);
        let champion = self.published.one(self.champions[regime], &query, base).unwrap_or(base);
        let factor = champion / base * self.correction(slot);
        Predicted { terms, base, factor, factors: &self.factors[regime] }
    }

    /// Whether a row of these terms lies where rows were learned.
    pub(crate) fn covers(&self, terms: &Terms) -> bool {
        self.reach.covers(terms, self.labels)
    }

    /// Whether promises were kept lately.
    pub(crate) fn is_calibrated(&self) -> bool {
        self.is_calibrated
    }

    /// What the base predicts for `terms`.
    pub(crate) fn base(&self, terms: &[f32]) -> f32 {
        self.published.base(terms)
    }

    /// What every model says, beside what is served: for a row that will be judged.
    pub(crate) fn forecast(&self, slot: u32, row: &FeatureRow) -> Forecast {
        let Predicted { terms, base, factor, .. } = self.predict(slot, row);
        let raws = self.published.all(&Query { slot, row, terms: &terms });
        let regime = Regime::of(row) as usize;
        Forecast {
            raws,
            point: base * factor,
            offsets: self.offsets[regime],
            uncorrected: self.uncorrected[regime],
            correction: self.correction(slot),
        }
    }
}
