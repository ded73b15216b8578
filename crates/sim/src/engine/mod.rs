//! One model server as its scheduler sees it: continuous batching over a paged KV cache.
//!
//! Follows vLLM v1: running sequences first, then waiting ones in order of arrival while token
//! budget, sequence slots and free blocks last; chunked prefill; block-level prefix cache;
//! preemption by recomputation. An engine is a pure state machine: it reads no clock and runs no
//! task, so the same code runs in virtual time and behind the HTTP server. Equal calls give equal
//! events.

mod blocks;
mod outline;
mod scheduler;
mod sequence;
mod table;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rand_distr::StandardNormal;
use types::Time;

pub(crate) use self::outline::{Outlined, Stage};

use self::{
    blocks::Blocks,
    sequence::{Place, Slab},
};
use crate::profile::{BLOCK_TOKENS, Batch, Profile};

/// Share of noise in step times at a fixed batch: standard deviation of its logarithm, as measured.
const JITTER_SD: f64 = 0.025;
/// Chance that a step is an outlier, and how much longer it then takes, as measured.
const OUTLIER: (f64, f64) = (0.001, 1.3);
/// Delay of the API server with asynchronous scheduling, ms.
const ASYNC_API_MS: f64 = 5.0;
/// Delay of the API server per prompt token, ms.
const API_MS_PER_TOKEN: f64 = 0.8e-3;

/// Limits and switches of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Tokens that one step may compute.
    pub max_num_batched_tokens: u32,
    /// Sequences that may run at once.
    pub max_num_seqs: u32,
    /// KV blocks; `None` takes the profile's.
    pub kv_blocks: Option<u32>,
    /// Longest prompt and output together, tokens.
    pub max_model_len: u32,
    /// Whether a step is scheduled while the one before it runs, so that a new request joins the
    /// step after next (2.5 steps of waiting on average, 5 ms in the API server) and not the next
    /// one (1.5 steps, and the profile's delay in the API server).
    pub async_scheduling: bool,
    /// Factor on every step time: 1 is the profile's speed, 2 half of it.
    pub slowdown: f64,
    /// Seed of the noise in step times.
    pub seed: u64,
}

impl Options {
    /// What vLLM sets by default on the card of `profile`.
    pub fn new(profile: &Profile) -> Self {
        let large = profile.is_large_card();
        Self {
            max_num_batched_tokens: if large { 8192 } else { 2048 },
            max_num_seqs: if large { 1024 } else { 256 },
            kv_blocks: None,
            max_model_len: 131_072,
            async_scheduling: true,
            slowdown: 1.0,
            seed: 0,
        }
    }
}

/// One request for an engine.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Identity; unique among the requests in the engine.
    pub id: u64,
    /// Prompt length; zero counts as one.
    pub prompt_tokens: u32,
    /// Chain hash of each full block of [`BLOCK_TOKENS`] tokens: of the prompt, and as far as the
    /// caller knows it of the answer. Blocks without one are never shared.
    pub blocks: Arc<[u64]>,
    /// Tokens it emits before it finishes; zero counts as one.
    pub output_tokens: u32,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// It emitted its first token.
    FirstToken {
        /// Prompt tokens that were in the prefix cache.
        cached_tokens: u32,
    },
    /// It emitted one more token.
    Token,
    /// It is complete; follows its last token.
    Finished {
        /// Prompt tokens that were in the prefix cache.
        cached_tokens: u32,
    },
    /// It lost its blocks and waits to be recomputed.
    Preempted,
}

/// Something that happened to one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// The request.
    pub id: u64,
    /// When.
    pub at: Time,
    /// What.
    pub kind: EventKind,
}

/// Why an engine does not take a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rejected {
    /// Prompt and output together exceed the longest sequence that fits.
    #[error("{tokens} tokens exceed the longest sequence of {limit} tokens")]
    TooLong {
        /// Prompt and output tokens.
        tokens: u64,
        /// See [`Engine::max_model_len`].
        limit: u32,
    },
    /// A request with this id is in the engine.
    #[error("request {0} is in the engine already")]
    Duplicate(u64),
}

