//! What is kept of a decided request once it has ended: its row, and what came of it.
//!
//! No prompt, key or header is part of it.

use std::{fmt, sync::Arc};

use datalayer::{Bin, StepSample};
use features::{FeatureRow, View};
use predict::{ClassKey, Prediction};
use schedule::{Candidate, Rung};
use types::{Accelerator, EndpointId, Request, Role, Slo, Time};

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
    /// What there was to choose from; only for a recorder that [wants](Recorder::wants_candidates) it.
    pub considered: Option<Arc<Considered>>,
}

/// Candidates that are kept of one decision.
pub const MOST_CANDIDATES: usize = 64;

/// What one decision chose from, before any filter: enough for another policy to decide it anew.
#[derive(Clone, Debug)]
pub struct Considered {
    /// What the request was promised.
    pub slo: Slo,
    /// What a miss of it weighs.
    pub weight: f32,
    /// Conversation it belongs to; names a caller's header, so it is to be written as a number.
    pub session: Option<Arc<str>>,
    /// Whether its answer is streamed.
    pub stream: bool,
    /// Blocks of its prompt that prefix caches are asked for.
    pub blocks: u32,
    /// See [`schedule::Decision::propensity`].
    pub propensity: Option<f32>,
    /// Whether no candidate was known to be alive.
    pub all_failing: bool,
    /// How many candidates there were.
    pub of: u32,
    /// Position of the chosen one in `candidates`.
    pub chosen: u32,
    /// All of them, or where there were more than [`MOST_CANDIDATES`] so many, drawn evenly beside the
    /// chosen one.
    pub candidates: Vec<Alternative>,
}

/// One endpoint that a decision might have chosen.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its slot.
    pub slot: u32,
    /// Its accelerator class.
    pub accelerator: Accelerator,
    /// Phases it serves.
    pub role: Role,
    /// The features of the request there.
    pub row: FeatureRow,
    /// Leading prompt blocks that it held.
    pub hit_blocks: u32,
    /// Tokens per KV-cache block and blocks, where it tells them.
    pub kv: Option<(u32, u32)>,
    /// Room of its streams under their ITL objectives.
    pub bins: Vec<Bin>,
    /// Streams there without an ITL objective.
    pub unbound: f32,
    /// What was predicted, if anything was.
    pub prediction: Option<Prediction>,
}

impl Alternative {
    fn of(candidate: &Candidate, now: Time) -> Self {
        let Candidate { endpoint, snapshot, load, demand, hit_blocks, prediction, .. } = candidate;
        Self {
            endpoint: endpoint.endpoint.id.clone(),
            slot: endpoint.slot,
            accelerator: endpoint.accelerator.clone(),
            role: endpoint.role,
            row: FeatureRow::extract(View { demand, snapshot, load, now }),
            hit_blocks: *hit_blocks,
            kv: snapshot.kv_block_tokens.zip(snapshot.kv_blocks),
            bins: load.budgets.bins().copied().collect(),
            unbound: load.budgets.unbound,
            prediction: *prediction,
        }
    }
}

/// The candidates of a decision that is about to be made.
#[derive(Debug)]
pub(crate) struct Offered {
    of: u32,
    all_failing: bool,
    random: u64,
    candidates: Vec<Alternative>,
}

impl Offered {
    /// Keeps at most [`MOST_CANDIDATES`] of `candidates`, drawn evenly: each stays as likely as any other.
    pub(crate) fn of(candidates: &[Candidate], all_failing: bool, now: Time, random: u64) -> Self {
        let all = candidates.len();
        let mut left = MOST_CANDIDATES.min(all);
        let mut kept = Vec::with_capacity(left);
        for (at, candidate) in candidates.iter().enumerate() {
            let ahead = (all - at) as u64;
            if left > 0 && scrambled(random, at) % ahead < left as u64 {
                left -= 1;
                kept.push(Alternative::of(candidate, now));
            }
        }
        Self { of: all as u32, all_failing, random, candidates: kept }
    }

    /// What was chosen from, with the chosen one in it.
    pub(crate) fn settle(
        self,
        request: &Request,
        chosen: &Candidate,
        propensity: Option<f32>,
        now: Time,
    ) -> Considered {
        let Self { of, all_failing, random, mut candidates } = self;
        let slot = chosen.endpoint.slot;
        let at = candidates.iter().position(|kept| kept.slot == slot).unwrap_or_else(|| {
            // Candidates come in the order of the pool: to replace the last would thin out its end.
            let at = (scrambled(random, of as usize) % candidates.len() as u64) as usize;
            candidates[at] = Alternative::of(chosen, now);
            at
        });
        Considered {
            slo: request.slo,
            weight: request.weight,
            session: request.session.clone(),
            stream: request.stream,
            blocks: request.blocks.len() as u32,
            propensity,
            all_failing,
            of,
            chosen: at as u32,
            candidates,
        }
    }
}

/// Another random number, for the draw numbered `at`: the finaliser of splitmix64.
fn scrambled(random: u64, at: usize) -> u64 {
    let mut z = random ^ (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Takes every decided request when it has ended.
///
/// Called where the request ends, so it must return at once: it neither blocks nor does I/O.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// Takes one request.
    fn record(&self, row: &Recorded);

    /// Whether rows shall hold what their decisions [chose from](Considered), which costs every decision
    /// a prediction per candidate, and memory until the request ends: up to 20 kB.
    fn wants_candidates(&self) -> bool {
        false
    }
}
