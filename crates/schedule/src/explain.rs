//! Why a request went where it went, for people.

use predict::Prediction;
use serde::Serialize;

use crate::{candidate::Candidate, misses::Cost, scheduler::Decision};

/// Most candidates shown.
const SHOWN: usize = 8;

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
    /// Cost in expected misses (learned).
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

impl Explanation {
    /// Orders the candidates by what the decision went by.
    pub fn of(
        decision: &Decision,
        candidates: &[Candidate],
        costs: &[Cost],
        scores: &[f32],
    ) -> Self {
        let cost = |at: usize| decision.rung.is_learned().then(|| costs.get(at).copied()).flatten();
        let score =
            |at: usize| decision.rung.is_heuristic().then(|| scores.get(at).copied()).flatten();
        let rank = |at: &usize| {
            let key = cost(*at).map(|c| c.total).or_else(|| score(*at).map(|s| -s));
            (*at != decision.chosen, key.unwrap_or(candidates[*at].in_flight() as f32))
        };
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let reason = |at: usize| Reason {
            endpoint: candidates[at].endpoint.endpoint.id.to_string(),
            cost: cost(at),
            score: score(at),
            prediction: candidates[at].prediction,
            cached_tokens: candidates[at].demand.cached_tokens,
            in_flight: candidates[at].in_flight(),
        };
        Self {
            rung: decision.rung.as_str(),
            fell: decision.fell,
            candidates: candidates.len(),
            best: order.into_iter().take(SHOWN).map(reason).collect(),
        }
    }
}
