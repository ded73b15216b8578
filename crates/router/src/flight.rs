//! A routed request from dispatch to end: it feeds the account of its endpoint, and its outcome the
//! learner.

use std::sync::{Arc, OnceLock};

use datalayer::{Pool, Stream};
use predict::{Outcome, Ticket};
use schedule::Rung;
use types::{Endpoint, Time};

use crate::{
    end::End,
    front::Usage,
    learning::Learning,
    metrics::Metrics,
    record::{Known, Recorded, Recorder},
};

/// What every flight of a router shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) learning: Learning,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: OnceLock<Arc<dyn Recorder>>,
}

/// What is kept of a decision until its outcome is known.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) at: Time,
    pub(crate) prompt_bytes: u32,
    pub(crate) rung: Rung,
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
    first_token: Option<Time>,
    last_token: Time,
    tokens: u32,
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
            stream,
            last_token: dispatched.at,
            dispatched,
            first_token: None,
            tokens: 0,
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
        if self.first_token.is_none() {
            self.first_token = Some(now);
            // Learned at once: an answer may go on for minutes, and the next decision is now.
            let ttft_ms = Some(now.ms_since(self.dispatched.at));
            self.learn(&Outcome { ttft_ms, ..Outcome::default() }, now);
        }
        self.last_token = now;
        self.tokens = self.tokens.saturating_add(count);
        if let Some(sample) = self.stream.tokens(count, now) {
            let ticket = &self.dispatched.ticket;
            self.shared.learning.observe_step(&ticket.class, ticket.slot, &sample, now);
        }
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
        self.end = Some(end);
        self.ended = Some(now);
        match end {
            End::Complete => {
                self.stream.endpoint().succeeded();
                self.learn(&self.outcome(), now);
            }
            End::EndpointFailed => self.stream.endpoint().failed(now),
            End::ClientGone | End::Rejected => {}
        }
    }

    /// What the whole answer tells, beside the first token.
    fn outcome(&self) -> Outcome {
        let given = self.usage.map_or(self.tokens, |usage| usage.completion_tokens);
        let first = self.first_token.filter(|_| given > 1);
        let prompt = self.usage.filter(|usage| usage.prompt_tokens > 0);
        Outcome {
            ttft_ms: None,
            itl_ms: first.map(|first| self.last_token.ms_since(first) / (given as f32 - 1.0)),
            output_tokens: (given > 0).then_some(given),
            prompt: prompt.map(|usage| (self.dispatched.prompt_bytes, usage.prompt_tokens)),
        }
    }

    fn learn(&self, outcome: &Outcome, now: Time) {
        let ticket = &self.dispatched.ticket;
        let is_labelled = outcome.ttft_ms.is_some() || outcome.output_tokens.is_some();
        if ticket.class.model.is_empty() || !is_labelled {
            return;
        }
        self.shared.metrics.labels.inc();
        self.shared.learning.learn(ticket, outcome, now);
    }

    fn recorded(&self) -> Recorded {
        let ticket = &self.dispatched.ticket;
        let outcome = self.outcome();
        let first = self.first_token;
        let known = self.ended.unwrap_or(self.last_token);
        Recorded {
            decided_at: self.dispatched.at,
            class: ticket.class.clone(),
            endpoint: self.endpoint().id.clone(),
            slot: ticket.slot,
            row: ticket.row,
            ttft: first.map(|at| Known { ms: at.ms_since(self.dispatched.at), at }),
            itl: outcome.itl_ms.map(|ms| Known { ms, at: known }),
            output_tokens: outcome.output_tokens.unwrap_or(0),
            end: self.end.map_or("cancelled", End::as_str),
            rung: self.dispatched.rung,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.shared.metrics.ended(self.end);
        if let Some(recorder) = self.shared.recorder.get() {
            recorder.record(&self.recorded());
        }
    }
}
