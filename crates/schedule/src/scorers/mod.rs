//! The scorers. A new one is a file in this folder and two lines here.

mod active_request;
mod dynamo_cost;
mod kv_cache_utilization;
mod latency;
mod no_hit_lru;
mod prefix_cache;
mod queue;
mod running_requests;
mod session_affinity;
mod smg_cache_aware;
mod token_load;

use crate::candidate::{Candidate, Kind, Scorer};

/// Every scorer a profile may name.
pub const SCORERS: &[Kind<dyn Scorer>] = &[
    active_request::KIND,
    dynamo_cost::KIND,
    kv_cache_utilization::KIND,
    latency::KIND,
    no_hit_lru::KIND,
    prefix_cache::KIND,
    queue::KIND,
    running_requests::KIND,
    session_affinity::KIND,
    smg_cache_aware::KIND,
    token_load::KIND,
];

/// Least and most of `value` among `candidates`.
fn range(candidates: &[Candidate], value: impl Fn(&Candidate) -> f32) -> (f32, f32) {
    candidates
        .iter()
        .map(value)
        .fold((f32::MAX, f32::MIN), |(least, most), value| (least.min(value), most.max(value)))
}

/// Scores the least `value` 1 and the most 0, and what is between in proportion; where all are equal, 1.
fn score_least(candidates: &[Candidate], scores: &mut [f32], value: impl Fn(&Candidate) -> f32) {
    let (least, most) = range(candidates, &value);
    let span = most - least;
    for (score, candidate) in scores.iter_mut().zip(candidates) {
        *score = if span > 0.0 { (most - value(candidate)) / span } else { 1.0 };
    }
}
