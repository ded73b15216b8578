//! Learns from tickets that met their outcome, and publishes what it knows.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use features::FeatureRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Accelerator, Role};

use crate::{
    class::{Forecasts, ServedClass},
    drift::{Drift, STEP_WIDTH, Step},
    experts::{Kinds, PER_ENDPOINT},
    joint::{Joint, SavedJoint},
    key::ClassKey,
    load::LoadError,
    models::{ForModel, Models},
    options::Options,
    outputs::OutputLengths,
    prior::{self, Fit, Priors, Ready, Taught},
    regime::Regime,
    report::{ClassError, Promoted, TargetError},
    scopes::Scopes,
    seen::Seen,
    shaped::Shape,
    target::{Saved, TargetModel},
    terms::Target,
    ticket::{Outcome, Ticket},
    window::Place,
};

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) ttft: TargetModel,
    pub(crate) itl: TargetModel,
    pub(crate) joint: Joint,
    pub(crate) drift: Drift,
    /// Whether it has started from a prior.
    pub(crate) grown: bool,
    served: Arc<ServedClass>,
    pub(crate) stale: bool,
}

/// What is known of one model.
#[derive(Debug, Default)]
pub(crate) struct OneModel {
    pub(crate) classes: BTreeMap<ClassKey, Class>,
    pub(crate) pooled: Option<Class>,
    pub(crate) outputs: OutputLengths,
    pub(crate) scopes: Scopes,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedLearner {
    /// Names of the features, in row order: rows of other features mean something else.
    columns: Vec<String>,
    /// Those that its models saw; empty means all.
    #[serde(default)]
    seen: Vec<String>,
    models: Vec<SavedModel>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedModel {
    name: String,
    outputs: OutputLengths,
    #[serde(default)]
    scopes: Scopes,
    pooled: Option<SavedClass>,
    /// By accelerator and role.
    classes: Vec<(String, String, SavedClass)>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedClass {
    ttft: Saved,
    itl: Saved,
    drift: (Option<Value>, u32),
    #[serde(default)]
    joint: Option<SavedJoint>,
    #[serde(default)]
    grown: bool,
}

fn columns() -> Vec<String> {
    features::SCHEMA.iter().map(|feature| feature.name.to_owned()).collect()
}

/// All models, as they learn.
#[derive(Debug)]
pub struct Learner {
    pub(crate) kinds: Kinds,
    of_pool: Kinds,
    min_labels: u32,
    seen: Seen,
    ready: Arc<Ready>,
    pub(crate) models: BTreeMap<Arc<str>, OneModel>,
    /// Fits that wait, longest first; each at most once, so at most two for each class.
    pub(crate) due: VecDeque<Place>,
}

/// Most models (by name) that are learned; requests for more are routed but not learned from, since a
/// caller chooses the name.
pub(crate) const MAX_MODELS: usize = 64;
/// Most classes of one model.
pub(crate) const MAX_CLASSES: usize = 64;

impl Learner {
    /// A learner that knows nothing; an unknown regressor is an error.
    pub fn new(options: &Options) -> regress::Result<Self> {
        Self::with_priors(options, Arc::default())
    }

    /// A learner whose classes start from `priors`, where one fits.
    pub fn with_priors(options: &Options, priors: Arc<Priors>) -> regress::Result<Self> {
        let online: Vec<_> =
            options.regressors.iter().map(|name| regress::kind(name)).collect::<Result<_, _>>()?;
        if online.is_empty() {
            return Err(regress::Error::Unknown(String::new()));
        }
        let batch = options.batch.iter().map(|name| {
            let found = regress::BATCH.iter().find(|kind| kind.name == name);
            found.ok_or_else(|| regress::Error::Unknown(name.clone()))
        });
        let mut kinds = Kinds {
            online,
            shapes: Vec::new(),
            per_endpoint: false,
            batch: batch.collect::<Result<_, _>>()?,
            step: regress::kind("rls")?,
        };
        for name in &options.experts {
            match Shape::ALL.into_iter().find(|shape| shape.name() == name) {
                Some(shape) => kinds.shapes.push(shape),
                None if name == PER_ENDPOINT => kinds.per_endpoint = true,
                None => return Err(regress::Error::Unknown(name.clone())),
            }
        }
        let names = kinds.names();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))
        {
            return Err(regress::Error::Twice(twice.1));
        }
        let seen = Seen::of(&options.features);
        let priors = if seen.is_all() { priors } else { Arc::default() };
        let served = |prior| {
            let mut class = Class::new(&kinds);
            class.start_from(&kinds, &Fit::exact(prior)).then(|| class.served())
        };
        let served = priors.iter().map(served).collect();
        let ready = Arc::new(Ready { priors, served });
        let min_labels = options.min_labels.max(1);
        let of_pool = kinds.of_pool();
        Ok(Self {
            kinds,
            of_pool,
            min_labels,
            seen,
            ready,
            models: BTreeMap::new(),
            due: VecDeque::new(),
        })
    }

    /// One of the same models that knows nothing.
    pub(crate) fn fresh(&self) -> Self {
        Self {
            kinds: self.kinds.clone(),
            of_pool: self.of_pool.clone(),
            min_labels: self.min_labels,
            seen: self.seen,
            ready: Arc::clone(&self.ready),
            models: BTreeMap::new(),
            due: VecDeque::new(),
        }
    }

    /// Teaches every model of the class what came of `ticket`. Tells which models serve anew. An outcome
    /// that cannot be true changes nothing; [`Outcome::check`] says what is wrong with it.
    pub fn learn(&mut self, ticket: &Ticket, outcome: &Outcome) -> Vec<Promoted> {
        if outcome.check_values(&ticket.row).is_err() {
            return Vec::new();
        }
        let known = self.models.len();
        let model = match self.models.get_mut(&ticket.class.model) {
            Some(model) => model,
            None if known < MAX_MODELS => {
                self.models.entry(Arc::clone(&ticket.class.model)).or_default()
            }
            None => return Vec::new(),
        };
        if let Some(tokens) = outcome.output_tokens {
            model.outputs.push(tokens);
            if let Some(scope) = &ticket.scope {
                model.scopes.push(scope, tokens);
            }
        }
        if let Some((bytes, tokens)) = outcome.prompt {
            model.outputs.push_prompt(bytes, tokens);
        }
        let pooled = model.pooled.get_or_insert_with(|| Class::new(&self.of_pool));
        let row = self.seen.row(&ticket.row);
        pooled.learn(ticket, &row, outcome, None);
        let classes = model.classes.len();
        let class = match model.classes.get_mut(&ticket.class) {
            Some(class) => class,
            None if classes < MAX_CLASSES => {
                let mut class = Class::new(&self.kinds);
                let name = &ticket.class.model;
                if let Some(fit) = self.ready.priors.find(name, &ticket.class.accelerator) {
                    class.start_from(&self.kinds, &fit);
                }
                model.classes.entry(ticket.class.clone()).or_insert(class)
            }
            None => return Vec::new(),
        };
        let promoted = class.learn(ticket, &row, outcome, ticket.forecasts.as_deref());
        for target in class.fallen_due() {
            let place = Place { class: ticket.class.clone(), target };
            if !self.due.contains(&place) {
                self.due.push_back(place);
            }
        }
        promoted
    }

    /// Takes a sample of an endpoint's steps; the size of a change (log) if it shows one. The endpoint's
    /// predictions then follow at once.
    pub fn observe_step(&mut self, class: &ClassKey, slot: u32, step: &Step) -> Option<f32> {
        let class = self.models.get_mut(&class.model)?.classes.get_mut(class)?;
        let shift = class.drift.observe(slot, step)?;
        class.ttft.shift(slot, shift);
        class.itl.shift(slot, shift);
        class.stale = true;
        Some(shift)
    }

    /// Names of the models that learn each target, in the order of forecasts.
    pub fn model_names(&self) -> Vec<&'static str> {
        self.kinds.names()
    }

