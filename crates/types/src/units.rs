//! Units that are checked once, at the door.

use serde::{Deserialize, Serialize};

/// A duration in milliseconds, the unit of every latency inside the process.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f32", into = "f32")]
pub struct Millis(f32);

impl Millis {
    /// Wraps `value`; anything that is not finite and non-negative is refused.
    pub fn new(value: f32) -> Option<Self> {
        (value.is_finite() && value >= 0.0).then_some(Self(value))
    }

    /// The bare number, for arithmetic inside one function.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Millis {
    type Error = String;

    fn try_from(value: f32) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("{value} is not a duration in milliseconds"))
    }
}

impl From<Millis> for f32 {
    fn from(value: Millis) -> Self {
        value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for value in [f32::NAN, f32::INFINITY, -1.0] {
            assert_eq!(Millis::new(value), None);
        }
        assert_eq!(Millis::new(1.5).map(Millis::get), Some(1.5));
    }
}
