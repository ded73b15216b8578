//! Learns from tickets that met their outcome, and publishes what it knows.

use std::{collections::BTreeMap, sync::Arc};

use features::FeatureRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{Accelerator, Role};

use crate::{
    class::{Forecasts, Prediction, ServedClass},
    drift::{Drift, STEP_WIDTH, Step},
    key::ClassKey,
    load::LoadError,
    models::{ForModel, Models},
    outputs::OutputLengths,
    regime::Regime,
    report::{ClassError, Promoted, TargetError},
    target::{Saved, TargetModel},
    terms::Target,
    window::{Refit, Refitted},
};

/// Tuning of the learner.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Online regressors, by name. All learn every row; the last is the base, which the others must beat
    /// to serve and which tree ensembles correct.
    pub regressors: Vec<String>,
    /// Batch regressors, by name, fitted anew in the background.
    pub batch: Vec<String>,
    /// Labels from which a class predicts by itself.
    pub min_labels: u32,
}

impl Default for Options {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            regressors: names(&["mean", "rls"]),
            batch: names(&["elastic-net", "random-forest", "boosted-trees"]),
            min_labels: 20,
        }
    }
}

/// The row a prediction was made from, kept until its label arrives.
///
/// Consumed by [`Learner::learn`], so no outcome can be learned twice.
#[derive(Debug)]
pub struct Ticket {
    /// Class of the endpoint it went to.
    pub class: ClassKey,
    /// Slot of that endpoint.
    pub slot: u32,
    /// The row.
    pub row: FeatureRow,
    /// What was predicted, if anything was.
    pub prediction: Option<Prediction>,
    /// What every model said, if anything was predicted.
    pub forecasts: Option<Box<Forecasts>>,
}

/// What then happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Time to first token, where it was seen.
    pub ttft_ms: Option<f32>,
    /// Mean time between tokens, where at least two were seen.
    pub itl_ms: Option<f32>,
    /// Output tokens of an answer that ended by itself.
    pub output_tokens: Option<u32>,
    /// Bytes and tokens of the prompt, where the endpoint told the tokens.
    pub prompt: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Class {
    ttft: TargetModel,
    itl: TargetModel,
    drift: Drift,
    served: Arc<ServedClass>,
    stale: bool,
}

