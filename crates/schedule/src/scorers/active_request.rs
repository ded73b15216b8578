//! Prefers endpoints where we have few requests in flight, relative to the fullest candidate (the formula
//! of llm-d's `active-request-scorer`). At its defaults the order is that of fewest requests.

use serde::Deserialize;
use types::{Request, read_options};

use super::range;
use crate::{
    candidate::{Candidate, Kind, Scorer},
    ranges,
};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "active-request",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(ActiveRequest { options }))
    },
};

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Requests up to which an endpoint counts as idle, and scores 1.
    idle_threshold: u32,
    /// What one that is not idle scores at most.
    #[serde(deserialize_with = "ranges::share")]
    max_busy_score: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { idle_threshold: 0, max_busy_score: 1.0 }
    }
}

#[derive(Debug)]
struct ActiveRequest {
    options: Options,
}

impl Scorer for ActiveRequest {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        let (_, most) = range(candidates, |candidate| candidate.in_flight() as f32);
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let requests = candidate.in_flight();
            *score = if requests <= self.options.idle_threshold {
                1.0
            } else {
                (most - requests as f32) / most * self.options.max_busy_score
            };
        }
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
