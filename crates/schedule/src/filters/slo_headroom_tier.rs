//! Keeps the endpoints that are predicted to meet both objectives, where there are any (llm-d's
//! `slo-headroom-tier-filter`); now and then, for exploration, the others instead.
//!
//! An endpoint without a prediction counts among those that miss; where none has one, all stay.

use serde::Deserialize;
use types::{Request, read_options};

use crate::{
    candidate::{Candidate, Filter, Kind},
    draw,
    headroom::Headroom,
    ranges,
};

pub(super) const KIND: Kind<dyn Filter> = Kind {
    name: "slo-headroom-tier",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(SloHeadroomTier { options }))
    },
};

/// Tuning of the filter.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Chance to keep those that are predicted to miss.
    #[serde(deserialize_with = "ranges::share")]
    epsilon_explore_neg: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { epsilon_explore_neg: 0.01 }
    }
}

#[derive(Debug)]
struct SloHeadroomTier {
    options: Options,
}

impl Filter for SloHeadroomTier {
    fn narrow(&self, request: &Request, candidates: &mut Vec<Candidate>, random: u64) {
        let meets = |candidate: &Candidate| {
            let prediction = candidate.prediction.as_ref();
            prediction.is_some_and(|p| Headroom::of(request.slo, p).is_positive())
        };
        let meeting = candidates.iter().filter(|candidate| meets(candidate)).count();
        if meeting == 0 || meeting == candidates.len() {
            return;
        }
        let explores = draw::unit(random) < f64::from(self.options.epsilon_explore_neg);
        candidates.retain(|candidate| meets(candidate) != explores);
    }

    fn uses_chance(&self) -> bool {
        self.options.epsilon_explore_neg > 0.0
    }

    fn wants_predictions(&self) -> bool {
        true
    }
}