#[derive(Debug, Default)]
struct OneModel {
    classes: BTreeMap<ClassKey, Class>,
    pooled: Option<Class>,
    outputs: OutputLengths,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedLearner {
    /// Names of the features, in row order: rows of other features mean something else.
    columns: Vec<String>,
    models: Vec<SavedModel>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedModel {
    name: String,
    outputs: OutputLengths,
    pooled: Option<SavedClass>,
    /// By accelerator and role.
    classes: Vec<(String, String, SavedClass)>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedClass {
    ttft: Saved,
    itl: Saved,
    drift: (Option<Value>, u32),
}

fn columns() -> Vec<String> {
    features::SCHEMA.iter().map(|feature| feature.name.to_owned()).collect()
}

#[derive(Debug)]
struct Kinds {
    online: Vec<regress::Kind>,
    batch: Vec<&'static regress::BatchKind>,
    step: regress::Kind,
}

/// All models, as they learn.
#[derive(Debug)]
pub struct Learner {
    kinds: Kinds,
    min_labels: u32,
    models: BTreeMap<Arc<str>, OneModel>,
}

/// Most models (by name) that are learned; requests for more are routed but not learned from, since a
/// caller chooses the name.
const MAX_MODELS: usize = 64;
/// Most classes of one model.
const MAX_CLASSES: usize = 64;

impl Learner {
    /// A learner that knows nothing; an unknown regressor is an error.
    pub fn new(options: &Options) -> regress::Result<Self> {
        let online: Vec<_> =
            options.regressors.iter().map(|name| regress::kind(name)).collect::<Result<_, _>>()?;
        if online.is_empty() {
            return Err(regress::Error::Unknown(String::new()));
        }
        let batch = options.batch.iter().map(|name| {
            let found = regress::BATCH.iter().find(|kind| kind.name == name);
            found.ok_or_else(|| regress::Error::Unknown(name.clone()))
        });
        let kinds =
            Kinds { online, batch: batch.collect::<Result<_, _>>()?, step: regress::kind("rls")? };
        Ok(Self { kinds, min_labels: options.min_labels.max(1), models: BTreeMap::new() })
    }

    /// Teaches every model of the class what came of `ticket`. Tells which models serve anew.
    pub fn learn(&mut self, ticket: &Ticket, outcome: &Outcome) -> Vec<Promoted> {
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
        }
        if let Some((bytes, tokens)) = outcome.prompt {
            model.outputs.push_prompt(bytes, tokens);
        }
        let kinds = &self.kinds;
        let fresh = || Class::new(kinds);
        model.pooled.get_or_insert_with(fresh).learn(ticket, outcome, None);
        let classes = model.classes.len();
        let forecasts = ticket.forecasts.as_deref();
        if let Some(class) = model.classes.get_mut(&ticket.class) {
            return class.learn(ticket, outcome, forecasts);
        }
        if classes < MAX_CLASSES {
            let mut class = fresh();
            class.learn(ticket, outcome, forecasts);
            model.classes.insert(ticket.class.clone(), class);
        }
        Vec::new()
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

    /// The fits that are due; each is to be run and handed to [`Learner::install`].
    pub fn take_refits(&mut self) -> Vec<Refit> {
        let mut due = Vec::new();
        for (name, model) in &mut self.models {
            let classes = model.classes.iter_mut().map(|(key, class)| (Some(key.clone()), class));
            let pooled = model.pooled.iter_mut().map(|class| (None, class));
            for (key, class) in classes.chain(pooled) {
                for (target, of) in [(Target::Ttft, &mut class.ttft), (Target::Itl, &mut class.itl)]
                {
                    if !self.kinds.batch.is_empty() && of.rows.take_due() {
                        let batch = self.kinds.batch.clone();
                        let which = (Arc::clone(name), key.clone(), target);
                        let experts = &of.experts;
                        due.push(Refit::new(which, batch, &of.rows, |t| experts.base_now(t)));
                    }
                }
            }
        }
        due
    }

    /// Puts freshly fitted models in place of the older ones. They serve once they have proved better.
    /// One that could not be fitted leaves the older one in place and is named in the answer.
    pub fn install(&mut self, refitted: Refitted) -> Vec<regress::Error> {
        let Some(model) = self.models.get_mut(&refitted.model) else { return Vec::new() };
        let class = match &refitted.class {
            Some(key) => model.classes.get_mut(key),
            None => model.pooled.as_mut(),
        };
        let Some(class) = class else { return Vec::new() };
        let target = match refitted.target {
            Target::Ttft => &mut class.ttft,
            Target::Itl => &mut class.itl,
        };
        class.stale = true;
        let mut failed = Vec::new();
        for ((_, place), fitted) in target.experts.batch.iter_mut().zip(refitted.models) {
            match fitted {
                Ok(fitted) => *place = Some(Arc::from(fitted)),
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// Names of the models that learn each target, in the order of forecasts.
    pub fn model_names(&self) -> Vec<&'static str> {
        let online = self.kinds.online.iter().map(|kind| kind.name);
        online.chain(self.kinds.batch.iter().map(|kind| kind.name)).collect()
    }

    /// Forgets what belongs to one endpoint alone.
    pub fn forget(&mut self, slot: u32) {
        for model in self.models.values_mut() {
            for class in model.classes.values_mut().chain(&mut model.pooled) {
                class.ttft.forget(slot);
                class.itl.forget(slot);
                class.drift.forget(slot);
                class.stale = true;
            }
        }
    }

    /// What is known now, to be read by the request path.
    pub fn publish(&mut self) -> Models {
        let mut published = Models::default();
        for (name, model) in &mut self.models {
            let for_model = ForModel {
                classes: model
                    .classes
                    .iter_mut()
                    .map(|(key, class)| (key.accelerator.clone(), key.role, class.served()))
                    .collect(),
                pooled: model.pooled.as_mut().map(Class::served),
                lengths: model.outputs.lengths(),
                bytes_per_token: Some(model.outputs.bytes_per_token()),
                min_labels: self.min_labels,
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
        };
        let models = self.models.iter().map(|(name, model)| SavedModel {
            name: name.to_string(),
            outputs: model.outputs.clone(),
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
        let saved = SavedLearner { columns: columns(), models: models.collect() };
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
        if saved.columns != columns() {
            return Err(LoadError::Features);
        }
        let class = |saved: SavedClass| {
            let mut class = Class::new(&self.kinds);
            class.ttft.restore(saved.ttft, slot_of)?;
            class.itl.restore(saved.itl, slot_of)?;
            class.drift.restore(&self.kinds.step, saved.drift)?;
            class.stale = true;
            Ok::<_, LoadError>(class)
        };
        let mut models = BTreeMap::new();
        for saved in saved.models.into_iter().take(MAX_MODELS) {
            let name: Arc<str> = saved.name.into();
            let mut model = OneModel {
                pooled: saved.pooled.map(class).transpose()?,
                outputs: saved.outputs,
                ..OneModel::default()
            };
            for (accelerator, role, of) in saved.classes.into_iter().take(MAX_CLASSES) {
                let key = ClassKey {
                    model: Arc::clone(&name),
                    accelerator: Accelerator::new(&accelerator),
                    role: Role::from_label(Some(&role)),
                };
                model.classes.insert(key, class(of)?);
            }
            models.insert(name, model);
        }
        self.models = models;
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
        let target = |target| TargetModel::new(target, &kinds.online, &kinds.batch);
        let (ttft, itl) = (target(Target::Ttft), target(Target::Itl));
        let served = Arc::new(ServedClass { ttft: ttft.publish(), itl: itl.publish() });
        let drift = Drift::new((kinds.step.build)(STEP_WIDTH, &Value::Null).ok());
        Self { ttft, itl, drift, served, stale: false }
    }

    fn learn(
        &mut self,
        ticket: &Ticket,
        outcome: &Outcome,
        forecasts: Option<&Forecasts>,
    ) -> Vec<Promoted> {
        let sound = |label: &f32| label.is_finite() && *label > 0.0;
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
        if let Some(ttft_ms) = outcome.ttft_ms.filter(sound) {
            let forecast = forecasts.map(|f| &f.ttft);
            tell(Target::Ttft, self.ttft.learn(ticket.slot, &ticket.row, ttft_ms, forecast));
        }
        if let Some(itl_ms) = outcome.itl_ms.filter(sound) {
            let forecast = forecasts.map(|f| &f.itl);
            tell(Target::Itl, self.itl.learn(ticket.slot, &ticket.row, itl_ms, forecast));
        }
        self.stale = true;
        promoted
    }

    fn served(&mut self) -> Arc<ServedClass> {
        if self.stale {
            self.served =
                Arc::new(ServedClass { ttft: self.ttft.publish(), itl: self.itl.publish() });
            self.stale = false;
        }
        Arc::clone(&self.served)
    }
}
