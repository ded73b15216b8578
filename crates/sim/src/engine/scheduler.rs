//! The two halves of a step: what goes into it, and what comes out of it.

use types::Time;

use super::{
    Engine, Event, EventKind,
    sequence::{Place, Sequence},
};
use crate::profile::{BLOCK_TOKENS, Batch};

/// Blocks that are looked up together.
const AHEAD: u32 = 16;

impl Batch {
    /// Adds `tokens` of `sequence` to the step.
    fn add(&mut self, sequence: &Sequence, tokens: u32) {
        self.tokens += tokens;
        self.sequences += 1;
        if tokens == 1 && sequence.generated > 0 {
            self.context += u64::from(sequence.computed);
        } else {
            let new = f64::from(tokens);
            self.pairs += new * (f64::from(sequence.computed) + new / 2.0);
        }
    }
}

impl Engine {
    /// Moves what has arrived by `now` into the waiting queue.
    pub(super) fn accept_arrivals(&mut self, now: Time) {
        while let Some(&slot) = self.incoming.front() {
            let sequence = &mut self.sequences[slot];
            if sequence.arrival > now {
                break;
            }
            sequence.place = Place::Waiting;
            self.incoming.pop_front();
            self.waiting.push_back(slot);
        }
    }

    /// Begins a step at `start`, if there is work. `previous` is the start of the step that ended
    /// just now, or `start` if the engine was idle.
    pub(super) fn start_step(&mut self, start: Time, previous: Time, events: &mut Vec<Event>) {
        self.now = start;
        self.accept_arrivals(start);
        let mut batch = Batch::default();
        let preempted = self.schedule_running(&mut batch, start, events);
        if !preempted {
            // Scheduling ahead, this step was put together when the previous one began.
            let ahead = self.options.async_scheduling && batch.sequences > 0;
            self.schedule_waiting(&mut batch, if ahead { previous } else { start });
        }
        if batch.sequences > 0 {
            let end = start.after(self.step_time(&batch));
            self.step = Some((start, end));
        }
    }

    /// Gives each running sequence its next token or chunk, in order. Whether one was preempted.
    fn schedule_running(
        &mut self,
        batch: &mut Batch,
        start: Time,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut preempted = false;
        let mut next = 0;
        while let Some(&slot) = self.running.get(next) {
            let budget = self.options.max_num_batched_tokens - batch.tokens;
            if budget == 0 {
                break;
            }
            let sequence = &self.sequences[slot];
            let tokens = (sequence.tokens() - sequence.computed).min(budget);
            let missing = missing_blocks(sequence, sequence.computed + tokens);
            while missing > self.blocks.free() && self.running.len() > next {
                self.preempt_last(start, events);
                preempted = true;
            }
            if self.running.len() <= next {
                break;
            }
            self.schedule(slot, tokens, batch);
            next += 1;
        }
        preempted
    }

    /// Sends the last of the running back to the head of the waiting queue, without its blocks.
    fn preempt_last(&mut self, at: Time, events: &mut Vec<Event>) {
        let Some(slot) = self.running.pop() else { return };
        self.free_blocks(slot);
        let sequence = &mut self.sequences[slot];
        sequence.place = Place::Waiting;
        events.push(Event { id: sequence.id, at, kind: EventKind::Preempted });
        self.waiting.push_front(slot);
        self.misfit = None;
        self.counts.preemptions += 1;
    }

    /// Admits waiting sequences that arrived by `cutoff`, in order, while everything suffices.
    fn schedule_waiting(&mut self, batch: &mut Batch, cutoff: Time) {
        while let Some(&slot) = self.waiting.front() {
            let budget = self.options.max_num_batched_tokens - batch.tokens;
            let has_seat = self.running.len() < self.options.max_num_seqs as usize;
            let is_known = self.sequences[slot].arrival <= cutoff;
            if budget == 0 || !has_seat || !is_known || !self.take_prefix(slot) {
                break;
            }
            let sequence = &mut self.sequences[slot];
            sequence.place = Place::Running;
            if sequence.cached.is_none() {
                sequence.cached = Some(sequence.computed);
                self.counts.prefix_queries += u64::from(sequence.prompt);
                self.counts.prefix_hits += u64::from(sequence.computed);
            }
            let tokens = (sequence.tokens() - sequence.computed).min(budget);
            self.waiting.pop_front();
            self.running.push(slot);
            self.schedule(slot, tokens, batch);
        }
    }

