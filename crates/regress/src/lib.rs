//! Regressors: online ones that learn row by row in constant memory, and batch ones that are fitted
//! to a window of rows at once.
//!
//! This crate is arithmetic only. It has no clock, no lock, no task and no idea what a token is.

mod batch;
mod family;
mod flat;
mod frozen;
mod mean;
mod registry;
mod rls;
mod window;

pub use batch::BATCH;
pub use family::{Family, FamilyWeights};
pub use frozen::Frozen;
pub use registry::{REGRESSORS, batch_kind, kind};
pub use window::{LEAST_ROWS, Window};

use serde_json::Value;
use types::OptionsError;

/// A model that learns one labelled row at a time.
///
/// Labels are positive; what is minimised is the relative error. The same calls in the same order
/// leave the same state, on every machine.
pub trait Regressor: std::fmt::Debug + Send + Sync {
    /// The estimate for `row`; finite even before the first label.
    fn predict_one(&self, row: &[f32]) -> f32;

    /// Folds in one observed `label`. A row with a value that is not finite, and a label that is not
    /// finite and positive, are ignored.
    fn learn_one(&mut self, row: &[f32], label: f32);

    /// The whole state, so a restart predicts what it predicted before.
    fn save(&self) -> Value;

    /// A copy that learns by itself from here on.
    fn copy(&self) -> Box<dyn Regressor>;

    /// What it predicts now, to be read while it goes on learning.
    fn freeze(&self) -> Frozen {
        Frozen::Whole(self.copy())
    }

    /// What was learned before weighs at most `labels` labels from now on, so that new ones move it fast;
    /// what it predicts does not change.
    fn soften(&mut self, _labels: f64) {}

    /// Takes over what another of its kind and width has learned, from what that one's
    /// [`Regressor::save`] gave, on another scale; its own options stay. `false`, and nothing has
    /// changed, if the kind cannot start from another.
    fn start_from(&mut self, _saved: &Value, _scale: &Scale) -> Result<bool> {
        Ok(false)
    }

    /// Folds in what another of the same kind has learned from other rows, as it was saved. An error
    /// changes nothing: the state is unreadable, or was learned under other options or other
    /// features, or the kind cannot tell what two states have in common.
    fn merge(&mut self, _saved: &Value) -> Result<()> {
        Err(Error::Merge("this kind of model does not add up".to_owned()))
    }
}

/// On which scale a model takes over what another has learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// How many labels it is to weigh; never more than it has seen.
    pub labels: f64,
    /// Factor on every label.
    pub label: f64,
    /// Factor on every feature, one per feature of a row.
    pub row: Vec<f64>,
}

/// How a configuration name becomes a regressor.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name used in configuration, in kebab case.
    pub name: &'static str,
    /// Builds a fresh model for rows of `width` features.
    pub build: fn(width: usize, options: &Value) -> Result<Box<dyn Regressor>>,
    /// Rebuilds a model from what [`Regressor::save`] returned.
    pub load: fn(saved: Value) -> Result<Box<dyn Regressor>>,
}

/// A model fitted to a window of rows at once; immutable once fitted.
pub trait Fitted: std::fmt::Debug + Send + Sync {
    /// The estimate for `row`: finite and positive whatever the row holds, in the unit of the
    /// labels.
    fn predict_one(&self, row: &[f32]) -> f32;

    /// Whether every feature of `row` lies within what the model was fitted to, with a small
    /// margin. A row of another width, or with a value that is not finite, is not covered.
    fn covers(&self, row: &[f32]) -> bool;

    /// The whole model, so a restart predicts what it predicted before, bit for bit.
    fn save(&self) -> Value;
}

/// How a configuration name becomes a batch regressor.
#[derive(Clone, Copy, Debug)]
pub struct BatchKind {
    /// The name used in configuration, in kebab case.
    pub name: &'static str,
    /// Fits a model to the sound rows of a window. The same window, options and `seed` give the
    /// same model. Costs up to seconds of computing, so it has no place on a request's path.
    pub fit: fn(window: &Window<'_>, options: &Value, seed: u64) -> Result<Box<dyn Fitted>>,
    /// Rebuilds a model from what [`Fitted::save`] returned.
    pub load: fn(saved: Value) -> Result<Box<dyn Fitted>>,
}

/// What building a regressor returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a regressor could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No regressor has this name.
    #[error("no regressor is called `{0}`")]
    Unknown(String),
    /// One name stands twice in a list of models.
    #[error("`{0}` is named twice")]
    Twice(&'static str),
    /// The options do not fit the regressor.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The saved state is not one this regressor wrote.
    #[error("saved state is not readable")]
    Saved(#[from] serde_json::Error),
    /// An option has a value that the regressor cannot work with.
    #[error("option `{option}` of `{kind}` must be from {low} to {high}")]
    Range {
        /// The regressor.
        kind: &'static str,
        /// The key in its options.
        option: &'static str,
        /// The least value allowed.
        low: f64,
        /// The largest value allowed.
        high: f64,
    },
    /// Two states cannot be made one.
    #[error("two models cannot be merged: {0}")]
    Merge(String),
    /// The slices of a window do not fit together, or a row has no features or more than 65,535.
    #[error(
        "a window of {values} values, {labels} labels and {weights} weights has no rows of {width}"
    )]
    Shape {
        /// Features per row, as given.
        width: usize,
        /// Length of the rows.
        values: usize,
        /// Number of labels.
        labels: usize,
        /// Number of weights.
        weights: usize,
    },
    /// Too few sound rows to fit anything to.
    #[error("a window of {rows} sound rows is too small, the least is {least}")]
    TooFewRows {
        /// Sound rows in the window.
        rows: usize,
        /// Rows that a fit needs.
        least: usize,
    },
    /// A saved model has other features than the one that is to start from it.
    #[error("saved state has {saved} features, not {width}")]
    Width {
        /// Features of the saved model.
        saved: usize,
        /// Features of the model that was to take it over.
        width: usize,
    },
    /// The library that fits `kind` gave up.
    #[error("`{kind}` could not be fitted")]
    Fit {
        /// The regressor.
        kind: &'static str,
        /// What the library says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The trees of the library that fits `kind` are not laid out as this version knows them.
    #[error("fitted trees of `{kind}` have an unknown layout")]
    Layout {
        /// The regressor.
        kind: &'static str,
        /// What was not found.
        #[source]
        source: serde_json::Error,
    },
}

/// Whether a row and its label may be learned.
fn is_sound(row: &[f32], label: f32) -> bool {
    label.is_finite() && label > 0.0 && row.iter().all(|x| x.is_finite())
}
