//! An engine run ahead without its blocks and its noise: the same scheduler over counts alone.
//!
//! Steps in which nobody comes or goes are taken many at a time, so a run costs what its arrivals and
//! ends cost, not its steps. Memory is counted in tokens, and a prefix that several share in each.

use std::collections::VecDeque;

use super::promise::Promise;
use crate::profile::{Batch, Profile};

/// Mean of the noise in step times: a lognormal of 2.5 % and rare outliers.
const MEAN_NOISE: f64 = 1.0006;
/// Tokens that the last block of a sequence holds free, on average.
const SLACK_TOKENS: i64 = 8;

/// A request that is not decoding yet. Times in ms from the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Index of its arrival.
    pub index: usize,
    /// When it enters the waiting queue.
    pub enters: f64,
    /// Prompt tokens.
    pub prompt: u32,
    /// Tokens it emits in all, and emitted.
    pub output: u32,
    pub generated: u32,
    /// Tokens that are computed or cached.
    pub computed: u32,
    /// Tokens of it in the step that runs.
    pub scheduled: u32,
    pub promise: Promise,
}

/// A request that emits a token each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub index: usize,
    pub prompt: u32,
    pub output: u32,
    pub promise: Promise,
}

/// The state that a run starts from.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub profile: &'a Profile,
    pub slowdown: f64,
    /// Tokens that one step may compute.
    pub budget: u32,
    /// Sequences that may run at once.
    pub seats: usize,
    /// Whether steps are scheduled one ahead.
    pub ahead: bool,
    /// From an engine to the router, ms.
    pub network: f64,
    /// Free tokens of the KV cache.
    pub free: i64,
    /// Start and end of the step that runs.
    pub step: Option<(f64, f64)>,
    /// Decoding requests, and the step, counted from the one that runs, after which each is done.
    pub decoding: Vec<(u32, Stream)>,
    pub prefilling: Vec<Job>,
    pub waiting: VecDeque<Job>,
    /// On their way, by the time they enter.
    pub incoming: Vec<Job>,
}

impl Job {
    /// Tokens that must be computed before it emits the next one.
    fn tokens(&self) -> u32 {
        self.prompt + self.generated
    }

    fn left(&self) -> u32 {
        self.tokens().saturating_sub(self.computed)
    }

    /// Tokens of the cache that it takes until it decodes.
    fn held(&self) -> i64 {
        i64::from(self.tokens()) + SLACK_TOKENS
    }
}

impl Stream {
    /// Tokens of the cache it holds when it is done.
    fn held(&self) -> i64 {
        i64::from(self.prompt + self.output) - 1 + SLACK_TOKENS
    }

    /// Its context when `left` more steps remain for it.
    fn context(&self, left: u32) -> u64 {
        u64::from((self.prompt + self.output).saturating_sub(left + 1))
    }
}

/// A run in progress.
#[derive(Debug)]
struct Run<'a> {
    start: &'a Start<'a>,
    /// Begin of the next step, and of the one before.
    now: f64,
    previous: f64,
    /// Steps done.
    steps: u32,
    free: i64,
    context: u64,
    /// The step after which each stream is done.
    ends: Vec<u32>,
    streams: Vec<Stream>,
    next_end: u32,
    prefilling: Vec<Job>,
    waiting: VecDeque<Job>,
    jobs: std::iter::Peekable<std::slice::Iter<'a, Job>>,
    cost: f64,
}

