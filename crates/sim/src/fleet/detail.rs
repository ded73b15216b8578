//! What a simulation came to beside its report: by class of callers and by member, and samples.

use std::{collections::BTreeMap, time::Duration};

use crate::report::Latencies;

/// What a simulation came to, by class and by member. Requests of the warm-up count only where a field
/// says so.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// By class, in the scenario's order.
    pub classes: Vec<ClassDetail>,
    /// All classes together.
    pub all: ClassDetail,
    /// By member, in the fleet's order.
    pub members: Vec<MemberDetail>,
    /// Prompt tokens of the requests that had a first token.
    pub prompt_tokens: u64,
    /// How many of those were found in prefix caches.
    pub cached_tokens: u64,
    /// Output tokens of the requests that met their objective.
    pub met_output_tokens: u64,
    /// Time of the last arrival, from the start, warm-up too.
    pub span: Duration,
    /// When the last request had ended, from the start.
    pub end: Duration,
    /// Decisions by rung, warm-up and retries too; none of an oracle.
    pub rungs: BTreeMap<&'static str, u64>,
    /// Requests that were predicted and served, at most 2,000, evenly thinned out.
    pub predicted: Vec<Predicted>,
}

/// What one class of callers saw.
#[derive(Clone, Debug, Default)]
pub struct ClassDetail {
    /// Its name.
    pub name: String,
    /// What a miss of it weighs.
    pub weight: f32,
    /// Requests that ended, in whichever way.
    pub requests: u64,
    /// How many met their objective.
    pub met: u64,
    /// Time to first token, of requests that succeeded.
    pub ttft: Latencies,
    /// Mean gap between tokens per request, of requests that succeeded with at least two.
    pub itl: Latencies,
    /// Mean, over the worst tenth of the requests that succeeded, of the larger of TTFT and mean ITL as a
    /// multiple of its objective; `None` where nothing was promised.
    pub worst_tenth_ratio: Option<f64>,
}

/// What one member did, warm-up too.
#[derive(Clone, Debug, Default)]
pub struct MemberDetail {
    /// Its name.
    pub name: String,
    /// Its accelerator class.
    pub accelerator: String,
    /// Time in which it ran steps.
    pub busy: Duration,
    /// Requests whose first token it gave.
    pub requests: u64,
    /// Uncached prompt tokens of those, and the output tokens that they had.
    pub tokens: u64,
}

/// What was predicted of one request when it was decided, and what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// TTFT in milliseconds: the predicted median, and what came.
    pub ttft_ms: (f32, f32),
    /// Mean ITL likewise, of an answer of at least two tokens.
    pub itl_ms: Option<(f32, f32)>,
}
