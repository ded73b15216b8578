//! What is known of a class before its first row: the state of its linear models, as a simulation or
//! recorded rows have taught them, with the residuals that its promises start from.
//!
//! A prior is one line of JSON: what it is of, the columns and terms that it was made with, the saved
//! regressors, and a card that says how it was made and what it is worth. It weighs as many labels as its
//! `strength`, so some dozens of rows of the real engine outweigh it.

mod named;
mod scale;
mod train;

use std::{path::PathBuf, sync::Arc};

use features::FeatureRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::Accelerator;

use self::named::{Named, family, is_of, parallelism};
use self::scale::{factors, mark_of_terms, stretched};
pub use self::train::{About, Lessons, TrainError};
use crate::{class::ServedClass, terms::Target};

/// Version of the form of a prior.
const FORMAT: u64 = 1;
/// Furthest that two sizes of one prior may be apart, as a factor.
const SAME_SIZE: f32 = 1.3;
/// Furthest that a prior is scaled to another size, as a factor. Beyond it the measured points of
/// `models/data` were off by 80 to 90 % (TTFT): no prior is better than such a one.
const MAX_SCALE: f32 = 3.0;
/// Labels that a scaled prior weighs: it tells the shape and the order of magnitude.
const SCALED_STRENGTH: f32 = 8.0;
/// What weights are taken to be where the model's name does not tell.
const USUAL_WEIGHTS: &str = "bf16";

/// What is known of one class of endpoints before its first row.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Prior {
    format: u64,
    /// Model, as it is named where the prior comes from.
    pub model: String,
    /// Accelerator class.
    pub accelerator: String,
    /// GPUs that one engine spans.
    pub tp: u32,
    /// Format of the weights, such as `bf16`, where it is known.
    pub weights: Option<String>,
    /// Billions of parameters.
    pub params_b: f32,
    /// Billions of parameters that compute one token.
    pub active_b: f32,
    /// Labels that it weighs.
    pub strength: f32,
    columns: Vec<String>,
    terms: String,
    pub(crate) ttft: Taught,
    pub(crate) itl: Taught,
    /// The model of decode steps, where it is known.
    pub(crate) step: Option<Value>,
    /// How it was made and what it is worth, for people.
    pub card: Value,
}

/// What is known of one target.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Taught {
    /// Name of the regressor.
    pub(crate) regressor: String,
    /// What it saved.
    pub(crate) state: Value,
    /// Residuals `ln(observed / predicted)` on rows that it was not taught, ascending and equally likely.
    pub(crate) residuals: Vec<f32>,
}

/// A prior that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriorError {
    /// A line is not what `slackline train` writes.
    #[error("{file}:{line}: not a prior")]
    Unreadable {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A prior of another version of this program.
    #[error("{file}:{line}: the prior was made with {what}; make it anew with `slackline train`")]
    Other {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What differs, with what it is there and what it is here.
        what: String,
    },
    /// A prior whose regressor cannot take over what it says.
    #[error("{file}:{line}: the prior does not fit its regressor")]
    State {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Why.
        source: regress::Error,
    },
}

/// Where priors are read from. In configuration a word: `builtin`, `none`, or else the path of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub enum PriorSource {
    /// Those that come with the program.
    #[default]
    Builtin,
    /// Nowhere: nothing is known before the first rows.
    None,
    /// A file that `slackline train` has written.
    File(PathBuf),
}

impl From<String> for PriorSource {
    fn from(word: String) -> Self {
        match &*word {
            "builtin" => Self::Builtin,
            "none" => Self::None,
            _ => Self::File(word.into()),
        }
    }
}

impl From<PriorSource> for String {
    fn from(source: PriorSource) -> Self {
        match source {
            PriorSource::Builtin => "builtin".to_owned(),
            PriorSource::None => "none".to_owned(),
            PriorSource::File(path) => path.display().to_string(),
        }
    }
}

/// The priors that a learner starts from. The default knows nothing.
#[derive(Clone, Debug, Default)]
pub struct Priors {
    all: Vec<(Prior, String)>,
}

/// The prior that fits a class, and on which scale.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a> {
    /// The prior.
    pub prior: &'a Prior,
    /// Times of the class over those of the prior.
    pub scale: f32,
    /// Labels that it weighs there.
    pub strength: f32,
    at: usize,
}

impl<'a> Fit<'a> {
    /// The prior for what it is of.
    pub(crate) fn exact(prior: &'a Prior) -> Self {
        Self { prior, scale: 1.0, strength: prior.strength, at: 0 }
    }
}

/// The scale on which a model of `target` takes over what is known of a class `1 / factor` times as slow.
pub(crate) fn scale(target: Target, factor: f32, strength: f32) -> regress::Scale {
    regress::Scale {
        labels: f64::from(strength),
        label: f64::from(factor),
        row: factors(target, factor),
    }
}

fn columns() -> impl Iterator<Item = &'static str> {
    features::SCHEMA.iter().map(|feature| feature.name)
}

impl Prior {
    /// What differs from what this program works with, if anything does.
    fn differs(value: &Value) -> Option<String> {
        let of = |key: &str| value.get(key);
        let format = of("format").and_then(Value::as_u64);
        if format != Some(FORMAT) {
            let format = format.map_or_else(|| "none".to_owned(), |format| format.to_string());
            return Some(format!("format {format}, not {FORMAT}"));
        }
        let found = of("columns").and_then(Value::as_array);
        let same = found.is_some_and(|found| {
            found.len() == features::WIDTH && columns().zip(found).all(|(a, b)| b == a)
        });
        if !same {
            return Some("other features".to_owned());
        }
        let (terms, here) = (of("terms").and_then(Value::as_str), mark_of_terms());
        (terms != Some(&*here))
            .then(|| format!("other terms ({}, not {here})", terms.unwrap_or("none")))
    }

