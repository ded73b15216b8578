//! Options that must lie within a range: refused where they are read, with what is allowed.

use serde::{Deserialize, Deserializer, de::Error};

fn within<'de, D: Deserializer<'de>>(
    options: D,
    allowed: fn(f32) -> bool,
    what: &str,
) -> Result<f32, D::Error> {
    let value = f32::deserialize(options)?;
    if value.is_finite() && allowed(value) {
        return Ok(value);
    }
    Err(D::Error::custom(format_args!("{value} is not {what}")))
}

/// A number of `0.0..=1.0`.
pub(crate) fn share<'de, D: Deserializer<'de>>(options: D) -> Result<f32, D::Error> {
    within(options, |value| (0.0..=1.0).contains(&value), "within 0 and 1")
}

/// A number of at most 1.
pub(crate) fn at_most_one<'de, D: Deserializer<'de>>(options: D) -> Result<f32, D::Error> {
    within(options, |value| value <= 1.0, "at most 1")
}

/// A number of at least 0.
pub(crate) fn not_negative<'de, D: Deserializer<'de>>(options: D) -> Result<f32, D::Error> {
    within(options, |value| value >= 0.0, "a number of at least 0")
}

/// A number above 0.
pub(crate) fn positive<'de, D: Deserializer<'de>>(options: D) -> Result<f32, D::Error> {
    within(options, |value| value > 0.0, "a number above 0")
}
