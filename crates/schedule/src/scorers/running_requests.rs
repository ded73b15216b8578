//! Prefers endpoints with few requests executing, between the fullest and the emptiest candidate (the
//! formula of llm-d's `running-requests-size-scorer`). For one that does not tell, our own streams past
//! their first token stand in.

use types::{NoOptions, Request, read_options};

use super::score_least;
use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "running-requests",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(RunningRequests))
    },
};

#[derive(Debug)]
struct RunningRequests;

impl Scorer for RunningRequests {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        score_least(candidates, scores, |candidate| {
            candidate.snapshot.running.unwrap_or(candidate.load.decoding) as f32
        });
    }
}
