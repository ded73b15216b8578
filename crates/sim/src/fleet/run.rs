//! The events of one simulation, in order of time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use types::Time;

use super::{
    Change, Scenario, Simulated,
    agenda::{Agenda, NEVER},
    front::Front,
    member::{FleetError, Member},
    requests::Requests,
    scrapes::Scrapes,
    tally::Tally,
};
use crate::{
    engine::{Engine, Event},
    workload::{Arrival, Trace},
};

/// What happens beside steps, deliveries and arrivals. At one instant, what happens to engines comes
/// before their steps, and the rest after them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Next {
    /// An event of the scenario.
    Change(usize),
    /// A member has started.
    Join(usize),
    /// A request is at its engine.
    Reach(usize),
    /// The router hears that an engine was not there.
    Unreached(usize),
    /// The router hears that an engine does not take a request.
    Rejected(usize),
    /// The router hears that an answer has broken off.
    Broken(usize),
}

impl Next {
    fn is_before_steps(self) -> bool {
        matches!(self, Self::Change(_) | Self::Join(_))
    }
}

/// What the router's accounts and learner take note of later than callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// When they take note.
    pub(super) due: Time,
    /// When it was back.
    pub(super) at: Time,
    /// About which arrival.
    pub(super) index: usize,
    /// Whether the answer is whole; else it is a token.
    pub(super) is_end: bool,
}

/// What is first.
#[derive(Clone, Copy, Debug)]
enum Due {
    Other,
    Step(usize),
    Notice,
    Arrival,
}

