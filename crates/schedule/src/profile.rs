//! A profile: filters, weighted scorers and one picker.

use serde_json::Value;
use types::Request;

use crate::{
    candidate::{Candidate, Filter, Kind, Picker, Scorer},
    draw,
    error::Error,
    filters::FILTERS,
    options::ProfileOptions,
    pickers::PICKERS,
    scorers::SCORERS,
};

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

    /// Leaves the candidates that the filters leave, one after the other. `random` is a fresh random number.
    pub fn narrow(&self, request: &Request, candidates: &mut Vec<Candidate>, random: u64) {
        for (at, filter) in self.filters.iter().enumerate() {
            filter.narrow(request, candidates, draw::another(random, at));
        }
    }

    /// Whether a filter looks at predictions.
    pub fn filters_want_predictions(&self) -> bool {
        self.filters.iter().any(|filter| filter.wants_predictions())
    }

    /// Whether a scorer looks at predictions.
    pub fn scorers_want_predictions(&self) -> bool {
        self.scorers.iter().any(|(_, scorer)| scorer.wants_predictions())
    }

    /// Whether a scorer looks at what the endpoints' pages tell.
    pub fn wants_metrics(&self) -> bool {
        self.scorers.iter().any(|(_, scorer)| scorer.wants_metrics())
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

    /// Chance that [`Profile::pick`] picks `chosen`; `None` where the picker does not tell.
    pub fn propensity(&self, totals: &[f32], chosen: usize) -> Option<f32> {
        self.picker.propensity(totals, chosen)
    }

    /// Whether chance has a part in which candidates a filter leaves.
    pub fn narrows_by_chance(&self) -> bool {
        self.filters.iter().any(|filter| filter.uses_chance())
    }

    /// Tells the scorers where `request` went.
    pub fn dispatched(&self, request: &Request, chosen: &Candidate) {
        for (_, scorer) in &self.scorers {
            scorer.dispatched(request, chosen);
        }
    }
}