/// Runs until everything in `start` and all `jobs`, in order of the time they enter, are done; what it
/// costs. Indices of the requests that miss are added to `missed`.
pub(super) fn play(start: &Start<'_>, jobs: &[Job], mut missed: Option<&mut Vec<usize>>) -> f64 {
    let (ends, streams): (Vec<_>, Vec<_>) = start.decoding.iter().copied().unzip();
    let idle_since = start.waiting.back().map_or(f64::NEG_INFINITY, |job| job.enters);
    let (previous, now) = start.step.unwrap_or((idle_since, idle_since));
    let mut run = Run {
        start,
        now,
        previous,
        steps: 0,
        free: start.free,
        context: start.decoding.iter().map(|(left, stream)| stream.context(*left)).sum(),
        next_end: ends.iter().copied().min().unwrap_or(u32::MAX),
        ends,
        streams,
        prefilling: start.prefilling.clone(),
        waiting: start.waiting.clone(),
        jobs: jobs.iter().peekable(),
        cost: 0.0,
    };
    if start.step.is_some() {
        run.finish(1, &mut missed);
    }
    while run.step(&mut missed) {}
    run.cost
}

impl Run<'_> {
    /// One step, or many alike; whether there was anything left to do.
    fn step(&mut self, missed: &mut Option<&mut Vec<usize>>) -> bool {
        if self.streams.is_empty() && self.prefilling.is_empty() && self.waiting.is_empty() {
            let Some(next) = self.jobs.peek() else { return false };
            self.now = self.now.max(next.enters);
            self.previous = self.now;
        }
        let now = self.now;
        while let Some(job) = self.jobs.next_if(|job| job.enters <= now) {
            self.waiting.push_back(*job);
        }
        let batch = self.assemble();
        let speed = MEAN_NOISE * self.start.slowdown;
        let first = self.start.profile.step_ms(&batch) * speed;
        let per_context = self.start.profile.costs.attention.1 * 1e-6;
        let growth = per_context * f64::from(batch.tokens) * speed;
        let steps = if self.prefilling.is_empty() { self.alike(first, growth) } else { 1 };
        let count = f64::from(steps);
        let last = first + growth * (count - 1.0);
        self.now += count * (first + last) / 2.0;
        self.previous = self.now - last;
        self.finish(steps, missed);
        true
    }

    /// Puts a step together.
    fn assemble(&mut self) -> Batch {
        let mut preempted = false;
        while self.free < i64::from(self.decoding()) && self.preempt() {
            preempted = true;
        }
        let decoding = self.decoding();
        let mut batch =
            Batch { tokens: decoding, sequences: decoding, context: self.context, pairs: 0.0 };
        for job in &mut self.prefilling {
            self.start.schedule(job, &mut batch);
        }
        if preempted {
            return batch;
        }
        let ahead = self.start.ahead && batch.sequences > 0;
        let known = if ahead { self.previous } else { self.now };
        while let Some(front) = self.waiting.front() {
            let is_alone = batch.sequences == 0;
            let fits = is_alone || front.held() <= self.free;
            let has_room = self.has_seat() && batch.tokens < self.start.budget;
            if front.enters > known || !fits || !has_room {
                break;
            }
            let mut job = *front;
            self.waiting.pop_front();
            self.free -= job.held();
            self.start.schedule(&mut job, &mut batch);
            self.prefilling.push(job);
        }
        batch
    }

    fn decoding(&self) -> u32 {
        self.streams.len() as u32
    }

    fn has_seat(&self) -> bool {
        self.streams.len() + self.prefilling.len() < self.start.seats
    }

    /// Sends a late-comer back to the queue, unless it is the last one running.
    fn preempt(&mut self) -> bool {
        if self.streams.len() + self.prefilling.len() < 2 {
            return false;
        }
        let job = if let Some(job) = self.prefilling.pop() {
            self.free += job.held();
            Job { computed: 0, scheduled: 0, ..job }
        } else {
            let Some(stream) = self.streams.pop() else { return false };
            let left = self.ends.pop().map_or(0, |end| end.saturating_sub(self.steps));
            self.context -= stream.context(left);
            self.free += stream.held() - i64::from(left);
            self.next_end = self.ends.iter().copied().min().unwrap_or(u32::MAX);
            Job {
                index: stream.index,
                enters: f64::NEG_INFINITY,
                prompt: stream.prompt,
                output: stream.output,
                generated: stream.output.saturating_sub(left),
                computed: 0,
                scheduled: 0,
                promise: stream.promise,
            }
        };
        self.waiting.push_front(job);
        true
    }

    /// How many steps, of which the first takes `first` ms and each next one `growth` more, pass before
    /// anybody comes or goes: decoding alone.
    fn alike(&mut self, first: f64, growth: f64) -> u32 {
        let most = self.next_end.saturating_sub(self.steps);
        let memory = self.free / i64::from(self.decoding().max(1));
        let most = most.min(u32::try_from(memory.max(1)).unwrap_or(u32::MAX)).max(1);
        if let Some(front) = self.waiting.front() {
            // It is kept out by the cutoff alone, or else until somebody leaves.
            let by_cutoff = front.enters > self.previous && self.start.ahead;
            return if by_cutoff { 1 } else { most };
        }
        let Some(next) = self.jobs.peek() else { return most };
        let until = next.enters - self.now;
        let half = first - growth / 2.0;
        let count = 2.0 * until / (half + (half * half + 2.0 * growth * until.max(0.0)).sqrt());
        (count.clamp(0.0, 1e9) as u32 + 1).min(most)
    }

    /// Ends `count` steps at once.
    fn finish(&mut self, count: u32, missed: &mut Option<&mut Vec<usize>>) {
        self.steps += count;
        self.context += u64::from(count) * u64::from(self.decoding());
        self.free -= i64::from(count) * i64::from(self.decoding());
        let back = self.now + self.start.network;
        if self.next_end <= self.steps {
            self.leave(back, missed);
        }
        let mut kept = 0;
        for at in 0..self.prefilling.len() {
            let mut job = self.prefilling[at];
            job.computed += job.scheduled;
            if job.scheduled == 0 || job.left() > 0 {
                job.scheduled = 0;
                self.prefilling[kept] = job;
                kept += 1;
            } else {
                self.emit(job, back, missed);
            }
        }
        self.prefilling.truncate(kept);
    }

    /// Lets go of the streams that are done.
    fn leave(&mut self, back: f64, missed: &mut Option<&mut Vec<usize>>) {
        let mut at = 0;
        while at < self.ends.len() {
            if self.ends[at] > self.steps {
                at += 1;
                continue;
            }
            self.ends.swap_remove(at);
            let stream = self.streams.swap_remove(at);
            self.context -= stream.context(0);
            self.free += stream.held();
            self.settle(&stream, back, missed);
        }
        self.next_end = self.ends.iter().copied().min().unwrap_or(u32::MAX);
    }

    /// A prompt is computed: its first token, or the next one after a preemption.
    fn emit(&mut self, job: Job, back: f64, missed: &mut Option<&mut Vec<usize>>) {
        let Job { index, prompt, output, generated, .. } = job;
        let mut promise = job.promise;
        promise.first.get_or_insert(back);
        let stream = Stream { index, prompt, output, promise };
        let left = output.saturating_sub(generated + 1);
        if left == 0 {
            self.free += job.held();
            self.settle(&stream, back, missed);
            return;
        }
        self.context += stream.context(left);
        let end = self.steps + left;
        self.ends.push(end);
        self.streams.push(stream);
        self.next_end = self.next_end.min(end);
    }

    fn settle(&mut self, stream: &Stream, back: f64, missed: &mut Option<&mut Vec<usize>>) {
        self.cost += stream.promise.cost(back, stream.output);
        if let Some(missed) = missed
            && stream.promise.is_missed(back, stream.output)
        {
            missed.push(stream.index);
        }
    }
}

impl Start<'_> {
    /// Gives a prompt what is left of the budget of a step.
    fn schedule(&self, job: &mut Job, batch: &mut Batch) {
        job.scheduled = job.left().min(self.budget.saturating_sub(batch.tokens));
        if job.scheduled == 0 {
            return;
        }
        let new = f64::from(job.scheduled);
        batch.tokens += job.scheduled;
        batch.sequences += 1;
        batch.pairs += new * (f64::from(job.computed) + new / 2.0);
    }
}