/// One simulation under way.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) fleet: &'a [Member],
    pub(super) scenario: &'a Scenario,
    pub(super) trace: &'a Trace,
    pub(super) model: Arc<str>,
    pub(super) front: Front,
    pub(super) engines: Vec<Engine>,
    /// Whether a member has joined and lives, by member.
    pub(super) alive: Vec<bool>,
    joined: Vec<bool>,
    pub(super) scrapes: Scrapes,
    pub(super) steps: Agenda,
    others: BinaryHeap<Reverse<(Time, Next)>>,
    pub(super) notices: VecDeque<Notice>,
    next_arrival: usize,
    pub(super) requests: Requests,
    pub(super) tally: Tally,
    pub(super) events: Vec<Event>,
    /// Arrivals that have not ended.
    pub(super) left: usize,
    pub(super) decisions: u64,
    pub(super) decision_time: Duration,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        fleet: &'a [Member],
        trace: &'a Trace,
        scenario: &'a Scenario,
    ) -> Result<Self, FleetError> {
        check(fleet, trace, scenario)?;
        let engine = |member: &Member| Engine::new(member.profile.clone(), member.options.clone());
        let timing = &scenario.timing;
        let mut run = Self {
            fleet,
            scenario,
            trace,
            model: scenario.model.as_str().into(),
            front: Front::new(scenario, fleet)?,
            engines: fleet.iter().map(engine).collect(),
            alive: vec![false; fleet.len()],
            joined: vec![false; fleet.len()],
            scrapes: Scrapes::new(fleet.len(), timing.scrape_every, timing.scrape_delay),
            steps: Agenda::new(fleet.len()),
            others: BinaryHeap::new(),
            notices: VecDeque::new(),
            next_arrival: 0,
            requests: Requests::new(trace.arrivals.len()),
            tally: Tally::new(scenario, fleet, trace),
            events: Vec::new(),
            left: trace.arrivals.len(),
            decisions: 0,
            decision_time: Duration::ZERO,
        };
        let (present, late): (Vec<_>, Vec<_>) =
            (0..fleet.len()).partition(|at| fleet[*at].joins_at.is_zero());
        run.join(&present, Time::ZERO);
        for at in late {
            run.queue(Time::ZERO.after(fleet[at].joins_at), Next::Join(at));
        }
        for (at, (when, _)) in scenario.events.iter().enumerate() {
            run.queue(Time::ZERO.after(*when), Next::Change(at));
        }
        Ok(run)
    }

    /// Runs to the end of the last request.
    pub(super) fn play(mut self, name: &str) -> Simulated {
        while let Some((now, due)) = self.first() {
            match due {
                Due::Step(at) => self.step(at, now),
                Due::Notice => self.deliver(),
                Due::Arrival => {
                    self.next_arrival += 1;
                    self.arrive(self.next_arrival - 1, now);
                }
                Due::Other => {
                    if let Some(Reverse((_, next))) = self.others.pop() {
                        self.happen(next, now);
                    }
                }
            }
        }
        debug_assert_eq!(self.left, 0, "every engine goes on while it has work");
        let (report, detail) = self.tally.close(name, self.trace, self.fleet, &self.engines);
        Simulated {
            report,
            detail,
            errors: self.front.errors(),
            steps: self.engines.iter().map(|engine| engine.counts().steps).sum(),
            decisions: self.decisions,
            decision_time: self.scenario.clock.as_ref().map(|_| self.decision_time),
        }
    }

    /// What is first, and when; `None` when every request has ended.
    fn first(&self) -> Option<(Time, Due)> {
        if self.left == 0 && self.notices.is_empty() {
            return None;
        }
        let (step, engine) = self.steps.first();
        let mut first = (step, Due::Step(engine));
        if let Some(Reverse((at, next))) = self.others.peek()
            && (*at < step || *at == step && next.is_before_steps())
        {
            first = (*at, Due::Other);
        }
        if let Some(notice) = self.notices.front()
            && (notice.due < first.0 || notice.due == first.0 && !self.is_early(first.1))
        {
            first = (notice.due, Due::Notice);
        }
        if let Some(arrival) = self.trace.arrivals.get(self.next_arrival) {
            let at = Time::ZERO.after(arrival.at);
            if at < first.0 {
                first = (at, Due::Arrival);
            }
        }
        (first.0 < NEVER).then_some(first)
    }

    /// Whether what is due comes before the notices of its instant.
    fn is_early(&self, due: Due) -> bool {
        match due {
            Due::Step(_) => true,
            Due::Other => self.others.peek().is_some_and(|next| next.0.1.is_before_steps()),
            Due::Notice | Due::Arrival => false,
        }
    }

    /// `next` happens at `at`.
    pub(super) fn queue(&mut self, at: Time, next: Next) {
        self.others.push(Reverse((at, next)));
    }

    fn happen(&mut self, next: Next, now: Time) {
        match next {
            Next::Change(at) => self.change(self.scenario.events[at].1, now),
            Next::Join(at) => self.join(&[at], now),
            Next::Reach(index) => self.reach(index, now),
            Next::Unreached(index) => self.unreached(index, now),
            Next::Rejected(index) => self.rejected(index, now),
            Next::Broken(index) => self.broken(index, now),
        }
    }

    fn join(&mut self, joining: &[usize], now: Time) {
        for at in joining {
            self.joined[*at] = true;
            self.alive[*at] = true;
            self.scrapes.up(*at, now.nanos());
        }
        if let Front::Router(routing) = &mut self.front {
            routing.join(joining);
        }
    }

    fn change(&mut self, change: Change, now: Time) {
        match change {
            Change::Slowdown { member, factor } => {
                let members = member.map_or(0..self.fleet.len(), |at| at..at + 1);
                for at in members {
                    self.engines[at].set_slowdown(self.fleet[at].options.slowdown * factor);
                }
            }
            Change::Fail { member } if self.alive[member] => {
                self.scrapes.down(member, &self.engines[member], now.nanos());
                self.alive[member] = false;
                self.engines[member].restart(now);
                self.steps.set(member, None);
                self.break_off(member, now);
            }
            Change::Recover { member } if self.joined[member] && !self.alive[member] => {
                self.alive[member] = true;
                self.scrapes.up(member, now.nanos());
            }
            Change::Fail { .. } | Change::Recover { .. } => {}
        }
    }

    /// Every answer that `member` was giving breaks off.
    fn break_off(&mut self, member: usize, now: Time) {
        let heard = now.after(self.scenario.timing.network);
        for index in self.requests.on(member, self.next_arrival) {
            self.queue(heard, Next::Broken(index));
        }
    }
}

/// Whether everything that is named is there.
fn check(fleet: &[Member], trace: &Trace, scenario: &Scenario) -> Result<(), FleetError> {
    let classes = scenario.classes.len();
    if classes == 0 {
        return Err(FleetError::NoClasses);
    }
    let stranger = |arrival: &Arrival| usize::from(arrival.class) >= classes;
    if let Some(arrival) = trace.arrivals.iter().position(stranger) {
        let class = trace.arrivals[arrival].class;
        return Err(FleetError::Class { arrival, class, classes });
    }
    for (_, change) in &scenario.events {
        let (Change::Slowdown { member: Some(member), .. }
        | Change::Fail { member }
        | Change::Recover { member }) = *change
        else {
            continue;
        };
        if member >= fleet.len() {
            return Err(FleetError::Event { member, members: fleet.len() });
        }
    }
    Ok(())
}
