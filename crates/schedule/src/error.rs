//! Why scheduling cannot be set up as it is configured.

use types::OptionsError;

/// Why a scheduler cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin of that kind has this name.
    #[error("no {kind} is called `{name}`; there are {known}")]
    Unknown {
        /// `filter`, `scorer` or `picker`.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A weight is not a number in range.
    #[error("weight {weight} of scorer `{name}` is not a finite number of at least 0")]
    Weight {
        /// The scorer.
        name: String,
        /// Its weight.
        weight: f32,
    },
    /// A number of the learned pick is out of range.
    #[error("learned.{key} must be a number {wants}, not {value}")]
    Tuning {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f32,
        /// What it must be.
        wants: &'static str,
    },
    /// A plugin's own options do not fit.
    #[error(transparent)]
    Options(#[from] OptionsError),
}
