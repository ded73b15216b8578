//! Where a request goes, what decided it, and the reasons for people.

use predict::Prediction;
use serde::Serialize;

use crate::misses::Cost;

/// What decided.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Rung {
    /// Learned predictions.
    Learned,
    /// Predictions; that of the chosen endpoint is from what is known of its class before the first rows.
    Prior,
    /// Weighted scorers.
    Heuristic,
    /// Fewest requests in flight.
    LeastRequests,
    /// Chance.
    Random,
    /// Turn by turn, by policy.
    RoundRobin,
}

impl Rung {
    /// The word used in headers, metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Prior => "prior",
            Self::Heuristic => "heuristic",
            Self::LeastRequests => "least-requests",
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
        }
    }

    /// Every rung, for metrics.
    pub const ALL: [Self; 6] = [
        Self::Learned,
        Self::Prior,
        Self::Heuristic,
        Self::LeastRequests,
        Self::Random,
        Self::RoundRobin,
    ];

    /// Whether it goes by expected misses.
    pub(crate) fn is_by_cost(self) -> bool {
        matches!(self, Self::Learned | Self::Prior)
    }

    pub(crate) fn is_heuristic(self) -> bool {
        self == Self::Heuristic
    }
}

/// Which candidate, and how likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Its position.
    pub(crate) at: usize,
    /// See [`Decision::propensity`].
    pub(crate) propensity: Option<f32>,
}

impl Choice {
    /// One of `equals`, by chance.
    pub(crate) fn one_of(at: usize, equals: usize) -> Self {
        Self { at, propensity: Some(1.0 / equals.max(1) as f32) }
    }
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Position among the candidates that were left after filtering.
    pub chosen: usize,
    /// What decided.
    pub rung: Rung,
    /// Why the policy's own rung did not, if it did not.
    pub fell: Option<&'static str>,
    /// Chance that the same state decides for the same candidate, `0.0..=1.0`, over fresh random numbers;
    /// 1 where chance has no part in it, `None` where it is not known.
    pub propensity: Option<f32>,
    /// The reasons, if the request asked for them.
    pub explanation: Option<Box<Explanation>>,
}

/// The reasons of one decision.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// What decided.
    pub rung: &'static str,
    /// Why the rung above did not, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell: Option<&'static str>,
    /// Candidates after filtering.
    pub candidates: usize,
    /// The chosen one first, then the next best, at most eight.
    pub best: Vec<Reason>,
}

/// What spoke for and against one candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// `namespace/name`.
    pub endpoint: String,
    /// Cost in expected misses (learned, prior).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Weighted sum of scores (heuristic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// Predicted latencies, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// Prompt tokens expected to be cached there.
    pub cached_tokens: u32,
    /// Our requests there.
    pub in_flight: u32,
}
