//! Prefers endpoints with few prompt tokens left to compute, those of the request included (the formula of
//! llm-d's `token-load-scorer`).

use std::num::NonZeroU32;

use serde::Deserialize;
use types::{Request, read_options};

use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "token-load",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(TokenLoad { threshold: options.queue_threshold_tokens.get() as f32 }))
    },
};

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Tokens from which an endpoint scores 0.
    queue_threshold_tokens: NonZeroU32,
}

impl Default for Options {
    fn default() -> Self {
        const TOKENS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4_194_303);
        Self { queue_threshold_tokens: TOKENS }
    }
}

#[derive(Debug)]
struct TokenLoad {
    threshold: f32,
}

impl Scorer for TokenLoad {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let tokens = candidate.load.prefill_tokens + candidate.demand.uncached_tokens() as f32;
            *score = 1.0 - tokens.clamp(0.0, self.threshold) / self.threshold;
        }
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
