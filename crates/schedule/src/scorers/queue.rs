//! Prefers endpoints with few requests waiting, between the fullest and the emptiest candidate (the
//! formula of llm-d's `queue-scorer`). For one that does not tell, our own requests without a first
//! token stand in.

use types::{NoOptions, Request, read_options};

use super::score_least;
use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "queue",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(Queue))
    },
};

#[derive(Debug)]
struct Queue;

impl Scorer for Queue {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        score_least(candidates, scores, |candidate| {
            candidate.snapshot.waiting.unwrap_or(candidate.load.prefilling) as f32
        });
    }
}
