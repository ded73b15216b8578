//! Online regressors: predict one row, learn one row, in constant memory.
//!
//! This crate is arithmetic only. It has no clock, no lock, no task and no idea what a token is.

mod mean;
mod registry;
mod rls;

pub use registry::{REGRESSORS, kind};

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

    /// A copy, to be read while this one goes on learning.
    fn copy(&self) -> Box<dyn Regressor>;
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

/// What building a regressor returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a regressor could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No regressor has this name.
    #[error("no regressor is called `{0}`")]
    Unknown(String),
    /// The options do not fit the regressor.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The saved state is not one this regressor wrote.
    #[error("saved state is not readable")]
    Saved(#[from] serde_json::Error),
}

/// Whether a row and its label may be learned.
fn is_sound(row: &[f32], label: f32) -> bool {
    label.is_finite() && label > 0.0 && row.iter().all(|x| x.is_finite())
}
