//! The models that learn one target side by side: online ones on physical terms, batch ones fitted in
//! the background.
//!
//! The last online model is the base. Tree ensembles predict the ratio of the observed value to the base,
//! so that they correct what the physical terms miss and never have to extrapolate a load: outside its
//! training range such a model abstains, and the base stands.

use std::sync::Arc;

use features::FeatureRow;
use regress::{BatchKind, Fitted, Kind, Regressor};
use serde_json::Value;

use crate::load::LoadError;

/// Most models per target.
pub(crate) const MAX_EXPERTS: usize = 6;
/// Furthest that a tree ensemble may move the base, as a factor.
const MAX_RATIO: f32 = 4.0;
/// Smallest latency that a model may predict, in milliseconds.
const LEAST_MS: f32 = 0.01;

/// What every model predicted for a row, in milliseconds; not a number where one abstained.
pub(crate) type Raws = [f32; MAX_EXPERTS];

/// What a batch model looks at and predicts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Input {
    /// Physical terms, to the latency itself.
    Terms,
    /// The whole row, to the ratio of the latency to the base.
    Ratio,
}

impl Input {
    pub(crate) fn of(kind: &BatchKind) -> Self {
        if kind.name == "elastic-net" { Self::Terms } else { Self::Ratio }
    }
}

/// The models of one target as they learn.
#[derive(Debug)]
pub(crate) struct Experts {
    pub(crate) online: Vec<(&'static str, Box<dyn Regressor>)>,
    pub(crate) batch: Vec<(&'static BatchKind, Option<Arc<dyn Fitted>>)>,
}

/// The models of one target as they predict.
#[derive(Debug)]
pub(crate) struct Published {
    online: Vec<Box<dyn Regressor>>,
    batch: Vec<(Input, Option<Arc<dyn Fitted>>)>,
}

impl Experts {
    pub(crate) fn new(kinds: &[Kind], batch: &[&'static BatchKind], width: usize) -> Self {
        let build = |kind: &Kind| {
            let model = (kind.build)(width, &Value::Null).ok()?;
            Some((kind.name, model))
        };
        Self {
            online: kinds.iter().filter_map(build).collect(),
            batch: batch.iter().map(|kind| (*kind, None)).collect(),
        }
    }

    pub(crate) fn name(&self, at: usize) -> &'static str {
        let batch = at.checked_sub(self.online.len());
        batch.map_or_else(|| self.online[at].0, |batch| self.batch[batch].0.name)
    }

    pub(crate) fn len(&self) -> usize {
        self.online.len() + self.batch.len()
    }

    /// Position of the base.
    pub(crate) fn base(&self) -> usize {
        self.online.len() - 1
    }

    pub(crate) fn learn(&mut self, terms: &[f32], label: f32) {
        for (_, model) in &mut self.online {
            model.learn_one(terms, label);
        }
    }

    /// What the base predicts now.
    pub(crate) fn base_now(&self, terms: &[f32]) -> f32 {
        self.online[self.base()].1.predict_one(terms).max(LEAST_MS)
    }

    /// Every model by name.
    pub(crate) fn save(&self) -> Vec<(String, Option<Value>)> {
        let online =
            self.online.iter().map(|(name, model)| ((*name).to_owned(), Some(model.save())));
        let batch = self.batch.iter().map(|(kind, fitted)| {
            (kind.name.to_owned(), fitted.as_ref().map(|fitted| fitted.save()))
        });
        online.chain(batch).collect()
    }

    /// Takes over models that were saved by a learner of the same models.
    pub(crate) fn restore(&mut self, saved: Vec<(String, Option<Value>)>) -> Result<(), LoadError> {
        let same = saved.len() == self.len()
            && saved.iter().enumerate().all(|(at, (name, _))| name == self.name(at));
        if !same {
            return Err(LoadError::Models);
        }
        let online = self.online.len();
        for (at, (name, value)) in saved.into_iter().enumerate() {
            let Some(value) = value else { continue };
            match at.checked_sub(online) {
                None => self.online[at].1 = (regress::kind(&name)?.load)(value)?,
                Some(batch) => {
                    let (kind, place) = &mut self.batch[batch];
                    *place = Some(Arc::from((kind.load)(value)?));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn publish(&self) -> Published {
        Published {
            online: self.online.iter().map(|(_, model)| model.copy()).collect(),
            batch: self
                .batch
                .iter()
                .map(|(kind, fitted)| (Input::of(kind), fitted.clone()))
                .collect(),
        }
    }
}

impl Published {
    /// What the base predicts.
    pub(crate) fn base(&self, terms: &[f32]) -> f32 {
        self.online.last().map_or(LEAST_MS, |base| base.predict_one(terms)).max(LEAST_MS)
    }

    /// What model `at` predicts, `None` if it abstains; `base` is what the base predicts.
    pub(crate) fn one(&self, at: usize, terms: &[f32], row: &FeatureRow, base: f32) -> Option<f32> {
        let Some(batch) = at.checked_sub(self.online.len()) else {
            return Some(self.online[at].predict_one(terms).max(LEAST_MS));
        };
        let (input, fitted) = self.batch.get(batch)?;
        let fitted = fitted.as_ref()?;
        match input {
            Input::Terms => fitted.covers(terms).then(|| fitted.predict_one(terms).max(LEAST_MS)),
            Input::Ratio => fitted.covers(row.as_slice()).then(|| {
                let ratio = fitted.predict_one(row.as_slice());
                base * ratio.clamp(1.0 / MAX_RATIO, MAX_RATIO)
            }),
        }
    }

    /// What every model predicts.
    pub(crate) fn all(&self, terms: &[f32], row: &FeatureRow) -> Raws {
        let base = self.base(terms);
        let mut raws = [f32::NAN; MAX_EXPERTS];
        for (at, raw) in raws.iter_mut().enumerate().take(self.online.len() + self.batch.len()) {
            *raw = self.one(at, terms, row, base).unwrap_or(f32::NAN);
        }
        raws
    }
}