    /// Forgets what belongs to endpoints alone that are not `live`. To be told whenever one goes: a label
    /// that comes after its endpoint has gone is remembered until the next one goes.
    pub fn keep_only(&mut self, live: &BTreeSet<u32>) {
        for model in self.models.values_mut() {
            for class in model.classes.values_mut().chain(&mut model.pooled) {
                class.ttft.keep_only(live);
                class.itl.keep_only(live);
                class.drift.keep_only(live);
                class.stale = true;
            }
        }
    }

    /// What is known now, to be read by the request path.
    pub fn publish(&mut self) -> Models {
        let (min_labels, seen) = (self.min_labels, self.seen);
        let empty = ForModel { min_labels, seen, ..ForModel::default() };
        let mut published = Models {
            by_model: BTreeMap::new(),
            empty: Arc::new(empty),
            ready: Arc::clone(&self.ready),
        };
        for (name, model) in &mut self.models {
            let for_model = ForModel {
                classes: model
                    .classes
                    .iter_mut()
                    .map(|(key, class)| (key.accelerator.clone(), key.role, class.served()))
                    .collect(),
                pooled: model.pooled.as_mut().map(Class::served),
                lengths: model.outputs.lengths(),
                scopes: model.scopes.served(),
                bytes_per_token: Some(model.outputs.bytes_per_token()),
                min_labels,
                seen,
                bare: self.ready.of(name),
            };
            published.by_model.insert(Arc::clone(name), Arc::new(for_model));
        }
        published
    }

