//! A plan for the arrivals to come: who goes where, and what that costs by simulating it.
//!
//! Given an assignment, members do not touch each other, so a changed one is judged by running only the
//! two members that it concerns.

use types::Time;

use super::{
    World,
    ahead::Memory,
    shadow::{Start, play},
    start::{job_to_come, start},
};

/// Gains below this, in misses, are rounding.
const GAIN: f64 = 1e-9;

/// The plan at one instant.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    world: &'a World<'a>,
    now: Time,
    memory: &'a mut Memory,
    /// By member; `None` where it is dead.
    starts: Vec<Option<Start<'a>>>,
    /// Planned arrivals by member, in order.
    lists: Vec<Vec<usize>>,
    /// What the requests of each member cost under the plan.
    costs: Vec<f64>,
    /// Arrivals to come that miss under the plan.
    missed: Vec<usize>,
    /// Simulations run so far.
    runs: usize,
}

/// A change of one member's list.
#[derive(Clone, Copy, Debug, Default)]
struct Edit {
    without: Option<usize>,
    with: Option<usize>,
}

impl<'a> Plan<'a> {
    /// The plan in `memory` as things now stand.
    pub(super) fn new(world: &'a World<'a>, now: Time, memory: &'a mut Memory) -> Self {
        let members = 0..world.engines.len();
        let of =
            |member: usize| world.alive[member].then(|| start(world, member, now, &memory.recent));
        let starts: Vec<_> = members.map(of).collect();
        let mut lists = vec![Vec::new(); starts.len()];
        for ahead in &mut memory.ahead {
            match ahead.member {
                Some(member) if world.alive[member] => lists[member].push(ahead.index),
                _ => ahead.member = None,
            }
        }
        let costs = vec![0.0; starts.len()];
        let mut plan =
            Self { world, now, memory, starts, lists, costs, missed: Vec::new(), runs: 0 };
        let mut missed = Vec::new();
        for member in 0..plan.starts.len() {
            plan.costs[member] = plan.run(member, Edit::default(), Some(&mut missed));
        }
        missed.sort_unstable();
        plan.missed = missed;
        plan
    }

    /// What `member` costs under the plan with an edit.
    fn run(&mut self, member: usize, edit: Edit, missed: Option<&mut Vec<usize>>) -> f64 {
        self.runs += 1;
        let Some(start) = &self.starts[member] else { return 0.0 };
        let is_there = |index: usize| {
            Some(index) != edit.without
                && (Some(index) == edit.with
                    || self
                        .memory
                        .position(index)
                        .is_ok_and(|at| self.memory.ahead[at].member == Some(member)))
        };
        let mut jobs = start.incoming.clone();
        let planned = self.lists[member].iter().copied().filter(|at| Some(*at) != edit.without);
        for index in planned.chain(edit.with) {
            if let Ok(at) = self.memory.position(index) {
                let hit = self.memory.ahead[at].hit(member, is_there);
                jobs.extend(job_to_come(self.world, index, (member, hit), self.now));
            }
        }
        jobs.sort_by(|one, other| one.enters.total_cmp(&other.enters));
        play(start, &jobs, missed)
    }

    /// Whether `member` is alive and takes a request as long as arrival `index`.
    fn takes(&self, member: usize, index: usize) -> bool {
        self.starts[member].is_some()
            && self.world.arrivals.get(index).is_some_and(|arrival| {
                let tokens = u64::from(arrival.prompt_tokens) + u64::from(arrival.output_tokens);
                tokens <= u64::from(self.world.engines[member].max_model_len())
            })
    }

