//! A profile: filters, weighted scorers and one picker.

use serde_json::Value;
use types::{OptionsError, Request};

use crate::{
    candidate::{Candidate, Filter, Kind, Picker, Scorer},
    filters::FILTERS,
    options::ProfileOptions,
    pickers::PICKERS,
    scorers::SCORERS,
};

/// Why a profile cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin of that kind has this name.
    #[error("no {kind} is called `{name}`; there are {known}")]
    Unknown {
        /// `filter`, `scorer` or `picker`.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A weight is not a number in range.
    #[error("weight {weight} of scorer `{name}` is not a finite number of at least 0")]
    Weight {
        /// The scorer.
        name: String,
        /// Its weight.
        weight: f32,
    },
    /// A plugin's own options do not fit.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// Filters, weighted scorers and one picker.
#[derive(Debug)]
pub struct Profile {
    filters: Vec<Box<dyn Filter>>,
    scorers: Vec<(f32, Box<dyn Scorer>)>,
    picker: Box<dyn Picker>,
}

fn build<P: ?Sized>(
    kind: &'static str,
    kinds: &'static [Kind<P>],
    name: &str,
    parameters: &Value,
) -> Result<Box<P>, Error> {
    let found = kinds.iter().find(|k| k.name == name).ok_or_else(|| Error::Unknown {
        kind,
        name: name.to_owned(),
        known: kinds.iter().map(|k| k.name).collect::<Vec<_>>().join(", "),
    })?;
    Ok((found.build)(parameters)?)
}

impl Profile {
    /// Builds every plugin of `options`.
    pub fn new(options: &ProfileOptions) -> Result<Self, Error> {
        let filters =
            options.filters.iter().map(|p| build("filter", FILTERS, &p.name, &p.parameters));
        let scorers = options.scorers.iter().map(|scorer| {
            let (name, weight) = (&scorer.name, scorer.weight);
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(Error::Weight { name: name.clone(), weight });
            }
            Ok((weight, build("scorer", SCORERS, name, &scorer.parameters)?))
        });
        Ok(Self {
            filters: filters.collect::<Result<_, _>>()?,
            scorers: scorers.collect::<Result<_, _>>()?,
            picker: build("picker", PICKERS, &options.picker.name, &options.picker.parameters)?,
        })
    }

    /// Drops the candidates that a filter does not keep.
    pub fn narrow(&self, request: &Request, candidates: &mut Vec<Candidate>) {
        if !self.filters.is_empty() {
            candidates.retain(|candidate| self.filters.iter().all(|f| f.keeps(request, candidate)));
        }
    }

    /// Writes the weighted sum of scores of each candidate into `totals`.
    pub fn score(&self, request: &Request, candidates: &[Candidate], totals: &mut Vec<f32>) {
        totals.clear();
        totals.resize(candidates.len(), 0.0);
        let mut scores = vec![0.0; candidates.len()];
        for (weight, scorer) in &self.scorers {
            scorer.score(request, candidates, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += weight * score.clamp(0.0, 1.0);
            }
        }
    }

    /// Decides among scored candidates.
    pub fn pick(&self, totals: &[f32], random: u64) -> Option<usize> {
        self.picker.pick(totals, random)
    }

    /// Tells the scorers where `request` went.
    pub fn dispatched(&self, request: &Request, chosen: &Candidate) {
        for (_, scorer) in &self.scorers {
            scorer.dispatched(request, chosen);
        }
    }
}
