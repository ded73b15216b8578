//! The models that learn one target side by side: online ones on physical terms, ones shaped after an
//! engine, one per endpoint, and batch ones fitted in the background.
//!
//! The last plain online model is the base. For the TTFT, tree ensembles predict the ratio of the observed
//! value to the base, so that they correct what the physical terms miss and never have to extrapolate a
//! load; the ITL, which bends with the KV cache, they predict by itself, and so they do both where the base
//! is the mean, which knows no load. Outside its training range such a
//! model abstains, and the base stands.

use std::{collections::BTreeSet, sync::Arc};

use features::FeatureRow;
use regress::{BatchKind, Family, FamilyWeights, Fitted, Frozen, Kind, Regressor, Scale};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    load::LoadError,
    shaped::{Says, Shape, Shaped},
    terms::Target,
};

/// Most models per target.
pub(crate) const MAX_EXPERTS: usize = 10;
/// Furthest that a tree ensemble may move the base, as a factor.
const MAX_RATIO: f32 = 4.0;
/// Smallest latency that a model may predict, in milliseconds.
const LEAST_MS: f32 = 0.01;
/// Labels that the past weighs after an endpoint has changed.
const LABELS_AFTER_CHANGE: f64 = 30.0;
/// Name of the model that has weights for each endpoint.
pub(crate) const PER_ENDPOINT: &str = "endpoint-rls";
/// Names of the models made for engines.
pub const EXPERTS: [&str; 3] = ["twin", "overload", PER_ENDPOINT];

/// What every model predicted for a row, in milliseconds; not a number where one abstained.
pub(crate) type Raws = [f32; MAX_EXPERTS];

/// One row as the models look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    pub(crate) slot: u32,
    pub(crate) row: &'a FeatureRow,
    /// The physical terms of the row.
    pub(crate) terms: &'a [f32],
}

/// The models that a learner runs.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    /// Plain ones; the last is the base.
    pub(crate) online: Vec<Kind>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) per_endpoint: bool,
    pub(crate) batch: Vec<&'static BatchKind>,
    /// What learns steps, shapes and whole answers.
    pub(crate) step: Kind,
}

impl Kinds {
    /// Those that the pool of all classes runs, the first of those of a class: it answers for classes that
    /// have hardly a label, and is never judged, so that only its base would ever serve.
    pub(crate) fn of_pool(&self) -> Self {
        Self { shapes: Vec::new(), per_endpoint: false, batch: Vec::new(), ..self.clone() }
    }

    /// The batch models of a target, with what each looks at and predicts.
    pub(crate) fn batch_of(
        &self,
        target: Target,
    ) -> impl Iterator<Item = (&'static BatchKind, Input)> {
        let base = self.online.last().map(|kind| kind.name);
        self.batch.iter().map(move |kind| (*kind, Input::of(kind, target, base)))
    }

    /// Every model by name, in the order of forecasts.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let online = self.online.iter().map(|kind| kind.name);
        let shapes = self.shapes.iter().map(|shape| shape.name());
        let per_endpoint = self.per_endpoint.then_some(PER_ENDPOINT);
        let batch = self.batch.iter().map(|kind| kind.name);
        online.chain(shapes).chain(per_endpoint).chain(batch).collect()
    }
}

/// Options of `kind` for a target. The ITL of an answer depends on what arrives while it runs, so that one
/// label tells little, and it takes many to tell the terms apart.
pub(crate) fn tuning(kind: &Kind, target: Target) -> Value {
    match target {
        Target::Itl if kind.name == "rls" => json!({"forgetting": 0.9995}),
        _ => Value::Null,
    }
}

/// What a batch model looks at and predicts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Input {
    /// Physical terms, to the latency itself.
    Terms,
    /// The whole row, to the latency itself.
    Row,
    /// The whole row, to the ratio of the latency to the base.
    Ratio,
}