    /// Moves arrival `index` to where the plan as a whole costs least: among all members, or among the
    /// `breadth` that were cheapest for it before, the one where most of its prompt is cached, and the
    /// one it is on.
    pub(super) fn replace(&mut self, index: usize, breadth: Option<usize>) {
        let Ok(at) = self.memory.position(index) else { return };
        let from = self.memory.ahead[at].member;
        self.refresh(at, from);
        let candidates = self.candidates(at, breadth);
        let edit = Edit { without: Some(index), with: None };
        let spared = from.map_or(0.0, |member| {
            let without = self.run(member, edit, None);
            self.costs[member] - without
        });
        let mut tried = Vec::with_capacity(candidates.len());
        for member in candidates {
            if Some(member) == from {
                tried.push((spared, member));
            } else if self.takes(member, index) {
                let with = self.run(member, Edit { without: None, with: Some(index) }, None);
                tried.push((with - self.costs[member], member));
            }
        }
        tried.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        if breadth.is_none() {
            self.memory.ahead[at].order = tried.iter().map(|(_, member)| *member).collect();
        }
        if let Some(&(added, to)) = tried.first()
            && Some(to) != from
            && (from.is_none() || added < spared - GAIN)
        {
            self.settle(at, (spared, added), to);
        }
    }

    /// Looks up again what is cached of the prompt of the arrival at `at`, which is on `from`.
    fn refresh(&mut self, at: usize, from: Option<usize>) {
        let memory = &mut *self.memory;
        let known = from.map(|member| memory.ahead[at].hit(member, |_| false));
        memory.ahead[at].refresh(self.world, &memory.recent);
        if let Some(member) = from
            && Some(memory.ahead[at].hit(member, |_| false)) != known
        {
            self.costs[member] = self.run(member, Edit::default(), None);
        }
    }

    fn candidates(&self, at: usize, breadth: Option<usize>) -> Vec<usize> {
        let ahead = &self.memory.ahead[at];
        let Some(breadth) = breadth.filter(|_| !ahead.order.is_empty()) else {
            return (0..self.starts.len()).collect();
        };
        let mut candidates: Vec<_> = ahead.order.iter().copied().take(breadth).collect();
        for more in [ahead.warmest(), ahead.member].into_iter().flatten() {
            if !candidates.contains(&more) {
                candidates.push(more);
            }
        }
        candidates
    }

    /// Writes the move of the arrival at `at` into the plan; `spared` and `added` are the differences it
    /// makes where it was and where it goes.
    fn settle(&mut self, at: usize, (spared, added): (f64, f64), to: usize) {
        let ahead = &mut self.memory.ahead[at];
        let index = ahead.index;
        if let Some(from) = ahead.member.replace(to) {
            self.lists[from].retain(|other| *other != index);
            self.costs[from] -= spared;
        }
        let list = &mut self.lists[to];
        list.insert(list.partition_point(|other| *other < index), index);
        self.costs[to] += added;
    }

    /// Gives every arrival without a place one, the earliest first.
    pub(super) fn complete(&mut self) {
        let homeless = self.memory.ahead.iter().filter(|ahead| ahead.member.is_none());
        for index in homeless.map(|ahead| ahead.index).collect::<Vec<_>>() {
            self.replace(index, None);
        }
    }

    /// Tries to move arrivals to come, those that miss first, then all in turn, for as long as `runs`
    /// simulations last.
    pub(super) fn improve(&mut self, breadth: usize, runs: usize) {
        let begun = self.runs;
        let missed = std::mem::take(&mut self.missed);
        for index in missed {
            if self.runs - begun >= runs / 2 {
                break;
            }
            self.replace(index, Some(breadth));
        }
        for _ in 0..self.memory.ahead.len() {
            if self.runs - begun >= runs {
                break;
            }
            let (Ok(at) | Err(at)) = self.memory.position(self.memory.cursor + 1);
            let at = if at < self.memory.ahead.len() { at } else { 0 };
            self.memory.cursor = self.memory.ahead[at].index;
            self.replace(self.memory.cursor, Some(breadth));
        }
    }

    /// Where arrival `index` goes.
    pub(super) fn member(&self, index: usize) -> Option<usize> {
        self.memory.position(index).ok().and_then(|at| self.memory.ahead[at].member)
    }
}
