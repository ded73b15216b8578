//! What an engine holds, for whoever simulates it ahead without its blocks.

use types::Time;

use super::{Engine, Options, sequence::Sequence};
use crate::profile::BLOCK_TOKENS;

/// One request in an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlined {
    /// The request.
    pub id: u64,
    /// Where it is.
    pub stage: Stage,
    /// When it enters, or entered, the waiting queue.
    pub arrival: Time,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Tokens it emits in all.
    pub output_tokens: u32,
    /// Tokens whose KV it has.
    pub computed: u32,
    /// Tokens it emitted.
    pub generated: u32,
    /// Tokens of it in the step that runs.
    pub scheduled: u32,
}

/// How far a request got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Among the running.
    Running,
    /// In the waiting queue.
    Waiting,
    /// In the API server.
    Incoming,
}

impl Outlined {
    fn new(sequence: &Sequence, stage: Stage) -> Self {
        Self {
            id: sequence.id,
            stage,
            arrival: sequence.arrival,
            prompt_tokens: sequence.prompt,
            output_tokens: sequence.output,
            computed: sequence.computed,
            generated: sequence.generated,
            scheduled: sequence.scheduled,
        }
    }
}

impl Engine {
    /// How it is set up, with the present slow-down.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Every request in it: the running, the waiting and those in the API server, each in order.
    pub(crate) fn outline(&self) -> impl Iterator<Item = Outlined> + '_ {
        let stages = [Stage::Running, Stage::Waiting, Stage::Incoming];
        let running = self.running.iter().map(move |slot| (slot, stages[0]));
        let waiting = self.waiting.iter().map(move |slot| (slot, stages[1]));
        let incoming = self.incoming.iter().map(move |slot| (slot, stages[2]));
        let all = running.chain(waiting).chain(incoming);
        all.map(|(slot, stage)| Outlined::new(&self.sequences[*slot], stage))
    }

    /// Whether request `id` is in it.
    pub(crate) fn holds(&self, id: u64) -> bool {
        self.sequences.slot_of(id).is_some()
    }

    /// Start and end of the step that runs.
    pub(crate) fn step_span(&self) -> Option<(Time, Time)> {
        self.step
    }

    /// KV blocks, and how many of them nobody holds.
    pub(crate) fn kv_blocks(&self) -> (u32, u32) {
        (self.blocks.total(), self.blocks.free())
    }

    /// Time in the API server of a prompt of `tokens`, ms.
    pub(crate) fn api_delay_ms(&self, tokens: u32) -> f64 {
        let base_ms = if self.options.async_scheduling {
            super::ASYNC_API_MS
        } else {
            self.profile.costs.api_ms
        };
        base_ms + super::API_MS_PER_TOKEN * f64::from(tokens)
    }

    /// Tokens at the front of a prompt of `tokens` with these block hashes that the cache holds now;
    /// less than the whole prompt, as its last token is always computed.
    pub(crate) fn cached_tokens(&self, tokens: u32, blocks: &[u64]) -> u32 {
        let most = (tokens.saturating_sub(1) / BLOCK_TOKENS) as usize;
        let found = |hash: &&u64| self.blocks.lookup(**hash).is_some();
        blocks.iter().take(most).take_while(found).count() as u32 * BLOCK_TOKENS
    }
}