    /// Whether its regressors can take over what it says.
    fn check(&self) -> regress::Result<()> {
        for taught in [&self.ttft, &self.itl] {
            (regress::kind(&taught.regressor)?.load)(taught.state.clone())?;
        }
        Ok(())
    }
}

impl Priors {
    /// Reads priors, one JSON object a line; `file` is its name in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, PriorError> {
        let mut all = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let file = || file.to_owned();
            let unreadable = |source| PriorError::Unreadable { file: file(), line, source };
            let value: Value = serde_json::from_str(text).map_err(unreadable)?;
            if let Some(what) = Prior::differs(&value) {
                return Err(PriorError::Other { file: file(), line, what });
            }
            let prior: Prior = serde_json::from_value(value).map_err(unreadable)?;
            prior.check().map_err(|source| PriorError::State { file: file(), line, source })?;
            all.push(prior);
        }
        Ok(all.into_iter().collect())
    }

    /// The priors.
    pub fn iter(&self) -> impl Iterator<Item = &Prior> {
        self.all.iter().map(|(prior, _)| prior)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The prior of the model served as `model` on `accelerator`: one of its size, or else the nearest,
    /// scaled by the parameters that compute a token. The class's tensor parallelism is the `tp` behind
    /// the accelerator's name, or else the least that is known for the size.
    pub fn find(&self, model: &str, accelerator: &Accelerator) -> Option<Fit<'_>> {
        self.fit(&Named::of(model)?, accelerator)
    }

    pub(crate) fn fit(&self, named: &Named, accelerator: &Accelerator) -> Option<Fit<'_>> {
        let name = accelerator.as_str();
        let tp = parallelism(name);
        let wanted = named.weights.unwrap_or(USUAL_WEIGHTS);
        let on = self.all.iter().enumerate().filter(|(_, (_, family))| is_of(name, family));
        let on = on.map(|(at, (prior, _))| (at, prior));
        let is_same = |a: f32, b: f32| (a / b).ln().abs() <= SAME_SIZE.ln();
        let of_size = |(_, prior): &(usize, &Prior)| {
            is_same(named.params_b, prior.params_b)
                && is_same(named.active_b, prior.active_b)
                && tp.is_none_or(|tp| tp == prior.tp)
        };
        let rank = |(at, prior): &(usize, &Prior)| {
            (prior.weights.as_deref().unwrap_or(USUAL_WEIGHTS) != wanted, prior.tp, *at)
        };
        if let Some((at, prior)) = on.clone().filter(of_size).min_by_key(rank) {
            return Some(Fit { prior, scale: 1.0, strength: prior.strength, at });
        }
        let scaled = on.map(|(at, prior)| {
            let per_gpu = tp.map_or(1.0, |tp| prior.tp as f32 / tp.max(1) as f32);
            (at, prior, named.active_b / prior.active_b * per_gpu)
        });
        let far = |scale: f32| scale.ln().abs();
        let (at, prior, scale) =
            scaled.filter(|(_, _, scale)| far(*scale) <= MAX_SCALE.ln()).min_by(|a, b| {
                far(a.2).total_cmp(&far(b.2)).then(rank(&(a.0, a.1)).cmp(&rank(&(b.0, b.1))))
            })?;
        Some(Fit { prior, scale, strength: SCALED_STRENGTH.min(prior.strength), at })
    }
}

impl FromIterator<Prior> for Priors {
    fn from_iter<T: IntoIterator<Item = Prior>>(priors: T) -> Self {
        let with_family = |prior: Prior| {
            let family = family(&prior.accelerator);
            (prior, family)
        };
        Self { all: priors.into_iter().map(with_family).collect() }
    }
}

/// The priors and what each predicts, ready to be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) priors: Arc<Priors>,
    /// One per prior; none where the learner's models cannot start from it.
    pub(crate) served: Vec<Option<Arc<ServedClass>>>,
}

/// What a model that has no rows of a class is predicted by.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    ready: Arc<Ready>,
    named: Named,
}

impl Ready {
    /// The priors for the model called `model`; `None` if its name tells no size, or there are none.
    pub(crate) fn of(self: &Arc<Self>, model: &str) -> Option<Bare> {
        if self.priors.is_empty() {
            return None;
        }
        Some(Bare { ready: Arc::clone(self), named: Named::of(model)? })
    }
}

impl Bare {
    /// What predicts for the class, and on which scale.
    pub(crate) fn on(&self, accelerator: &Accelerator) -> Option<(&ServedClass, f32)> {
        let fit = self.ready.priors.fit(&self.named, accelerator)?;
        let served = self.ready.served.get(fit.at)?.as_ref()?;
        Some((served, fit.scale))
    }
}

/// The row as the prior would have to see it to be asked about a class `scale` times as slow.
pub(crate) fn on_scale(row: &FeatureRow, scale: f32) -> FeatureRow {
    if scale.to_bits() == 1.0_f32.to_bits() { *row } else { stretched(row, 1.0 / scale) }
}
