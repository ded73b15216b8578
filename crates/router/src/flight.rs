//! A routed request from dispatch to end: it feeds the account of its endpoint, and its outcome the
//! learner.

use std::sync::{Arc, OnceLock};

use datalayer::{Pool, StepSample, Stream};
use predict::{Outcome, Prediction, Ticket, Unsound, Whole};
use schedule::Rung;
use types::{Endpoint, Time};

use crate::{
    end::End,
    front::Usage,
    learning::Learning,
    metrics::Metrics,
    record::{Considered, Known, MOST_STEPS, Recorded, Recorder},
    tokens::Tokens,
};

/// First answers of an endpoint among which one may be of its warm-up.
const WARM_UP_ANSWERS: u32 = 3;
/// How many times as slow as predicted such an answer is.
const WARM_UP_FACTOR: f32 = 4.0;
/// How many times as slow as predicted an answer is that may have been preempted, where no gap shows it.
const PREEMPTED_FACTOR: f32 = 2.0;

/// What every flight of a router shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) learning: Learning,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: OnceLock<Arc<dyn Recorder>>,
}

impl Shared {
    /// Whether what decisions choose from is recorded.
    pub(crate) fn records_candidates(&self) -> bool {
        self.recorder.get().is_some_and(|recorder| recorder.wants_candidates())
    }
}

/// What is kept of a decision until its outcome is known.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) at: Time,
    pub(crate) prompt_bytes: u32,
    pub(crate) rung: Rung,
    pub(crate) considered: Option<Arc<Considered>>,
    pub(crate) ticket: Ticket,
}

/// A routed request in flight.
///
/// Dropping it without [`Flight::finish`] counts as cancelled; either way the account of its endpoint
/// is settled.
#[derive(Debug)]
pub struct Flight {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    stream: Stream,
    dispatched: Dispatched,
    tokens: Tokens,
    itl_so_far: Vec<Known>,
    steps: Steps,
    /// Which of its endpoint's answers it is, from 1; 0 before it has begun.
    answer: u32,
    /// What the endpoint had preempted when its answer began, or before that when it was sent.
    preemptions: Option<u32>,
    censored: Option<Censored>,
    clock_went_back: bool,
    usage: Option<Usage>,
    end: Option<End>,
    ended: Option<Time>,
}

impl Flight {
    pub(crate) fn new(
        shared: Arc<Shared>,
        pool: Arc<Pool>,
        stream: Stream,
        dispatched: Dispatched,
    ) -> Self {
        Self {
            shared,
            pool,
            tokens: Tokens::new(dispatched.at),
            itl_so_far: Vec::new(),
            steps: Steps::default(),
            answer: 0,
            preemptions: stream.endpoint().snapshot().preemptions,
            censored: None,
            clock_went_back: false,
            stream,
            dispatched,
            usage: None,
            end: None,
            ended: None,
        }
    }

    /// `count` output tokens were seen at `now`; the first call marks the first token.
    pub fn tokens(&mut self, count: u32, now: Time) {
        if count == 0 {
            return;
        }
        self.watch_clock(now);
        let due = self.tokens.push(count, now);
        if self.answer == 0 {
            self.begin(now);
        } else if let Some(mean_ms) = due {
            self.learn_so_far(mean_ms, now);
        }
        if let Some(sample) = self.stream.tokens(count, now) {
            if self.shared.recorder.get().is_some() {
                self.steps.push(now, sample);
            }
            let ticket = &self.dispatched.ticket;
            self.shared.learning.observe_step(&ticket.class, ticket.slot, &sample, now);
        }
    }

    /// Once the clock has gone back, no latency of this request is known.
    fn watch_clock(&mut self, now: Time) {
        self.clock_went_back |= now < self.tokens.last();
    }

    /// The first token has come at `now`.
    fn begin(&mut self, now: Time) {
        let ttft_ms = now.ms_since(self.dispatched.at);
        self.answer = self.stream.answer();
        self.preemptions = self.stream.endpoint().snapshot().preemptions;
        self.check_warm_up(ttft_ms, |predicted| predicted.ttft.p50());
        if self.censored.is_none() {
            // Learned at once: an answer may go on for minutes, and the next decision is now.
            self.learn(&Outcome { ttft_ms: Some(ttft_ms), ..Outcome::default() }, now);
        }
    }

