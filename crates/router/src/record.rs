//! What is kept of a decided request once it has ended: its row, and what came of it.
//!
//! No prompt, key or header is part of it.

use std::fmt;

use datalayer::StepSample;
use features::FeatureRow;
use predict::ClassKey;
use schedule::Rung;
use types::{EndpointId, Time};

/// An observed latency and when it was known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The latency, in milliseconds.
    pub ms: f32,
    /// When it was known.
    pub at: Time,
}

/// Samples of steps that are kept of one request.
pub const MOST_STEPS: usize = 16;

/// A decided request that has ended.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When it was decided.
    pub decided_at: Time,
    /// Class of the endpoint that served it.
    pub class: ClassKey,
    /// That endpoint.
    pub endpoint: EndpointId,
    /// Its slot.
    pub slot: u32,
    /// The features at the instant of the decision.
    pub row: FeatureRow,
    /// Time to first token, where it was seen.
    pub ttft: Option<Known>,
    /// Mean time between tokens, where at least two were seen.
    pub itl: Option<Known>,
    /// Mean times between the tokens so far, while the stream went on; none for a short one.
    pub itl_so_far: Vec<Known>,
    /// Samples of the endpoint's steps that tokens of this request completed, at most [`MOST_STEPS`],
    /// evenly thinned out.
    pub steps: Vec<(Time, StepSample)>,
    /// Time of the whole answer, where it was complete and no token was seen by itself.
    pub e2e: Option<Known>,
    /// Output tokens, as told by the endpoint or else as seen.
    pub output_tokens: u32,
    /// How it ended: the word of [`End`](crate::End), or `cancelled`; of a complete one that taught no
    /// latency, `warm-up` (one of the first of its endpoint, far slower than predicted) or `preempted`
    /// (it stalled while its endpoint preempted requests).
    pub end: &'static str,
    /// What decided.
    pub rung: Rung,
}

/// Takes every decided request when it has ended.
///
/// Called where the request ends, so it must return at once: it neither blocks nor does I/O.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// Takes one request.
    fn record(&self, row: &Recorded);
}
