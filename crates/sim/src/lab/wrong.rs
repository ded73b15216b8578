//! What is wrong in a scenario, and where.

use std::time::Duration;

/// A value of a scenario file that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Wrong {
    /// Path of the value, such as `fleet[1].gpu`.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
    /// The name that is not known, where it is one.
    pub name: Option<String>,
    /// Names that are.
    pub known: Vec<String>,
}

impl Wrong {
    /// The value at `path` is wrong for this `reason`.
    pub fn at(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into(), name: None, known: Vec::new() }
    }

    /// The value at `path` is the `name` of nothing that is `known`.
    pub fn unknown(
        path: impl Into<String>,
        reason: impl Into<String>,
        name: &str,
        known: impl IntoIterator<Item = String>,
    ) -> Self {
        let known = known.into_iter().collect();
        Self { path: path.into(), reason: reason.into(), name: Some(name.to_owned()), known }
    }
}

/// Refuses a `value` that is not a number above zero.
pub(super) fn above_zero(path: &str, value: f64) -> Result<(), Wrong> {
    let holds = value.is_finite() && value > 0.0;
    if holds { Ok(()) } else { Err(Wrong::at(path, format!("must be above 0, not {value}"))) }
}

/// Refuses a `value` that is negative or no number.
pub(super) fn not_negative(path: &str, value: f64) -> Result<(), Wrong> {
    let holds = value.is_finite() && value >= 0.0;
    if holds { Ok(()) } else { Err(Wrong::at(path, format!("must be 0 or more, not {value}"))) }
}

/// A checked number of seconds as a duration.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