/// State and counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Sequences that run.
    pub running: u32,
    /// Sequences in the waiting queue.
    pub waiting: u32,
    /// Share of KV blocks that are held, `0.0..=1.0`.
    pub kv_utilization: f64,
    /// KV blocks there are.
    pub kv_blocks: u32,
    /// Counters since the start.
    pub counts: Counts,
}

/// Counters of an engine, since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Prompt tokens of requests that emitted their first token.
    pub prompt_tokens: u64,
    /// Tokens emitted.
    pub generation_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Steps.
    pub steps: u64,
    /// Time that they took, in all.
    pub busy: Duration,
    /// Requests that emitted all their tokens.
    pub finished: u64,
    /// Requests that were aborted.
    pub aborted: u64,
}

/// One simulated engine.
#[derive(Clone, Debug)]
pub struct Engine {
    profile: Profile,
    options: Options,
    rng: SmallRng,
    blocks: Blocks,
    sequences: Slab,
    /// On their way through the API server, by arrival.
    incoming: VecDeque<u32>,
    waiting: VecDeque<u32>,
    running: Vec<u32>,
    /// Start and end of the step that runs.
    step: Option<(Time, Time)>,
    now: Time,
    /// The waiting sequence that did not fit, and [`Blocks::releases`] and shareable registrations
    /// at that time: trying again is pointless until one of them moves.
    misfit: Option<(u32, u64)>,
    registrations: u64,
    counts: Counts,
}

impl Engine {
    /// An idle engine with an empty cache.
    ///
    /// Limits of zero count as one.
    pub fn new(profile: Profile, mut options: Options) -> Self {
        options.max_num_batched_tokens = options.max_num_batched_tokens.max(1);
        options.max_num_seqs = options.max_num_seqs.max(1);
        Self {
            rng: SmallRng::seed_from_u64(options.seed),
            blocks: Blocks::new(options.kv_blocks.unwrap_or(profile.kv_blocks).max(1)),
            profile,
            options,
            sequences: Slab::default(),
            incoming: VecDeque::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step: None,
            now: Time::ZERO,
            misfit: None,
            registrations: 0,
            counts: Counts::default(),
        }
    }

    /// Its step-time profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Longest sequence it takes, tokens: the option, or what all KV blocks hold.
    pub fn max_model_len(&self) -> u32 {
        self.options.max_model_len.min(self.blocks.total().saturating_mul(BLOCK_TOKENS))
    }

    /// Takes a request that reaches the API server at `now`.
    ///
    /// It enters the waiting queue after the delay of the API server. Call [`Self::advance`] up to
    /// `now` before: steps that began meanwhile do not know of it.
    pub fn submit(&mut self, mut submit: Submit, now: Time) -> Result<(), Rejected> {
        submit.prompt_tokens = submit.prompt_tokens.max(1);
        submit.output_tokens = submit.output_tokens.max(1);
        let tokens = u64::from(submit.prompt_tokens) + u64::from(submit.output_tokens);
        let limit = self.max_model_len();
        if tokens > u64::from(limit) {
            return Err(Rejected::TooLong { tokens, limit });
        }
        if self.sequences.slot_of(submit.id).is_some() {
            return Err(Rejected::Duplicate(submit.id));
        }
        let base_ms =
            if self.options.async_scheduling { ASYNC_API_MS } else { self.profile.costs.api_ms };
        let delay_ms = base_ms + API_MS_PER_TOKEN * f64::from(submit.prompt_tokens);
        let arrival = now.max(self.now).after(Duration::from_nanos((delay_ms * 1e6) as u64));
        let slot = self.sequences.insert(submit, arrival);
        let at = self.incoming.partition_point(|other| self.sequences[*other].arrival <= arrival);
        self.incoming.insert(at, slot);
        Ok(())
    }

