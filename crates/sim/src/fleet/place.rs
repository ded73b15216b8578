//! The way of a request to an engine: decided, sent, and tried elsewhere where an engine is not there.

use std::sync::Arc;

use router::End;
use types::{Request, Time};

use super::{
    front::{Choice, Front},
    run::{Next, Run},
};
use crate::{
    engine::Submit,
    oracle::{Placed, World},
    report::Failure,
    workload::{engine_blocks, router_blocks},
};

/// Times that a request is tried again elsewhere, as the gateway does by default.
const MAX_RETRIES: usize = 2;
/// Bytes of a prompt per token.
const BYTES_PER_TOKEN: u32 = 4;

impl Run<'_> {
    /// Arrival `index` is at the router.
    pub(super) fn arrive(&mut self, index: usize, now: Time) {
        self.requests.insert(index, self.trace.arrivals[index].class, now);
        if !self.send(index, now) {
            self.fail(index, Failure::Status(503), now);
        }
    }

    /// Decides where `index` goes and sends it there; `false` if nobody may have it.
    fn send(&mut self, index: usize, now: Time) -> bool {
        self.decisions += 1;
        let Some(choice) = self.choose(index, now) else { return false };
        let Some(live) = self.requests.get_mut(index) else { return false };
        live.member = choice.member;
        live.is_there = false;
        // What is predicted of a second try leaves out the first.
        live.predicted = None;
        if let Some(routed) = choice.routed {
            self.tally.decided(routed.rung);
            live.predicted = routed.predicted.filter(|_| live.tried.is_empty());
            live.tried.push(routed.slot);
            live.flight = Some(routed.flight);
        } else {
            live.tried.push(choice.member as u32);
        }
        let network = self.scenario.timing.network;
        if network.is_zero() {
            self.reach(index, now);
        } else {
            self.queue(now.after(network), Next::Reach(index));
        }
        true
    }

    fn choose(&mut self, index: usize, now: Time) -> Option<Choice> {
        let request = match &self.front {
            Front::Router(routing) => Some(self.request(index, routing.minds_prefixes())),
            Front::Oracle(..) => None,
        };
        let clock = self.scenario.clock.as_ref();
        let started;
        let choice = match (&mut self.front, request) {
            (Front::Router(routing), Some(request)) => {
                routing.read_all(&mut self.scrapes, &self.engines, now);
                let live = self.requests.get_mut(index)?;
                started = clock.map(|clock| clock.now());
                routing.route(&request, now, &live.tried)
            }
            (Front::Router(_), None) => return None,
            (Front::Oracle(oracle, placed), _) => {
                let world = World {
                    engines: &self.engines,
                    alive: &self.alive,
                    placed,
                    arrivals: &self.trace.arrivals,
                    index,
                    classes: &self.scenario.classes,
                    network: self.scenario.timing.network,
                };
                started = clock.map(|clock| clock.now());
                let member = oracle.choose(&world, now);
                member.map(|member| Choice { member, routed: None })
            }
        };
        if let (Some(started), Some(clock)) = (started, clock) {
            self.decision_time += clock.now().since(started);
        }
        if let Some(choice) = &choice {
            self.note(index, choice.member, now);
        }
        choice
    }

    /// The oracle has placed `index`.
    fn note(&mut self, index: usize, member: usize, now: Time) {
        let Front::Oracle(_, placed) = &mut self.front else { return };
        let arrival = &self.trace.arrivals[index];
        let arrived = self.requests.get_mut(index).map_or(now, |live| live.arrived);
        let new = Placed {
            member,
            class: arrival.class,
            arrived,
            first: None,
            last: arrived,
            tokens: 0,
            output_tokens: arrival.output_tokens.max(1),
        };
        placed.insert(index as u64, new);
    }

    /// Arrival `index` as the router sees it. How long its answer will be, that does not tell.
    fn request(&self, index: usize, with_prefix: bool) -> Request {
        let arrival = &self.trace.arrivals[index];
        let class = &self.scenario.classes[usize::from(arrival.class)];
        Request {
            id: index.to_string().into(),
            model: Arc::clone(&self.model),
            stream: true,
            prompt_bytes: arrival.prompt_tokens.saturating_mul(BYTES_PER_TOKEN),
            prompt_tokens: None,
            max_tokens: None,
            blocks: if with_prefix { router_blocks(arrival) } else { Arc::default() },
            slo: class.slo,
            scope: class.tenant.clone(),
            subset: None,
            session: arrival.session.map(|session| session.to_string().into()),
            weight: class.weight,
            explain: self.tally.samples(index),
        }
    }

    /// `index` is at the engine it was sent to.
    pub(super) fn reach(&mut self, index: usize, now: Time) {
        let heard = now.after(self.scenario.timing.network);
        let Some(live) = self.requests.get_mut(index) else { return };
        let member = live.member;
        if !self.alive[member] {
            self.tell(heard, now, Next::Unreached(index));
            return;
        }
        let arrival = &self.trace.arrivals[index];
        let submit = Submit {
            id: index as u64,
            prompt_tokens: arrival.prompt_tokens,
            blocks: engine_blocks(arrival),
            output_tokens: arrival.output_tokens.max(1),
        };
        live.is_there = true;
        let engine = &mut self.engines[member];
        if engine.submit(submit, now).is_ok() {
            self.steps.set(member, engine.next_event());
        } else {
            live.is_there = false;
            self.tell(heard, now, Next::Rejected(index));
        }
    }

    /// The router hears of `next` at `heard`, which may be `now`.
    fn tell(&mut self, heard: Time, now: Time, next: Next) {
        match next {
            Next::Unreached(index) if heard == now => self.unreached(index, now),
            Next::Rejected(index) if heard == now => self.rejected(index, now),
            next => self.queue(heard, next),
        }
    }

    /// The router hears that the engine of `index` is not there.
    pub(super) fn unreached(&mut self, index: usize, now: Time) {
        let Some(live) = self.requests.get_mut(index) else { return };
        if let Some(flight) = live.flight.take() {
            flight.finish(End::EndpointFailed, now);
        }
        let may_retry = live.tried.len() <= MAX_RETRIES;
        if !(may_retry && self.send(index, now)) {
            self.fail(index, Failure::Connect, now);
        }
    }

    /// The router hears that the engine of `index` does not take it.
    pub(super) fn rejected(&mut self, index: usize, now: Time) {
        let Some(live) = self.requests.get_mut(index) else { return };
        if let Some(flight) = live.flight.take() {
            flight.finish(End::Rejected, now);
        }
        self.end(index, Some(Failure::Status(400)), true, now);
        self.requests.remove(index);
    }

    /// The router hears that the answer to `index` has broken off. It is not tried again: part of it may
    /// have been computed.
    pub(super) fn broken(&mut self, index: usize, now: Time) {
        let Some(live) = self.requests.get_mut(index) else { return };
        if let Some(flight) = live.flight.take() {
            flight.finish(End::EndpointFailed, now);
        }
        let failure = if live.tokens > 0 { Failure::Truncated } else { Failure::Connect };
        self.end(index, Some(failure), true, now);
        self.requests.remove(index);
    }

    /// `index` has no engine.
    fn fail(&mut self, index: usize, failure: Failure, now: Time) {
        self.end(index, Some(failure), false, now);
        self.requests.remove(index);
    }
}
