//! Policies that know what no router can know: the true state of every engine, true lengths, and, for
//! the clairvoyant one, the arrivals to come.
//!
//! Both place a request where all requests together cost least, by running every engine ahead without
//! its noise (see `shadow`). `true-latency` does so for the requests that are there. `clairvoyant` keeps
//! a plan for every arrival within its window and improves it by moving one arrival at a time, each
//! move judged by simulation to the end of the last request.

mod ahead;
mod plan;
mod promise;
mod shadow;
mod start;
mod world;

use std::time::Duration;

use types::Time;
pub(crate) use world::{Placed, World};

use self::{ahead::Memory, plan::Plan};

/// Arrivals that a plan holds at most, for each member: what bounds the cost of a decision.
const PLANNED_PER_MEMBER: usize = 96;
/// Simulations of one engine that a decision spends on improving the plan.
const RUNS: usize = 400;

/// Which oracle decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OracleOptions {
    /// Knows each candidate's true latencies now.
    TrueLatency,
    /// Knows the arrivals to come, too.
    Clairvoyant {
        /// How far it looks ahead; 0 is `true-latency`. At most 96 arrivals for each member are looked
        /// at, however long it is.
        window: Duration,
        /// Members that each arrival of the plan is tried on again. More finds better places but leaves
        /// time for fewer arrivals.
        breadth: usize,
    },
}

impl OracleOptions {
    /// The clairvoyant one as it is usually run: twenty seconds ahead, eight members.
    pub const CLAIRVOYANT: Self = Self::Clairvoyant { window: Duration::from_secs(20), breadth: 8 };
}

/// One of them at work.
#[derive(Debug)]
pub(crate) struct Oracle {
    options: OracleOptions,
    memory: Memory,
}

impl Oracle {
    /// One that has seen nothing.
    pub(crate) fn new(options: OracleOptions) -> Self {
        Self { options, memory: Memory::default() }
    }

    /// The member for arrival `world.index`, which is at the router `now`; `None` where none is alive.
    pub(crate) fn choose(&mut self, world: &World<'_>, now: Time) -> Option<usize> {
        let first_alive = world.alive.iter().position(|alive| *alive)?;
        let (window, breadth) = match self.options {
            OracleOptions::TrueLatency => (Duration::ZERO, 0),
            OracleOptions::Clairvoyant { window, breadth } => (window, breadth.max(1)),
        };
        self.memory.forget(world);
        self.memory.add(world, world.index);
        if !window.is_zero() {
            self.look_ahead(world, now.after(window));
        }
        let mut plan = Plan::new(world, now, &mut self.memory);
        plan.complete();
        if !window.is_zero() {
            plan.replace(world.index, None);
            plan.improve(breadth, RUNS);
        }
        // One that fits nowhere is refused wherever it goes.
        let member = plan.member(world.index).unwrap_or(first_alive);
        self.memory.place(world.index, member);
        Some(member)
    }

    /// Takes in the arrivals up to `until`.
    fn look_ahead(&mut self, world: &World<'_>, until: Time) {
        let most = PLANNED_PER_MEMBER * world.alive.iter().filter(|alive| **alive).count();
        for (index, arrival) in world.arrivals.iter().enumerate().skip(self.memory.unseen) {
            if Time::ZERO.after(arrival.at) > until || self.memory.ahead.len() >= most {
                break;
            }
            self.memory.add(world, index);
        }
    }
}

#[cfg(test)]
mod tests;