    /// The mean gap of the chunks so far is `mean_ms`, and the stream goes on.
    fn learn_so_far(&mut self, mean_ms: f32, now: Time) {
        if self.censored.is_some() || (self.has_preempted() && self.tokens.stalled()) {
            return;
        }
        let ms = mean_ms / self.stream.tokens_per_chunk();
        self.itl_so_far.push(Known { ms, at: now });
        self.learn(&Outcome { itl_so_far: Some(ms), ..Outcome::default() }, now);
    }

    /// The endpoint told how many tokens there were.
    pub fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The proxy served the request from `address` (`host:port`) instead: what is in flight counts
    /// there from now on, and that endpoint's class learns the row.
    pub fn served_by(&mut self, address: &str, now: Time) {
        if self.stream.endpoint().address == address {
            return;
        }
        let endpoints = self.pool.endpoints();
        let Some(other) = endpoints.iter().find(|endpoint| endpoint.address == address) else {
            return;
        };
        let ticket = &mut self.dispatched.ticket;
        ticket.slot = other.slot;
        ticket.class.accelerator = other.accelerator.clone();
        ticket.class.role = other.role;
        self.preemptions = other.snapshot().preemptions;
        // It was not predicted for that endpoint.
        ticket.prediction = None;
        ticket.forecasts = None;
        self.stream.move_to(Arc::clone(other), now);
    }

    /// Who serves the request, as far as is known.
    pub fn endpoint(&self) -> &Endpoint {
        &self.stream.endpoint().endpoint
    }

    /// The request has ended.
    pub fn finish(mut self, end: End, now: Time) {
        self.watch_clock(now);
        self.end = Some(end);
        self.ended = Some(now);
        match end {
            End::Complete => {
                self.stream.endpoint().succeeded();
                self.complete(now);
            }
            End::EndpointFailed => self.stream.endpoint().failed(now),
            End::ClientGone | End::Rejected => {}
        }
    }

    /// Learns what the whole answer tells.
    fn complete(&mut self, now: Time) {
        if let Some(usage) = self.usage {
            self.stream.told(self.tokens.count(), usage.completion_tokens);
        }
        let mut outcome = self.outcome();
        if let Some(whole) = outcome.e2e {
            let of = |predicted: &Prediction| {
                let gaps = whole.output_tokens.saturating_sub(1) as f32;
                predicted.ttft.p50() + gaps * predicted.itl.p50()
            };
            self.answer = self.stream.answer();
            self.check_warm_up(whole.ms, of);
            let is_slow = || self.predicted().is_some_and(|p| whole.ms > PREEMPTED_FACTOR * of(&p));
            if self.censored.is_none() && self.has_preempted() && is_slow() {
                self.censored = Some(Censored::Preempted);
            }
        } else if let Some(itl_ms) = outcome.itl_ms {
            self.check_warm_up(itl_ms, |predicted| predicted.itl.p50());
            if self.censored.is_none() && self.has_preempted() && self.tokens.stalled() {
                self.censored = Some(Censored::Preempted);
            }
        }
        if self.censored.is_some() {
            // How long the answer is, it tells all the same.
            (outcome.itl_ms, outcome.e2e) = (None, None);
        }
        self.learn(&outcome, now);
    }

    /// Marks one of the first answers of an endpoint if its latency `ms` is far above what `of` the
    /// prediction is: engines compile and capture with their first requests, which tells nothing of
    /// later ones.
    fn check_warm_up(&mut self, ms: f32, of: impl Fn(&Prediction) -> f32) {
        let may_be = self.censored.is_none() && (1..=WARM_UP_ANSWERS).contains(&self.answer);
        let is_slow = || self.predicted().is_some_and(|p| ms > WARM_UP_FACTOR * of(&p));
        if may_be && is_slow() {
            self.censored = Some(Censored::WarmUp);
        }
    }

    /// What was predicted for it, or where another endpoint serves it than it was predicted for, what
    /// is predicted now.
    fn predicted(&self) -> Option<Prediction> {
        let ticket = &self.dispatched.ticket;
        ticket.prediction.or_else(|| {
            let class = &ticket.class;
            let models = self.shared.learning.models().of(&class.model);
            models.predict(&class.accelerator, class.role, ticket.slot, &ticket.row)
        })
    }

    /// Whether the endpoint has preempted requests since the answer began, as far as it has told.
    fn has_preempted(&self) -> bool {
        let now = self.stream.endpoint().snapshot().preemptions;
        self.preemptions.zip(now).is_some_and(|(before, now)| now > before)
    }