impl Input {
    fn of(kind: &BatchKind, target: Target, base: Option<&str>) -> Self {
        match target {
            _ if kind.name == "elastic-net" => Self::Terms,
            Target::Ttft if base != Some("mean") => Self::Ratio,
            Target::Ttft | Target::Itl => Self::Row,
        }
    }
}

/// The models of one target, less those per endpoint: as they learn, or frozen.
#[derive(Debug)]
struct Common<M> {
    online: Vec<M>,
    shaped: Vec<Shaped<M>>,
    /// Whether one per endpoint follows, which is kept apart.
    per_endpoint: bool,
    batch: Vec<(Input, Option<Arc<dyn Fitted>>)>,
}

/// The models of one target as they learn.
#[derive(Debug)]
pub(crate) struct Experts {
    kinds: Kinds,
    names: Vec<&'static str>,
    common: Common<Box<dyn Regressor>>,
    family: Option<Family>,
}

/// The models of one target as they predict.
#[derive(Debug)]
pub(crate) struct Published {
    common: Common<Frozen>,
    family: Option<FamilyWeights>,
}

/// Models per endpoint as they are saved.
#[derive(Deserialize, Serialize)]
struct SavedFamily {
    /// Names of the endpoints, by their number in the family.
    endpoints: Vec<String>,
    family: Family,
}

impl Experts {
    pub(crate) fn new(kinds: &Kinds, target: Target) -> Self {
        let build = |kind: &Kind| (kind.build)(target.width(), &tuning(kind, target)).ok();
        let shaped =
            |shape: &Shape| Shaped::new(*shape, target, &kinds.step, &tuning(&kinds.step, target));
        let common = Common {
            online: kinds.online.iter().filter_map(build).collect(),
            shaped: kinds.shapes.iter().filter_map(shaped).collect(),
            per_endpoint: kinds.per_endpoint,
            batch: kinds.batch_of(target).map(|(_, input)| (input, None)).collect(),
        };
        Self {
            kinds: kinds.clone(),
            names: kinds.names(),
            common,
            family: kinds.per_endpoint.then(|| Family::new(target.width())),
        }
    }

    pub(crate) fn name(&self, at: usize) -> &'static str {
        self.names[at]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Position of the base.
    pub(crate) fn base(&self) -> usize {
        self.common.online.len() - 1
    }

    pub(crate) fn learn(&mut self, query: &Query<'_>, label: f32) {
        for model in &mut self.common.online {
            model.learn_one(query.terms, label);
        }
        for shaped in &mut self.common.shaped {
            shaped.learn(query.row, label);
        }
        if let Some(family) = &mut self.family {
            family.learn_one(query.slot, query.terms, label);
        }
    }

    /// Endpoint `slot` has changed: what was learned before counts for little.
    pub(crate) fn reset(&mut self, slot: u32) {
        let shaped = self.common.shaped.iter_mut().map(|shaped| &mut shaped.model);
        for model in self.common.online.iter_mut().chain(shaped) {
            model.soften(LABELS_AFTER_CHANGE);
        }
        if let Some(family) = &mut self.family {
            family.reset(slot);
        }
    }

    pub(crate) fn keep_only(&mut self, live: &BTreeSet<u32>) {
        if let Some(family) = &mut self.family {
            family.keep_only(|slot| live.contains(&slot));
        }
    }

    /// Whether there are models that are fitted to the rows that are kept.
    pub(crate) fn has_batch(&self) -> bool {
        !self.common.batch.is_empty()
    }

    /// What the base predicts now.
    pub(crate) fn base_now(&self, terms: &[f32]) -> f32 {
        self.common.base(terms)
    }

    /// What model `at` predicts now; what the base does where it abstains.
    pub(crate) fn now(&self, at: usize, query: &Query<'_>) -> f32 {
        let base = self.common.base(query.terms);
        let own = |family: &Family| family.predict_one(query.slot, query.terms);
        self.common.one(at, query, base, self.family.as_ref().and_then(own)).unwrap_or(base)
    }

