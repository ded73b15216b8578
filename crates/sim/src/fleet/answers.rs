//! The way of an answer back: from the steps of an engine to the caller, and to the router.

use router::{End, Usage};
use types::Time;

use super::{
    front::Front,
    run::{Notice, Run},
};
use crate::{
    engine::{Event, EventKind},
    report::Failure,
};

impl Run<'_> {
    /// A step of engine `at` ends at `now`, or its first one begins.
    pub(super) fn step(&mut self, at: usize, now: Time) {
        let engine = &mut self.engines[at];
        self.scrapes.changes(at, engine, now.nanos());
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        engine.advance(now, &mut events);
        self.steps.set(at, engine.next_event());
        for event in &events {
            self.take(event);
        }
        self.events = events;
    }

    fn take(&mut self, event: &Event) {
        let index = event.id as usize;
        let timing = &self.scenario.timing;
        let back = event.at.after(timing.network);
        let is_end = match event.kind {
            EventKind::FirstToken { cached_tokens } => {
                let Some(live) = self.requests.get_mut(index) else { return };
                live.token(back);
                live.cached = cached_tokens;
                self.tally.began(live, self.trace.arrivals[index].prompt_tokens);
                false
            }
            EventKind::Token => {
                let Some(live) = self.requests.get_mut(index) else { return };
                live.token(back);
                false
            }
            EventKind::Finished { .. } => true,
            EventKind::Preempted => return,
        };
        if let Front::Oracle(_, placed) = &mut self.front {
            if is_end {
                placed.remove(&event.id);
            } else if let Some(placed) = placed.get_mut(&event.id) {
                placed.first = placed.first.or(Some(back));
                placed.last = back;
                placed.tokens += 1;
            }
        }
        let notice = Notice { due: back.after(timing.label_delay), at: back, index, is_end };
        if is_end {
            self.end(index, None, true, back);
        }
        if notice.due == event.at {
            self.note_now(&notice);
        } else {
            self.notices.push_back(notice);
        }
    }

    /// The first of the notices is due.
    pub(super) fn deliver(&mut self) {
        if let Some(notice) = self.notices.pop_front() {
            self.note_now(&notice);
        }
    }

    /// The router takes note of a token or an end.
    fn note_now(&mut self, notice: &Notice) {
        let Some(live) = self.requests.get_mut(notice.index) else { return };
        if let (Some(flight), Front::Router(routing)) = (&mut live.flight, &self.front) {
            let (at, engine) = (live.member, &self.engines[live.member]);
            // A flight looks at the preemptions told.
            if self.scrapes.hides_preemptions(at, engine) {
                routing.read(at, &mut self.scrapes, engine, notice.due);
            }
            if !notice.is_end {
                flight.tokens(1, notice.at);
                return;
            }
        }
        if !notice.is_end {
            return;
        }
        if let Some(mut flight) = live.flight.take() {
            flight.usage(Usage {
                prompt_tokens: self.trace.arrivals[notice.index].prompt_tokens,
                completion_tokens: live.tokens,
                cached_tokens: Some(live.cached),
            });
            flight.finish(End::Complete, notice.at);
        }
        self.requests.remove(notice.index);
    }

    /// The caller of `index` has all it will get.
    pub(super) fn end(
        &mut self,
        index: usize,
        failure: Option<Failure>,
        is_placed: bool,
        now: Time,
    ) {
        let Some(live) = self.requests.get_mut(index) else { return };
        live.is_over = true;
        self.tally.ended(live, failure, is_placed, now);
        self.left -= 1;
        if let Front::Oracle(_, placed) = &mut self.front {
            placed.remove(&(index as u64));
        }
    }
}
