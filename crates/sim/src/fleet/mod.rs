//! A fleet of engines in virtual time, driven by the very router that serves.
//!
//! Discrete events in order of time: arrivals, engine steps, scrapes, deliveries, and what happens to the
//! engines. The router sees what it would see in production: its own requests, tokens as they come, and
//! each engine's gauges as old as the last scrape. Equal seeds give equal reports.

mod agenda;
mod answers;
mod detail;
mod front;
mod member;
mod place;
mod requests;
mod run;
mod scrapes;
mod tally;

use std::{sync::Arc, time::Duration};

use predict::ClassError;
use router::Recorder;
use types::Clock;

pub use self::{
    detail::{ClassDetail, Detail, MemberDetail, Predicted},
    member::{FleetError, Member},
};
use crate::{class::Class, oracle::OracleOptions, report::PolicyReport, workload::Trace};

/// What is simulated beside the fleet and the trace.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Who decides where requests go.
    pub policy: Chooser,
    /// Classes of callers, at least one; arrivals count them from 0.
    pub classes: Vec<Class>,
    /// How long things take to become known.
    pub timing: Timing,
    /// Model that everybody asks for.
    pub model: String,
    /// What happens to the engines, and when, from the start.
    pub events: Vec<(Duration, Change)>,
    /// Requests that arrive before this are served but not judged.
    pub warm_up: Duration,
    /// Who gets the rows of the requests; oracles give none.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Where real time is read to measure decisions; without it they are not measured.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Scenario {
    /// One in which nothing happens to the engines, with the usual timing.
    pub fn new(policy: Chooser, classes: Vec<Class>, model: &str) -> Self {
        Self {
            policy,
            classes,
            timing: Timing::default(),
            model: model.to_owned(),
            events: Vec::new(),
            warm_up: Duration::ZERO,
            recorder: None,
            clock: None,
        }
    }
}

/// Who decides where requests go.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per simulation")]
pub enum Chooser {
    /// The router, as it serves.
    Router(router::Options),
    /// One that knows what no router can know.
    Oracle(OracleOptions),
}

/// How long things take to become known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// Time between two readings of an engine's gauges.
    pub scrape_every: Duration,
    /// From the reading of gauges to their arrival at the router.
    pub scrape_delay: Duration,
    /// One way between router and engine, for requests and tokens.
    pub network: Duration,
    /// From when a token or the end of an answer has come back to when the router's accounts and learner
    /// take note of it, with the time at which it came back; callers have it at once. That an answer broke
    /// off or an engine was not there, the router notices without it.
    pub label_delay: Duration,
}

impl Default for Timing {
    /// Gauges every 50 ms, and nothing is delayed.
    fn default() -> Self {
        Self {
            scrape_every: Duration::from_millis(50),
            scrape_delay: Duration::ZERO,
            network: Duration::ZERO,
            label_delay: Duration::ZERO,
        }
    }
}

/// Something that happens to engines of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Steps take this many times as long as the options of the member say, from the next one on.
    Slowdown {
        /// Which member; `None` means all.
        member: Option<usize>,
        /// 1 is the usual speed, 2 half of it.
        factor: f64,
    },
    /// It dies: running requests break off, new ones find nobody, and the cache is lost.
    Fail {
        /// Which member.
        member: usize,
    },
    /// It is there again, with an empty cache.
    Recover {
        /// Which member.
        member: usize,
    },
}

/// What came of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What callers saw.
    pub report: PolicyReport,
    /// The same by class and by member.
    pub detail: Detail,
    /// How good the router's predictions were at the end, by class; none of a
    /// policy that predicts nothing.
    pub errors: Vec<ClassError>,
    /// Engine steps run.
    pub steps: u64,
    /// Decisions made, those of retries too.
    pub decisions: u64,
    /// Real time that they took in all, if the scenario has a clock.
    pub decision_time: Option<Duration>,
}

/// Runs `trace` through `fleet` under one policy, and reports as `name`.
pub fn simulate(
    name: &str,
    fleet: &[Member],
    trace: &Trace,
    scenario: &Scenario,
) -> Result<Simulated, FleetError> {
    Ok(run::Run::new(fleet, trace, scenario)?.play(name))
}
