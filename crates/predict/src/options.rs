//! How learning is configured.

use serde::{Deserialize, Serialize};

use crate::{experts::EXPERTS, prior::PriorSource, seen::FeatureName};

/// Tuning of the learner.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Online regressors, by name. All learn every row; the last is the base, which the others must beat
    /// to serve and which tree ensembles correct.
    pub regressors: Vec<String>,
    /// Models made for engines, by name: `twin` rolls the queue forward, `overload` reads off how fast a
    /// queue drains, `endpoint-rls` has weights for each endpoint, shrunk towards those of its class.
    pub experts: Vec<String>,
    /// Batch regressors, by name, fitted anew in the background.
    pub batch: Vec<String>,
    /// Labels from which a class predicts by itself.
    pub min_labels: u32,
    /// Where priors are read from, by whoever builds the learner: `builtin`, `none` or a file.
    pub priors: PriorSource,
    /// The features that models see, by name; empty means all. The others read as 0, at learning and at
    /// predicting alike, but for whether there are requests ahead and streams. With some hidden nothing
    /// starts from a prior, which has seen all.
    pub features: Vec<FeatureName>,
}

impl Default for Options {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            regressors: names(&["mean", "rls"]),
            experts: names(&EXPERTS),
            batch: names(&["elastic-net", "random-forest", "boosted-trees"]),
            min_labels: 20,
            priors: PriorSource::Builtin,
            features: Vec::new(),
        }
    }
}