    /// The whole state as JSON text, so that a restart predicts what it predicted before. Endpoints are
    /// kept by the name that `name_of` gives a slot; one without a name loses its correction.
    pub fn save(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Result<Vec<u8>, LoadError> {
        let class = |class: &Class| SavedClass {
            ttft: class.ttft.save(name_of),
            itl: class.itl.save(name_of),
            drift: class.drift.save(),
            joint: class.joint.save(),
            grown: class.grown,
        };
        let models = self.models.iter().map(|(name, model)| SavedModel {
            name: name.to_string(),
            outputs: model.outputs.clone(),
            scopes: model.scopes.clone(),
            pooled: model.pooled.as_ref().map(class),
            classes: model
                .classes
                .iter()
                .map(|(key, of)| {
                    let accelerator = key.accelerator.as_str().to_owned();
                    (accelerator, key.role.as_str().to_owned(), class(of))
                })
                .collect(),
        });
        let seen = self.seen.names();
        let saved = SavedLearner { columns: columns(), seen, models: models.collect() };
        Ok(serde_json::to_vec(&saved)?)
    }

    /// Takes over what [`Learner::save`] gave, in place of all that is known. Fails, and leaves the
    /// learner as it was, if it was saved with other features or other models.
    pub fn restore(
        &mut self,
        saved: &[u8],
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        let saved: SavedLearner = serde_json::from_slice(saved)?;
        let differs = LoadError::columns(&saved.columns, &columns())
            .or_else(|| LoadError::columns(&saved.seen, &self.seen.names()));
        if let Some(error) = differs {
            return Err(error);
        }
        let class = |kinds: &Kinds, saved: SavedClass| {
            let mut class = Class::new(kinds);
            class.ttft.restore(saved.ttft, slot_of)?;
            class.itl.restore(saved.itl, slot_of)?;
            class.drift.restore(&self.kinds.step, saved.drift)?;
            class.joint.restore(saved.joint)?;
            class.grown = saved.grown;
            class.stale = true;
            Ok::<_, LoadError>(class)
        };
        let mut models = BTreeMap::new();
        for saved in saved.models.into_iter().take(MAX_MODELS) {
            let name: Arc<str> = saved.name.into();
            let mut model = OneModel {
                pooled: saved.pooled.map(|saved| class(&self.of_pool, saved)).transpose()?,
                outputs: saved.outputs,
                scopes: saved.scopes,
                ..OneModel::default()
            };
            for (accelerator, role, of) in saved.classes.into_iter().take(MAX_CLASSES) {
                let key = ClassKey {
                    model: Arc::clone(&name),
                    accelerator: Accelerator::new(&accelerator),
                    role: Role::from_label(Some(&role)),
                };
                model.classes.insert(key, class(&self.kinds, of)?);
            }
            models.insert(name, model);
        }
        self.models = models;
        self.due.clear();
        Ok(())
    }

    /// How good every class is.
    pub fn errors(&self) -> Vec<ClassError> {
        let classes = self.models.values().flat_map(|model| &model.classes);
        classes
            .map(|(key, class)| ClassError {
                class: key.to_string(),
                ttft: TargetError::of(&class.ttft),
                itl: TargetError::of(&class.itl),
                drifts: class.drift.changes(),
            })
            .collect()
    }
}

impl Class {
    fn new(kinds: &Kinds) -> Self {
        let target = |target| TargetModel::new(target, kinds);
        let (ttft, itl) = (target(Target::Ttft), target(Target::Itl));
        let (ttft_served, itl_served) = (ttft.publish(), itl.publish());
        let served = Arc::new(ServedClass { ttft: ttft_served, itl: itl_served, grown: false });
        let drift = Drift::new((kinds.step.build)(STEP_WIDTH, &Value::Null).ok());
        let joint = Joint::new(kinds.step);
        Self { ttft, itl, joint, drift, grown: false, served, stale: false }
    }

