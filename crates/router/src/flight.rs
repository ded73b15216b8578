//! A routed request from dispatch to end: it feeds the account of its endpoint, and its outcome the
//! learner.

use std::sync::Arc;

use datalayer::{Pool, Stream};
use predict::{Outcome, Ticket};
use types::{Endpoint, Time};

use crate::{end::End, front::Usage, learning::Learning, metrics::Metrics};

/// What every flight of a router shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) learning: Learning,
    pub(crate) metrics: Metrics,
}

/// What is kept of a decision until its outcome is known.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) at: Time,
    pub(crate) prompt_bytes: u32,
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
        }
    }

    /// `count` output tokens were seen at `now`; the first call marks the first token.
    pub fn tokens(&mut self, count: u32, now: Time) {
        if count == 0 {
            return;
        }
        self.first_token.get_or_insert(now);
        self.last_token = now;
        self.tokens = self.tokens.saturating_add(count);
        self.stream.tokens(count, now);
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
        self.stream.move_to(Arc::clone(other), now);
    }

    /// Who serves the request, as far as is known.
    pub fn endpoint(&self) -> &Endpoint {
        &self.stream.endpoint().endpoint
    }

    /// The request has ended.
    pub fn finish(mut self, end: End, now: Time) {
        self.end = Some(end);
        match end {
            End::Complete => {
                self.stream.endpoint().succeeded();
                self.learn(now);
            }
            End::EndpointFailed => self.stream.endpoint().failed(now),
            End::ClientGone | End::Rejected => {}
        }
    }

    fn learn(&self, now: Time) {
        let dispatched = &self.dispatched;
        let given = self.usage.map_or(self.tokens, |usage| usage.completion_tokens);
        let itl_ms = self
            .first_token
            .filter(|_| given > 1)
            .map(|first| self.last_token.ms_since(first) / (given as f32 - 1.0));
        let prompt = self.usage.filter(|usage| usage.prompt_tokens > 0);
        let outcome = Outcome {
            ttft_ms: self.first_token.map(|first| first.ms_since(dispatched.at)),
            itl_ms,
            output_tokens: (given > 0).then_some(given),
            prompt: prompt.map(|usage| (dispatched.prompt_bytes, usage.prompt_tokens)),
        };
        let is_labelled = outcome.ttft_ms.is_some() || outcome.output_tokens.is_some();
        if dispatched.ticket.class.model.is_empty() || !is_labelled {
            return;
        }
        self.shared.metrics.labels.inc();
        self.shared.learning.learn(&dispatched.ticket, &outcome, now);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.shared.metrics.ended(self.end);
    }
}