    /// Gives a waiting sequence the cached blocks of its front, if what is left of it fits into
    /// the free ones. The last token is always computed, so its block is never taken.
    fn take_prefix(&mut self, slot: u32) -> bool {
        let state = self.blocks.releases() + self.registrations;
        if self.misfit == Some((slot, state)) {
            return false;
        }
        let sequence = &mut self.sequences[slot];
        let mut free_hits = 0;
        let full = (sequence.tokens() - 1) / BLOCK_TOKENS;
        for index in 0..full {
            if index.is_multiple_of(AHEAD) {
                let next = index..full.min(index + AHEAD);
                self.blocks.warm(next.map(|index| sequence.hash(index)));
            }
            let Some(id) = self.blocks.lookup(sequence.hash(index)) else { break };
            sequence.table.push(id);
            free_hits += u32::from(self.blocks.is_free(id));
        }
        if missing_blocks(sequence, sequence.tokens()) + free_hits > self.blocks.free() {
            sequence.table.clear();
            self.misfit = Some((slot, state));
            return false;
        }
        for &id in &sequence.table {
            self.blocks.hold(id);
        }
        sequence.computed = sequence.table.len() as u32 * BLOCK_TOKENS;
        true
    }

    /// Puts `tokens` of a sequence into the step, with the blocks they need.
    fn schedule(&mut self, slot: u32, tokens: u32, batch: &mut Batch) {
        let sequence = &mut self.sequences[slot];
        let missing = missing_blocks(sequence, sequence.computed + tokens);
        debug_assert!(missing <= self.blocks.free(), "blocks are counted before");
        if missing > 0 {
            self.blocks.allocate(missing, &mut sequence.table);
        }
        sequence.scheduled = tokens;
        batch.add(sequence, tokens);
    }

    /// Ends the step at `end`: what was scheduled is computed, and full sequences emit a token.
    pub(super) fn finish_step(&mut self, end: Time, events: &mut Vec<Event>) {
        self.counts.steps += 1;
        let mut kept = 0;
        for position in 0..self.running.len() {
            let slot = self.running[position];
            self.cache_computed(slot);
            if self.emit(slot, end, events) {
                self.free_blocks(slot);
                self.sequences.remove(slot);
                self.counts.finished += 1;
            } else {
                self.running[kept] = slot;
                kept += 1;
            }
        }
        self.running.truncate(kept);
    }

    /// Counts the scheduled tokens of a sequence as computed, and makes its full blocks findable.
    fn cache_computed(&mut self, slot: u32) {
        let sequence = &mut self.sequences[slot];
        let first = sequence.computed / BLOCK_TOKENS;
        sequence.computed += sequence.scheduled;
        let full = first..sequence.computed / BLOCK_TOKENS;
        if full.len() > 1 {
            self.blocks.warm(full.clone().map(|index| sequence.hash(index)));
        }
        for index in full {
            let id = sequence.table[index as usize];
            let is_new = self.blocks.register(id, sequence.hash(index));
            self.registrations += u64::from(is_new && sequence.is_shareable(index));
        }
    }

    /// Emits a token if all known ones are computed; whether it was the last one.
    fn emit(&mut self, slot: u32, at: Time, events: &mut Vec<Event>) -> bool {
        let sequence = &mut self.sequences[slot];
        let was_scheduled = std::mem::take(&mut sequence.scheduled) > 0;
        if !was_scheduled || sequence.computed < sequence.tokens() {
            return false;
        }
        let cached_tokens = sequence.cached.unwrap_or_default();
        let id = sequence.id;
        sequence.generated += 1;
        self.counts.generation_tokens += 1;
        let kind = if sequence.generated == 1 {
            self.counts.prompt_tokens += u64::from(sequence.prompt);
            EventKind::FirstToken { cached_tokens }
        } else {
            EventKind::Token
        };
        events.push(Event { id, at, kind });
        let is_last = sequence.generated == sequence.output;
        if is_last {
            events.push(Event { id, at, kind: EventKind::Finished { cached_tokens } });
        }
        is_last
    }
}

/// Blocks that `sequence` lacks to hold `tokens` tokens.
fn missing_blocks(sequence: &Sequence, tokens: u32) -> u32 {
    tokens.div_ceil(BLOCK_TOKENS).saturating_sub(sequence.table.len() as u32)
}
