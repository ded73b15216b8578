//! Why a request went where it went, for people.

use crate::{
    candidate::Candidate,
    decision::{Decision, Explanation, Reason},
    misses::Cost,
};

/// Most candidates shown.
const SHOWN: usize = 8;

/// The reasons of `decision`, with the candidates ordered by what it went by.
pub(crate) fn explain(
    decision: &Decision,
    candidates: &[Candidate],
    costs: &[Cost],
    scores: &[f32],
) -> Explanation {
    let cost = |at: usize| decision.rung.is_by_cost().then(|| costs.get(at).copied()).flatten();
    let score = |at: usize| decision.rung.is_heuristic().then(|| scores.get(at).copied()).flatten();
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
    Explanation {
        rung: decision.rung.as_str(),
        fell: decision.fell,
        candidates: candidates.len(),
        best: order.into_iter().take(SHOWN).map(reason).collect(),
    }
}
