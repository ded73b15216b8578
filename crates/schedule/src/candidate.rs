//! What plugins look at, and what they are.

use std::sync::Arc;

use datalayer::{Demand, EndpointState, Load, Snapshot};
use predict::Prediction;
use serde_json::Value;
use types::{OptionsError, Request};

/// One endpoint under consideration for one request.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which endpoint.
    pub endpoint: Arc<EndpointState>,
    /// What its page said last.
    pub snapshot: Snapshot,
    /// Age of that; `None` if no page was ever read.
    pub snapshot_age_ms: Option<f32>,
    /// What we have in flight there.
    pub load: Load,
    /// What the request would ask of it.
    pub demand: Demand,
    /// Leading prompt blocks that it holds.
    pub hit_blocks: u32,
    /// What it is expected to do with the request, if anything is known.
    pub prediction: Option<Prediction>,
}

impl Candidate {
    /// Requests that we have in flight there.
    pub fn in_flight(&self) -> u32 {
        self.load.prefilling + self.load.decoding
    }

    /// Share of the blocks of `request` that it holds, `0.0..=1.0`; 0 where the prompt has no whole block.
    pub fn hit_ratio(&self, request: &Request) -> f32 {
        (self.hit_blocks as f32 / request.blocks.len().max(1) as f32).min(1.0)
    }
}

/// Narrows the candidates.
///
/// Implementations are pure, and which candidates stay does not depend on their order.
pub trait Filter: std::fmt::Debug + Send + Sync {
    /// Removes the candidates that shall not serve `request` and leaves the others in their order. To
    /// narrow what is narrowed already, with the same number, changes nothing. `random` is a fresh random
    /// number; equal inputs leave equal candidates.
    fn narrow(&self, request: &Request, candidates: &mut Vec<Candidate>, random: u64);

    /// Whether chance has a part in which candidates stay.
    fn uses_chance(&self) -> bool {
        false
    }

    /// Whether it looks at predictions.
    fn wants_predictions(&self) -> bool {
        false
    }
}

/// Ranks candidates.
///
/// Equal inputs give equal scores, and the order of candidates is irrelevant except among equals.
/// Implementations run on the request path, so they neither block nor allocate per candidate.
pub trait Scorer: std::fmt::Debug + Send + Sync {
    /// Writes one score in `0.0..=1.0` per candidate; higher is better.
    ///
    /// `scores` has the length of `candidates`.
    fn score(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]);

    /// `request` goes to `chosen`: for a scorer that remembers.
    fn dispatched(&self, _request: &Request, _chosen: &Candidate) {}

    /// Whether it looks at predictions.
    fn wants_predictions(&self) -> bool {
        false
    }

    /// Whether it looks at what the endpoints' pages tell: such a one does not decide by stale pages.
    fn wants_metrics(&self) -> bool {
        true
    }
}

/// Decides among scored candidates.
pub trait Picker: std::fmt::Debug + Send + Sync {
    /// Position of the chosen candidate, or `None` if there are none. `random` is a fresh random
    /// number; equal inputs give equal picks.
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize>;

    /// Chance that [`Picker::pick`] picks `chosen` among these scores, over random numbers; `None` where it
    /// is not known.
    fn propensity(&self, _scores: &[f32], _chosen: usize) -> Option<f32> {
        None
    }
}

/// How a configuration name becomes a plugin.
#[derive(Debug)]
pub struct Kind<Plugin: ?Sized> {
    /// The name used in configuration, in kebab case.
    pub name: &'static str,
    /// Builds the plugin from its own options.
    pub build: fn(options: &Value) -> Result<Box<Plugin>, OptionsError>,
}
