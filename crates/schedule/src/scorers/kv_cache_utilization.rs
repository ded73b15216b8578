//! Prefers endpoints with free KV cache: one less the share in use (the formula of llm-d's
//! `kv-cache-utilization-scorer`). One that does not tell scores a half.

use types::{NoOptions, Request, read_options};

use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "kv-cache-utilization",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(KvCacheUtilization))
    },
};

#[derive(Debug)]
struct KvCacheUtilization;

impl Scorer for KvCacheUtilization {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = 1.0 - candidate.snapshot.kv_utilization.unwrap_or(0.5).clamp(0.0, 1.0);
        }
    }
}
