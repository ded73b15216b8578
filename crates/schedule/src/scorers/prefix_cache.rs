//! Prefers endpoints that hold more of the prompt: leading blocks held over blocks of the prompt (the
//! formula of llm-d's `prefix-cache-scorer` at its defaults).

use types::{NoOptions, Request, read_options};

use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "prefix-cache",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(PrefixCache))
    },
};

#[derive(Debug)]
struct PrefixCache;

impl Scorer for PrefixCache {
    fn score(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = candidate.hit_ratio(request);
        }
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