    /// Puts a freshly fitted batch model in the place of the older one.
    pub(crate) fn install(&mut self, batch: usize, fitted: Box<dyn Fitted>) {
        if let Some((_, place)) = self.common.batch.get_mut(batch) {
            *place = Some(Arc::from(fitted));
        }
    }

    /// Starts the base from what one of `kind` has saved; `false` if it is of another kind.
    pub(crate) fn start_from(
        &mut self,
        kind: &str,
        saved: &Value,
        scale: &Scale,
    ) -> regress::Result<bool> {
        let base = self.base();
        if self.names[base] == kind {
            self.common.online[base].start_from(saved, scale)
        } else {
            Ok(false)
        }
    }

    /// Every model by name; endpoints by the name that `name_of` gives a slot.
    pub(crate) fn save(
        &self,
        name_of: &dyn Fn(u32) -> Option<String>,
    ) -> Vec<(String, Option<Value>)> {
        let online = self.common.online.iter().map(|model| Some(model.save()));
        let shaped = self.common.shaped.iter().map(|shaped| Some(shaped.model.save()));
        let family = self.family.iter().map(|family| Some(save_family(family, name_of)));
        let batch = self.common.batch.iter().map(|(_, fitted)| Some(fitted.as_ref()?.save()));
        let saved = online.chain(shaped).chain(family).chain(batch);
        self.names.iter().map(|name| (*name).to_owned()).zip(saved).collect()
    }

    /// Takes over models that were saved by a learner of the same models.
    pub(crate) fn restore(
        &mut self,
        saved: Vec<(String, Option<Value>)>,
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        if !saved.iter().map(|(name, _)| name).eq(&self.names) {
            return Err(LoadError::Models);
        }
        let mut saved = saved.into_iter().map(|(_, value)| value);
        for (kind, model) in self.kinds.online.iter().zip(&mut self.common.online) {
            if let Some(value) = saved.next().flatten() {
                *model = (kind.load)(value)?;
            }
        }
        for shaped in &mut self.common.shaped {
            if let Some(value) = saved.next().flatten() {
                shaped.model = (self.kinds.step.load)(value)?;
            }
        }
        if let Some(family) = &mut self.family
            && let Some(value) = saved.next().flatten()
        {
            let SavedFamily { endpoints, family: of } = serde_json::from_value(value)?;
            *family = of.renumbered(|at| slot_of(endpoints.get(at as usize)?));
        }
        let places = self.kinds.batch.iter().zip(&mut self.common.batch);
        for ((kind, (_, place)), value) in places.zip(saved) {
            if let Some(value) = value {
                *place = Some(Arc::from((kind.load)(value)?));
            }
        }
        Ok(())
    }

    /// Folds in the online models of `other`, and takes over its batch models where `other_has_more`
    /// labels or this has none. On an error nothing has changed.
    pub(crate) fn merge(&mut self, other: &Self, other_has_more: bool) -> Result<(), LoadError> {
        if self.names != other.names {
            return Err(LoadError::Models);
        }
        let both = |mine: &dyn Regressor, theirs: &dyn Regressor| {
            let mut model = mine.copy();
            model.merge(&theirs.save())?;
            Ok(model)
        };
        let online = self.common.online.iter().zip(&other.common.online);
        let online = online.map(|(mine, theirs)| both(&**mine, &**theirs));
        let online: Vec<_> = online.collect::<regress::Result<_>>()?;
        let shaped = self.common.shaped.iter().zip(&other.common.shaped);
        let shaped = shaped.map(|(mine, theirs)| both(&*mine.model, &*theirs.model));
        let shaped: Vec<_> = shaped.collect::<regress::Result<_>>()?;
        if let (Some(mine), Some(theirs)) = (&mut self.family, &other.family) {
            mine.merge(theirs)?;
        }
        self.common.online = online;
        for (place, model) in self.common.shaped.iter_mut().zip(shaped) {
            place.model = model;
        }
        for ((_, mine), (_, theirs)) in self.common.batch.iter_mut().zip(&other.common.batch) {
            if theirs.is_some() && (mine.is_none() || other_has_more) {
                mine.clone_from(theirs);
            }
        }
        Ok(())
    }

