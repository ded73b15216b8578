//! Prefers endpoints that cost little by our reading of the KV router of NVIDIA Dynamo: prefill work plus
//! decode work, in blocks, the least cost scoring 1 and the most 0.
//!
//! `cost = w · (active prefill + uncached) / b + (KV tokens in use + prompt) / b`, for `w` the weight of prefill
//! and `b` the tokens of a block, which cancels in the score. They count a block that several streams share
//! once: KV tokens are those of the streams, but no more than the engine says to use and what is not computed
//! yet. The prompt counts in full where they count only blocks that no stream uses. Their router draws by the
//! softmax of costs scaled to their range, which the picker `softmax` does with these scores.

use serde::Deserialize;
use types::{Request, read_options};

use super::score_least;
use crate::{
    candidate::{Candidate, Kind, Scorer},
    ranges,
};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "dynamo-cost",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(DynamoCost { options }))
    },
};

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Weight of prefill work against decode work.
    #[serde(deserialize_with = "ranges::not_negative")]
    overlap_weight: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { overlap_weight: 1.0 }
    }
}

/// KV tokens that the streams there hold or will hold once prefilled; shared ones count once as far as the
/// engine tells.
fn held_tokens(candidate: &Candidate) -> f32 {
    let load = &candidate.load;
    let each = (load.decode_tokens + load.prefill_context_tokens) as f32;
    let snapshot = &candidate.snapshot;
    match (snapshot.kv_utilization, snapshot.kv_capacity_tokens()) {
        (Some(used), Some(capacity)) => each.min(used * capacity as f32 + load.prefill_tokens),
        _ => each,
    }
}

#[derive(Debug)]
struct DynamoCost {
    options: Options,
}

impl Scorer for DynamoCost {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        score_least(candidates, scores, |candidate| {
            let (load, demand) = (&candidate.load, &candidate.demand);
            let prefill = load.prefill_tokens + demand.uncached_tokens() as f32;
            let decode = held_tokens(candidate) + demand.prompt_tokens as f32;
            self.options.overlap_weight * prefill + decode
        });
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
