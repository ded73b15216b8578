//! Learns from tickets that met their outcome, and publishes what it knows.

use std::{collections::BTreeMap, sync::Arc};

use features::FeatureRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    class::{ClassKey, Contender, Prediction, ServedClass, Target},
    models::{ForModel, Models},
    outputs::OutputLengths,
    terms::{self, ITL_WIDTH, TTFT_WIDTH},
};

/// Tuning of the learner.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Regressors that learn every row, by name; the last is the champion until another is better.
    pub regressors: Vec<String>,
    /// Labels from which a class predicts by itself.
    pub min_labels: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { regressors: vec!["mean".to_owned(), "rls".to_owned()], min_labels: 20 }
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

/// How good one target of one class is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TargetError {
    /// Labels learned.
    pub labels: u32,
    /// Median absolute relative error over the newest rows, each predicted before it was learned.
    pub median_error: Option<f32>,
    /// Mean absolute relative error of served predictions.
    pub mean_error: Option<f32>,
    /// Share of observed values under their predicted p90.
    pub p90_coverage: Option<f32>,
    /// The regressor that serves.
    pub champion: &'static str,
}

/// How good one class is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassError {
    /// `model/accelerator/role`.
    pub class: String,
    /// Time to first token.
    pub ttft: TargetError,
    /// Time between tokens.
    pub itl: TargetError,
}

#[derive(Debug)]
struct Class {
    ttft: Target,
    itl: Target,
    served: Arc<ServedClass>,
    stale: bool,
}

#[derive(Debug, Default)]
struct OneModel {
    classes: BTreeMap<ClassKey, Class>,
    pooled: Option<Class>,
    outputs: OutputLengths,
}

/// All models, as they learn.
#[derive(Debug)]
pub struct Learner {
    kinds: Vec<regress::Kind>,
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
        let kinds: Vec<_> =
            options.regressors.iter().map(|name| regress::kind(name)).collect::<Result<_, _>>()?;
        if kinds.is_empty() {
            return Err(regress::Error::Unknown(String::new()));
        }
        Ok(Self { kinds, min_labels: options.min_labels.max(1), models: BTreeMap::new() })
    }

    /// Teaches every contender of the class what came of `ticket`.
    pub fn learn(&mut self, ticket: &Ticket, outcome: &Outcome) {
        let known = self.models.len();
        let model = match self.models.get_mut(&ticket.class.model) {
            Some(model) => model,
            None if known < MAX_MODELS => {
                self.models.entry(Arc::clone(&ticket.class.model)).or_default()
            }
            None => return,
        };
        if let Some(tokens) = outcome.output_tokens {
            model.outputs.push(tokens);
        }
        if let Some((bytes, tokens)) = outcome.prompt {
            model.outputs.push_prompt(bytes, tokens);
        }
        let kinds = &self.kinds;
        let fresh = || fresh_class(kinds);
        learn_class(model.pooled.get_or_insert_with(fresh), ticket, outcome, false);
        let classes = model.classes.len();
        if let Some(class) = model.classes.get_mut(&ticket.class) {
            learn_class(class, ticket, outcome, true);
        } else if classes < MAX_CLASSES {
            let mut class = fresh();
            learn_class(&mut class, ticket, outcome, true);
            model.classes.insert(ticket.class.clone(), class);
        }
    }

    /// Forgets what belongs to one endpoint alone.
    pub fn forget(&mut self, slot: u32) {
        for model in self.models.values_mut() {
            for class in model.classes.values_mut().chain(&mut model.pooled) {
                class.ttft.forget(slot);
                class.itl.forget(slot);
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
                outputs: model.outputs,
                min_labels: self.min_labels,
            };
            published.by_model.insert(Arc::clone(name), Arc::new(for_model));
        }
        published
    }

    /// How good every class is.
    pub fn errors(&self) -> Vec<ClassError> {
        let classes = self.models.values().flat_map(|model| &model.classes);
        classes
            .map(|(key, class)| ClassError {
                class: key.to_string(),
                ttft: target_error(&class.ttft),
                itl: target_error(&class.itl),
            })
            .collect()
    }
}

impl Class {
    fn served(&mut self) -> Arc<ServedClass> {
        if self.stale {
            self.served =
                Arc::new(ServedClass { ttft: self.ttft.publish(), itl: self.itl.publish() });
            self.stale = false;
        }
        Arc::clone(&self.served)
    }
}

fn fresh_class(kinds: &[regress::Kind]) -> Class {
    let target = |width| {
        let build = |kind: &regress::Kind| {
            let model = (kind.build)(width, &Value::Null).ok()?;
            Some(Contender { name: kind.name, model, error: 0.0 })
        };
        Target::new(kinds.iter().filter_map(build).collect())
    };
    let (ttft, itl) = (target(TTFT_WIDTH), target(ITL_WIDTH));
    let served = Arc::new(ServedClass { ttft: ttft.publish(), itl: itl.publish() });
    Class { ttft, itl, served, stale: false }
}

fn learn_class(class: &mut Class, ticket: &Ticket, outcome: &Outcome, judge: bool) {
    let sound = |label: &f32| label.is_finite() && *label > 0.0;
    let promised = ticket.prediction.filter(|_| judge);
    if let Some(ttft_ms) = outcome.ttft_ms.filter(sound) {
        let p90 = promised.map(|p| (p.ttft_ms, p.ttft_p90_ms));
        class.ttft.learn(ticket.slot, &terms::ttft(&ticket.row), ttft_ms, p90);
    }
    if let Some(itl_ms) = outcome.itl_ms.filter(sound) {
        let p90 = promised.map(|p| (p.itl_ms, p.itl_p90_ms));
        class.itl.learn(ticket.slot, &terms::itl(&ticket.row), itl_ms, p90);
    }
    class.stale = true;
}

fn target_error(target: &Target) -> TargetError {
    TargetError {
        labels: target.labels,
        median_error: target.residuals.median_error(),
        mean_error: target.residuals.mean_error(),
        p90_coverage: target.residuals.coverage(),
        champion: target.contenders[target.champion].name,
    }
}