    pub(crate) fn publish(&self) -> Published {
        let common = Common {
            online: self.common.online.iter().map(|model| model.freeze()).collect(),
            shaped: self.common.shaped.iter().map(Shaped::freeze).collect(),
            per_endpoint: self.common.per_endpoint,
            batch: self.common.batch.clone(),
        };
        Published { common, family: self.family.as_ref().map(Family::publish) }
    }
}

fn save_family(family: &Family, name_of: &dyn Fn(u32) -> Option<String>) -> Value {
    let named = |slot: u32| Some((slot, name_of(slot)?));
    let (slots, endpoints): (Vec<u32>, Vec<String>) = family.members().filter_map(named).unzip();
    let number = |slot: u32| slots.binary_search(&slot).ok().map(|at| at as u32);
    json!(SavedFamily { endpoints, family: family.renumbered(number) })
}

impl<M: Says> Common<M> {
    fn base(&self, terms: &[f32]) -> f32 {
        self.online.last().map_or(LEAST_MS, |base| base.says(terms)).max(LEAST_MS)
    }

    /// What model `at` predicts, `None` if it abstains. `base` is what the base predicts, and `own` what
    /// the model per endpoint does.
    fn one(&self, at: usize, query: &Query<'_>, base: f32, own: Option<f32>) -> Option<f32> {
        let at = match self.online.get(at) {
            Some(model) => return Some(model.says(query.terms).max(LEAST_MS)),
            None => at - self.online.len(),
        };
        let at = match self.shaped.get(at) {
            Some(shaped) => return Some(shaped.predict(query.row).max(LEAST_MS)),
            None => at - self.shaped.len(),
        };
        let at = match self.per_endpoint {
            true if at == 0 => return own.map(|ms| ms.max(LEAST_MS)),
            true => at - 1,
            false => at,
        };
        let (input, fitted) = self.batch.get(at)?;
        let fitted = fitted.as_ref()?;
        let row = query.row.as_slice();
        match input {
            Input::Terms => {
                let covered = fitted.covers(query.terms);
                covered.then(|| fitted.predict_one(query.terms).max(LEAST_MS))
            }
            Input::Row => fitted.covers(row).then(|| fitted.predict_one(row).max(LEAST_MS)),
            Input::Ratio => fitted
                .covers(row)
                .then(|| base * fitted.predict_one(row).clamp(1.0 / MAX_RATIO, MAX_RATIO)),
        }
    }
}

impl Published {
    /// What the base predicts.
    pub(crate) fn base(&self, terms: &[f32]) -> f32 {
        self.common.base(terms)
    }

    /// What model `at` predicts, `None` if it abstains; `base` is what the base predicts.
    pub(crate) fn one(&self, at: usize, query: &Query<'_>, base: f32) -> Option<f32> {
        let own = |family: &FamilyWeights| family.predict_one(query.slot, query.terms);
        self.common.one(at, query, base, self.family.as_ref().and_then(own))
    }

    /// What every model predicts.
    pub(crate) fn all(&self, query: &Query<'_>) -> Raws {
        let base = self.base(query.terms);
        let Common { online, shaped, per_endpoint, batch } = &self.common;
        let models = online.len() + shaped.len() + usize::from(*per_endpoint) + batch.len();
        let mut raws = [f32::NAN; MAX_EXPERTS];
        for (at, raw) in raws.iter_mut().enumerate().take(models) {
            *raw = self.one(at, query, base).unwrap_or(f32::NAN);
        }
        raws
    }
}
