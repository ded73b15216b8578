//! Distributions of lengths in tokens, as a scenario file writes them and as they are drawn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::draw::Draw;

/// The shape of a distribution.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Normal.
    Normal,
    /// Lognormal: a long tail above.
    Lognormal,
}

/// A distribution of counts. What is left out is as the generator says, or the reader of the format.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Length {
    /// Mean, before `min` and `max` cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Standard deviation, before `min` and `max` cut; 0 is the mean every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Smaller draws become this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Larger draws become this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Normal or lognormal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub law: Option<Law>,
}

/// A distribution with nothing left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    pub(super) mean: f64,
    pub(super) sd: f64,
    pub(super) min: u32,
    pub(super) max: u32,
    law: Law,
}

impl Lengths {
    /// Always `value`.
    pub(super) const fn fixed(value: u32) -> Self {
        Self { mean: value as f64, sd: 0.0, min: 0, max: u32::MAX, law: Law::Normal }
    }

    /// Normal, at least 1.
    pub(super) const fn normal(mean: f64, sd: f64) -> Self {
        Self { mean, sd, min: 1, max: u32::MAX, law: Law::Normal }
    }

    /// Lognormal, at least 1.
    pub(super) const fn lognormal(mean: f64, sd: f64) -> Self {
        Self { mean, sd, min: 1, max: u32::MAX, law: Law::Lognormal }
    }

    /// The same, cut to `min..=max`.
    pub(super) const fn within(self, min: u32, max: u32) -> Self {
        Self { min, max, ..self }
    }

    /// The same, but for what `changes` says.
    pub(super) fn with(self, changes: Option<&Length>) -> Self {
        let Some(changes) = changes else { return self };
        Self {
            mean: changes.mean.unwrap_or(self.mean),
            sd: changes.sd.unwrap_or(self.sd),
            min: changes.min.unwrap_or(self.min),
            max: changes.max.unwrap_or(self.max),
            law: changes.law.unwrap_or(self.law),
        }
    }

    /// What is wrong, under the name of the key.
    pub(super) fn check(&self, key: &str, least: f64) -> Result<(), String> {
        if !(least..=1e7).contains(&self.mean) {
            return Err(format!("{key}.mean: must be from {least} to 10000000, not {}", self.mean));
        }
        if !(0.0..=1e7).contains(&self.sd) {
            return Err(format!("{key}.sd: must be from 0 to 10000000, not {}", self.sd));
        }
        if self.sd > 0.0 && self.law == Law::Lognormal && self.mean <= 0.0 {
            return Err(format!("{key}.mean: must be above 0 for a lognormal, not {}", self.mean));
        }
        if self.min > self.max {
            return Err(format!("{key}.min: must not be above {key}.max ({})", self.max));
        }
        Ok(())
    }

    /// One of them.
    pub(super) fn draw(&self, draw: &mut Draw) -> u32 {
        let value = if self.sd <= 0.0 {
            self.mean
        } else {
            match self.law {
                Law::Normal => self.mean + self.sd * draw.normal(),
                Law::Lognormal => {
                    // Mean and sd as asked: σ² = ln(1 + sd²/mean²), μ = ln mean − σ²/2.
                    let ratio = self.sd / self.mean;
                    let variance = libm::log(1.0 + ratio * ratio);
                    let centre = libm::log(self.mean) - variance / 2.0;
                    libm::exp(centre + libm::sqrt(variance) * draw.normal())
                }
            }
        };
        (libm::round(value).max(0.0) as u32).clamp(self.min, self.max)
    }

    /// For a person.
    pub(super) fn about(&self) -> String {
        let cut = if self.max == u32::MAX || self.sd <= 0.0 {
            String::new()
        } else {
            format!(" in {}..={}", self.min, self.max)
        };
        if self.sd <= 0.0 {
            format!("{}", self.mean)
        } else {
            format!("{} ± {}{cut}", self.mean, self.sd)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lengths: Lengths) -> (f64, f64) {
        let mut draw = Draw::new(3, 0);
        let drawn: Vec<f64> = (0..100_000).map(|_| f64::from(lengths.draw(&mut draw))).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        (mean, (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5).sqrt())
    }

    #[test]
    fn mean_and_spread_are_those_asked_for() {
        for lengths in [Lengths::normal(3_000.0, 900.0), Lengths::lognormal(1_500.0, 1_500.0)] {
            let (mean, sd) = drawn(lengths);
            assert!((mean / lengths.mean - 1.0).abs() < 0.02, "{mean}");
            assert!((sd / lengths.sd - 1.0).abs() < 0.05, "{sd}");
        }
        assert_eq!(drawn(Lengths::fixed(250)), (250.0, 0.0));
    }

    #[test]
    fn a_long_tail_is_cut_where_it_is_told() {
        let lengths = Lengths::lognormal(729.0, 13_550.0).within(1, 131_072);
        let mut draw = Draw::new(1, 0);
        let drawn: Vec<u32> = (0..100_000).map(|_| lengths.draw(&mut draw)).collect();
        assert_eq!(drawn.iter().max(), Some(&131_072));
        assert!(drawn.iter().all(|tokens| *tokens >= 1));
    }

    #[test]
    fn a_changed_mean_leaves_the_rest() {
        let change = Length { mean: Some(5.0), ..Length::default() };
        let changed = Lengths::normal(3.0, 2.0).within(1, 9).with(Some(&change));
        assert_eq!(changed, Lengths::normal(5.0, 2.0).within(1, 9));
        let wrong = Lengths::normal(3.0, -2.0).check("generate.turns", 1.0).unwrap_err();
        assert_eq!(wrong, "generate.turns.sd: must be from 0 to 10000000, not -2");
    }
}
