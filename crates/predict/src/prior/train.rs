//! Makes a prior from labelled rows.

use features::FeatureRow;
use regress::{Regressor, Scale};
use serde_json::{Value, json};

use super::{FORMAT, Named, Prior, Taught, columns, mark_of_terms};
use crate::{
    drift::{self, STEP_WIDTH, Step},
    terms::Target,
};

/// The regressor that a prior holds: the only one whose state can be weighed and scaled.
const REGRESSOR: &str = "rls";
/// Residuals that are kept of a target.
const RESIDUALS: usize = 32;
/// Fewest labels that a target is taught from.
const FEWEST: usize = 100;
/// How often the rows are gone through: the weights follow a few rounds of descent per label, and are at
/// rest after the second time.
const TIMES: usize = 2;

/// What a prior is of.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Model, by a name that tells its size.
    pub model: String,
    /// Accelerator class.
    pub accelerator: String,
    /// GPUs that one engine spans.
    pub tp: u32,
    /// Format of the weights, where it is known; else what the name tells.
    pub weights: Option<String>,
    /// Labels that it is to weigh.
    pub strength: f32,
}

/// What a prior is taught.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    /// Rows and their times to first token, in milliseconds, in the order in which they were known.
    pub ttft: Vec<(FeatureRow, f32)>,
    /// Rows and their mean times between tokens.
    pub itl: Vec<(FeatureRow, f32)>,
    /// Decode steps, if any were seen alone.
    pub steps: Vec<Step>,
}

/// Why no prior can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The name tells no size, by which a prior is found.
    #[error("the name `{0}` tells no size, such as `8b` in `llama-3.1-8b`")]
    Size(String),
    /// Too little to learn from.
    #[error("{found} labels of {target} are too few for a prior, the least is {least}")]
    TooFew {
        /// `ttft` or `itl`.
        target: &'static str,
        /// Labels there are.
        found: usize,
        /// Labels that are needed.
        least: usize,
    },
    /// The regressor does not do what it should.
    #[error("no model could be made for a prior")]
    Regress(#[from] regress::Error),
}

impl Prior {
    /// Learns `lessons` and takes the residuals of its promises from `held_out`. Equal inputs give equal
    /// priors. The card is left to the caller.
    pub fn train(about: &About, lessons: &Lessons, held_out: &Lessons) -> Result<Self, TrainError> {
        let named = Named::of(&about.model).ok_or_else(|| TrainError::Size(about.model.clone()))?;
        Ok(Self {
            format: FORMAT,
            model: about.model.clone(),
            accelerator: about.accelerator.clone(),
            tp: about.tp,
            weights: about.weights.clone().or_else(|| named.weights.map(str::to_owned)),
            params_b: named.params_b,
            active_b: named.active_b,
            strength: about.strength,
            columns: columns().map(str::to_owned).collect(),
            terms: mark_of_terms(),
            ttft: taught(Target::Ttft, about, &lessons.ttft, &held_out.ttft)?,
            itl: taught(Target::Itl, about, &lessons.itl, &held_out.itl)?,
            step: step_model(&lessons.steps, about.strength)?,
            card: Value::Null,
        })
    }
}

/// A model of `width` terms that forgets nothing.
fn lasting(width: usize) -> regress::Result<Box<dyn Regressor>> {
    (regress::kind(REGRESSOR)?.build)(width, &json!({"forgetting": 1.0}))
}

/// The state of `model` at the weight of `strength` labels, in a model with the usual options.
fn weighed(model: &dyn Regressor, width: usize, strength: f32) -> regress::Result<Value> {
    let mut usual = (regress::kind(REGRESSOR)?.build)(width, &Value::Null)?;
    let scale = Scale { labels: f64::from(strength), label: 1.0, row: vec![1.0; width] };
    usual.start_from(&model.save(), &scale)?;
    Ok(usual.save())
}

fn taught(
    target: Target,
    about: &About,
    rows: &[(FeatureRow, f32)],
    held_out: &[(FeatureRow, f32)],
) -> Result<Taught, TrainError> {
    if rows.len() < FEWEST {
        let target = target.as_str();
        return Err(TrainError::TooFew { target, found: rows.len(), least: FEWEST });
    }
    let mut model = lasting(target.width())?;
    for _ in 0..TIMES {
        for (row, label) in rows {
            model.learn_one(&target.terms(row), *label);
        }
    }
    let residual = |(row, label): &(FeatureRow, f32)| {
        (label / model.predict_one(&target.terms(row)).max(0.01)).ln()
    };
    let judged = if held_out.is_empty() { rows } else { held_out };
    Ok(Taught {
        regressor: REGRESSOR.to_owned(),
        state: weighed(&*model, target.width(), about.strength)?,
        residuals: spread(judged.iter().map(residual).collect()),
    })
}

/// Equally likely values that stand for `values`: the middle of each of [`RESIDUALS`] equal parts.
fn spread(mut values: Vec<f32>) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let middle = |part: usize| (2 * part + 1) * values.len() / (2 * RESIDUALS);
    (0..RESIDUALS).filter_map(|part| values.get(middle(part)).copied()).collect()
}

fn step_model(steps: &[Step], strength: f32) -> regress::Result<Option<Value>> {
    if steps.is_empty() {
        return Ok(None);
    }
    let mut model = lasting(STEP_WIDTH)?;
    for _ in 0..TIMES {
        for step in steps {
            model.learn_one(&drift::terms(step), step.step_ms);
        }
    }
    weighed(&*model, STEP_WIDTH, strength).map(Some)
}