    /// Drops request `id` and frees its blocks at once; whether it was there.
    ///
    /// A step that runs goes on to its end, as on a GPU.
    pub fn abort(&mut self, id: u64, now: Time) -> bool {
        self.now = self.now.max(now);
        let Some(slot) = self.sequences.slot_of(id) else { return false };
        match self.sequences[slot].place {
            Place::Incoming => self.incoming.retain(|other| *other != slot),
            Place::Waiting => self.waiting.retain(|other| *other != slot),
            Place::Running => self.running.retain(|other| *other != slot),
        }
        self.free_blocks(slot);
        self.sequences.remove(slot);
        self.misfit = None;
        self.counts.aborted += 1;
        true
    }

    /// When something happens next if nobody calls: the end of the step, or an arrival. `None`
    /// when the engine is idle.
    pub fn next_event(&self) -> Option<Time> {
        let arrival = || self.incoming.front().map(|slot| self.sequences[*slot].arrival);
        self.step.map(|(_, end)| end).or_else(arrival)
    }

    /// Runs every step that ends at or before `now`, and starts those that then begin. Appends
    /// what happens to `events`, in order of time.
    pub fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        loop {
            match self.step {
                Some((start, end)) if end <= now => {
                    self.step = None;
                    self.counts.busy += end.since(start);
                    self.finish_step(end, events);
                    self.start_step(end, start, events);
                }
                Some(_) => break,
                None => {
                    let Some(arrival) = self.next_event().filter(|at| *at <= now) else { break };
                    let start = arrival.max(self.now);
                    self.start_step(start, start, events);
                }
            }
        }
        self.now = self.now.max(now);
        self.accept_arrivals(now);
    }

    /// Changes [`Options::slowdown`] for the steps that begin from now on.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.options.slowdown = factor;
    }

    /// It dies and starts anew: all requests and the cache are gone. What it has counted stays, and
    /// so does its speed.
    pub fn restart(&mut self, now: Time) {
        self.counts.aborted += self.sequences.len() as u64;
        self.blocks = Blocks::new(self.blocks.total());
        self.sequences = Slab::default();
        self.incoming.clear();
        self.waiting.clear();
        self.running.clear();
        self.step = None;
        self.misfit = None;
        self.now = self.now.max(now);
    }

    /// What it has counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// State and counters, as of the last call.
    pub fn gauges(&self) -> Gauges {
        let total = self.blocks.total();
        Gauges {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_utilization: f64::from(total - self.blocks.free()) / f64::from(total),
            kv_blocks: total,
            counts: self.counts,
        }
    }

    /// Time of a step over `batch`, with noise.
    fn step_time(&mut self, batch: &Batch) -> Duration {
        let normal: f64 = self.rng.sample(StandardNormal);
        let outlier = if self.rng.random_bool(OUTLIER.0) { OUTLIER.1 } else { 1.0 };
        let noise = exp(JITTER_SD * normal) * outlier;
        let ms = self.profile.step_ms(batch) * noise * self.options.slowdown;
        Duration::from_nanos((ms * 1e6).max(1.0) as u64)
    }

    /// Gives up every block of a sequence, the last one first, so that the front of a prompt is
    /// the last to be evicted.
    fn free_blocks(&mut self, slot: u32) {
        let sequence = &mut self.sequences[slot];
        for id in sequence.table.drain(..).rev() {
            self.blocks.release(id);
        }
        sequence.computed = 0;
        sequence.scheduled = 0;
    }
}

/// The exponential of a small number, by its series: the same bits on every machine, which a platform's
/// own function does not promise.
fn exp(x: f64) -> f64 {
    const FACTORIALS: [f64; 11] =
        [3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0];
    FACTORIALS.map(f64::recip).into_iter().fold(0.0, |sum, factor| sum * x + factor)
}

#[cfg(test)]
mod tests;
