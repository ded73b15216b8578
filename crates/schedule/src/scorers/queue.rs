//! Prefers endpoints with few requests waiting, between the fullest and the emptiest candidate (the
//! formula of llm-d's `queue-scorer`). For one that does not tell, our own requests without a first
//! token stand in.

use types::{NoOptions, Request, read_options};

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

fn waiting(candidate: &Candidate) -> f32 {
    candidate.snapshot.waiting.unwrap_or(candidate.load.prefilling) as f32
}

impl Scorer for Queue {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        let most = candidates.iter().map(waiting).fold(f32::MIN, f32::max);
        let least = candidates.iter().map(waiting).fold(f32::MAX, f32::min);
        let span = most - least;
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = if span > 0.0 { (most - waiting(candidate)) / span } else { 1.0 };
        }
    }
}