    /// Takes over what a prior knows; `false`, and nothing has changed, if its models cannot.
    fn start_from(&mut self, kinds: &Kinds, fit: &Fit<'_>) -> bool {
        let Fit { prior, scale, strength, .. } = *fit;
        let of = |target| prior::scale(target, scale, strength);
        let mut fresh = Self::new(kinds);
        let starts = |of: &mut TargetModel, taught: &Taught, scale: &regress::Scale| {
            let saved = (&*taught.regressor, &taught.state);
            of.start_from(saved, &taught.residuals, scale).unwrap_or(false)
        };
        if !(starts(&mut fresh.ttft, &prior.ttft, &of(Target::Ttft))
            && starts(&mut fresh.itl, &prior.itl, &of(Target::Itl)))
        {
            return false;
        }
        if let Some(step) = &prior.step {
            fresh.drift.start_from(step, scale, strength);
        }
        *self = Self { grown: true, stale: true, ..fresh };
        true
    }

    fn learn(
        &mut self,
        ticket: &Ticket,
        row: &FeatureRow,
        outcome: &Outcome,
        forecasts: Option<&Forecasts>,
    ) -> Vec<Promoted> {
        let mut promoted = Vec::new();
        let mut tell = |target: Target, champion: Option<(Regime, &'static str)>| {
            if let Some((regime, champion)) = champion {
                promoted.push(Promoted {
                    class: ticket.class.to_string(),
                    target: target.as_str(),
                    regime: regime.as_str(),
                    champion,
                });
            }
        };
        if let Some(ttft_ms) = outcome.ttft_ms {
            let forecast = forecasts.map(|f| &f.ttft);
            self.joint.learn_part(Target::Ttft, row, ttft_ms);
            tell(Target::Ttft, self.ttft.learn(ticket.slot, row, ttft_ms, forecast));
        }
        if let Some(itl_ms) = outcome.itl_ms {
            let forecast = forecasts.map(|f| &f.itl);
            self.joint.learn_part(Target::Itl, row, itl_ms);
            tell(Target::Itl, self.itl.learn(ticket.slot, row, itl_ms, forecast));
        }
        if let Some(ms) = outcome.itl_so_far {
            self.itl.learn_early(ticket.slot, row, ms, forecasts.map(|f| &f.itl));
        }
        if let Some(split) = outcome.e2e.and_then(|whole| self.joint.learn(row, whole)) {
            // Parts that a model has told are no truth to judge models by.
            self.ttft.learn(ticket.slot, row, split.ttft_ms, None);
            if let Some(itl_ms) = split.itl_ms {
                self.itl.learn(ticket.slot, row, itl_ms, None);
            }
        }
        self.stale = true;
        promoted
    }

    /// The targets for which a fit has fallen due since this was last asked.
    fn fallen_due(&mut self) -> impl Iterator<Item = Target> + use<> {
        let ttft = self.ttft.rows.has_fallen_due().then_some(Target::Ttft);
        let itl = self.itl.rows.has_fallen_due().then_some(Target::Itl);
        ttft.into_iter().chain(itl)
    }

    fn served(&mut self) -> Arc<ServedClass> {
        if self.stale {
            let (ttft, itl) = (self.ttft.publish(), self.itl.publish());
            self.served = Arc::new(ServedClass { ttft, itl, grown: self.grown });
            self.stale = false;
        }
        Arc::clone(&self.served)
    }
}