    /// What the whole answer tells, beside the first token.
    fn outcome(&self) -> Outcome {
        let given = self.usage.map_or(self.tokens.count(), |usage| usage.completion_tokens);
        let first = self.tokens.first().filter(|_| given > 1);
        let prompt = self.usage.filter(|usage| usage.prompt_tokens > 0);
        let ended = self.ended.filter(|_| {
            self.end == Some(End::Complete) && given > 0 && self.tokens.first().is_none()
        });
        let e2e = ended
            .map(|ended| Whole { ms: ended.ms_since(self.dispatched.at), output_tokens: given });
        Outcome {
            // All tokens in one piece have no time between them.
            itl_ms: first
                .map(|first| self.tokens.last().ms_since(first) / (given as f32 - 1.0))
                .filter(|ms| *ms > 0.0),
            e2e,
            output_tokens: (given > 0).then_some(given),
            prompt: prompt.map(|usage| (self.dispatched.prompt_bytes, usage.prompt_tokens)),
            ..Outcome::default()
        }
    }

    /// Teaches what has come of the request, unless it cannot be true.
    fn learn(&self, outcome: &Outcome, now: Time) {
        let ticket = &self.dispatched.ticket;
        let is_labelled = outcome.ttft_ms.is_some()
            || outcome.itl_so_far.is_some()
            || outcome.output_tokens.is_some();
        if ticket.class.model.is_empty() || !is_labelled {
            return;
        }
        match self.check(outcome, now) {
            Ok(()) => {
                self.shared.metrics.labels.inc();
                self.shared.learning.learn(ticket, outcome, now);
            }
            Err(why) => self.shared.metrics.rejected(why, &ticket.class),
        }
    }

    fn check(&self, outcome: &Outcome, now: Time) -> Result<(), Unsound> {
        if self.clock_went_back {
            return Err(Unsound::ClockBack);
        }
        outcome.check(&self.dispatched.ticket.row, self.dispatched.at, now)
    }

    fn recorded(&mut self) -> Recorded {
        let ticket = &self.dispatched.ticket;
        let outcome = self.outcome();
        let first = self.tokens.first();
        let known = self.ended.unwrap_or(self.tokens.last());
        let end = match (self.end, self.censored) {
            (Some(End::Complete), Some(censored)) => censored.as_str(),
            (end, _) => end.map_or("cancelled", End::as_str),
        };
        // What is not learned now must not be learned from the record either.
        let sound = |known: &Known| {
            let outcome = Outcome { ttft_ms: Some(known.ms), ..Outcome::default() };
            self.check(&outcome, known.at).is_ok()
        };
        let ttft = first.map(|at| Known { ms: at.ms_since(self.dispatched.at), at });
        let itl = outcome.itl_ms.map(|ms| Known { ms, at: known });
        let e2e = outcome.e2e.map(|whole| Known { ms: whole.ms, at: known });
        Recorded {
            decided_at: self.dispatched.at,
            class: ticket.class.clone(),
            endpoint: self.endpoint().id.clone(),
            slot: ticket.slot,
            row: ticket.row,
            ttft: ttft.filter(sound),
            itl: itl.filter(sound),
            e2e: e2e.filter(sound),
            output_tokens: outcome.output_tokens.unwrap_or(0),
            end,
            rung: self.dispatched.rung,
            considered: self.dispatched.considered.take(),
            itl_so_far: std::mem::take(&mut self.itl_so_far),
            steps: std::mem::take(&mut self.steps.kept),
        }
    }
}

/// Samples of steps to be recorded: every one at first, then every second, and so on.
#[derive(Debug, Default)]
struct Steps {
    kept: Vec<(Time, StepSample)>,
    seen: usize,
    thinned: u32,
}

impl Steps {
    fn push(&mut self, now: Time, sample: StepSample) {
        let stride = 1_usize << self.thinned.min(20);
        if self.seen.is_multiple_of(stride) {
            if self.kept.len() == MOST_STEPS {
                let mut number = 0;
                self.kept.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.thinned += 1;
            }
            self.kept.push((now, sample));
        }
        self.seen += 1;
    }
}

/// Why a complete answer teaches no latency, or none but the first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Censored {
    /// It is of the endpoint's warm-up.
    WarmUp,
    /// It was preempted.
    Preempted,
}

impl Censored {
    fn as_str(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Preempted => "preempted",
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.shared.metrics.ended(self.end);
        if let Some(recorder) = self.shared.recorder.get().map(Arc::clone) {
            recorder.record(&self.recorded());
        }
    }
}
