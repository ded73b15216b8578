//! What a validation found: the error of the simulation against measured servers, group by group.

use serde::{Deserialize, Serialize};

/// Errors of the simulated engine against measured servers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Validation {
    /// Version of this shape.
    pub version: u32,
    /// One entry per source, model, accelerator and harness.
    pub groups: Vec<FidelityGroup>,
    /// Rows of the data that were not replayed, by the reason.
    pub skipped: Vec<SkippedRows>,
}

/// What the rows of a group were to whoever made the profile and the replay.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sample {
    /// Coefficients were fitted to these rows.
    Fitted,
    /// One constant or one detail of the replay was picked from a few on these rows.
    Picked,
    /// Nothing was fitted to them or picked on them.
    HeldOut,
    /// Replayed with a setting that was changed after the held-out result was seen.
    AfterTheFact,
}

impl Sample {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Picked => "picked on",
            Self::HeldOut => "held out",
            Self::AfterTheFact => "after fact",
        }
    }
}

/// The rows of one source that one profile answers under one harness.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FidelityGroup {
    /// Source of the measurements.
    pub source: String,
    /// The model measured.
    pub model: String,
    /// Accelerator class.
    pub gpu: String,
    /// GPUs per engine.
    pub tp: u32,
    /// Profile that answers, with weights and parallelism.
    pub profile: String,
    /// How the rows were replayed.
    pub replay: String,
    /// What the rows were to whoever made the profile.
    pub sample: Sample,
    /// Rows compared.
    pub rows: usize,
    /// Error of the time to first token.
    pub ttft: Option<FidelityErrors>,
    /// Error of the time between tokens.
    pub itl: Option<FidelityErrors>,
    /// Error of single step times.
    pub step: Option<FidelityErrors>,
    /// The operating points compared; empty for single steps, of which there are thousands.
    pub points: Vec<FidelityPoint>,
}

/// Relative errors of simulated values, `simulated / measured - 1`, over the rows of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct FidelityErrors {
    /// Mean of the absolute errors.
    pub mean_ratio: f64,
    /// Median of the absolute errors.
    pub median_ratio: f64,
    /// Mean of the signed errors: above zero, the simulation is too slow.
    pub bias_ratio: f64,
    /// Largest absolute error.
    pub worst_ratio: f64,
}

impl FidelityErrors {
    /// Errors over pairs of (measured, simulated); `None` without any.
    pub(super) fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let signed: Vec<f64> =
            pairs.into_iter().map(|(measured, simulated)| simulated / measured - 1.0).collect();
        let mut absolute: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        absolute.sort_by(f64::total_cmp);
        let count = signed.len() as f64;
        Some(Self {
            mean_ratio: absolute.iter().sum::<f64>() / count,
            median_ratio: median(&absolute)?,
            bias_ratio: signed.iter().sum::<f64>() / count,
            worst_ratio: *absolute.last()?,
        })
    }
}

/// Middle of sorted values; `None` without any.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    Some((sorted.get(middle.checked_sub(1)?)? + upper) / 2.0)
}

/// One operating point, measured and simulated.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FidelityPoint {
    /// Mean prompt, or the longest one where lengths are given as a ceiling, tokens.
    pub prompt_tokens: f64,
    /// The same of the answer.
    pub output_tokens: f64,
    /// Requests held in flight; `None` at a steady rate.
    pub concurrency: Option<u32>,
    /// Requests per second; `None` at a steady concurrency.
    pub rps: Option<f64>,
    /// Time to first token, measured.
    pub measured_ttft_ms: f64,
    /// The same, simulated.
    pub simulated_ttft_ms: f64,
    /// Time between tokens, measured.
    pub measured_itl_ms: f64,
    /// The same, simulated.
    pub simulated_itl_ms: f64,
}

/// Rows that were not replayed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SkippedRows {
    /// Source of the measurements.
    pub source: String,
    /// The model measured.
    pub model: String,
    /// How many.
    pub rows: usize,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        let errors = FidelityErrors::of([(10.0, 11.0), (10.0, 7.0), (100.0, 100.0)]).unwrap();
        assert!((errors.mean_ratio - 0.4 / 3.0).abs() < 1e-9, "{errors:?}");
        assert!((errors.median_ratio - 0.1).abs() < 1e-9, "{errors:?}");
        assert!((errors.bias_ratio + 0.2 / 3.0).abs() < 1e-9, "{errors:?}");
        assert!((errors.worst_ratio - 0.3).abs() < 1e-9, "{errors:?}");
        assert_eq!(FidelityErrors::of([]), None);
    }
}
