//! Who decides where requests go: the router as it serves, or an oracle.

use std::sync::Arc;

use ahash::AHashMap;
use datalayer::{EndpointState, Pool, Snapshot};
use predict::ClassError;
use router::{Flight, Refits, Router};
use schedule::{Policy, Scheduler};
use types::{Endpoint, Request, Time};

use super::{
    Chooser, Member, Scenario,
    member::FleetError,
    scrapes::{Reading, Scrapes},
};
use crate::{
    engine::Engine,
    oracle::{Oracle, Placed},
    profile::BLOCK_TOKENS,
};

/// One of them at work.
#[derive(Debug)]
pub(super) enum Front {
    /// The router.
    Router(Routing),
    /// An oracle, and what it has placed.
    Oracle(Oracle, AHashMap<u64, Placed>),
}

/// Where one request goes.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) member: usize,
    /// The rest is the router's.
    pub(super) routed: Option<Accepted>,
}

/// What the router tells beside the member.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) flight: Flight,
    pub(super) slot: u32,
    pub(super) rung: &'static str,
    /// Median TTFT and ITL predicted, if the request asked for reasons.
    pub(super) predicted: Option<(f32, f32)>,
}

impl Front {
    /// That of `scenario`, before `fleet` has joined.
    pub(super) fn new(scenario: &Scenario, fleet: &[Member]) -> Result<Self, FleetError> {
        match &scenario.policy {
            Chooser::Router(options) => Routing::new(scenario, options, fleet).map(Self::Router),
            Chooser::Oracle(options) => Ok(Self::Oracle(Oracle::new(*options), AHashMap::new())),
        }
    }

    /// How good the predictions were.
    pub(super) fn errors(&self) -> Vec<ClassError> {
        match self {
            Self::Router(routing) if routing.predicts => routing.router.errors(),
            Self::Router(_) | Self::Oracle(..) => Vec::new(),
        }
    }
}

/// The router and its endpoints.
#[derive(Debug)]
pub(super) struct Routing {
    router: Router,
    /// Whether decisions go by predictions.
    predicts: bool,
    /// Whether what is cached where can change anything that is reported.
    minds_prefixes: bool,
    /// By member.
    endpoints: Vec<Endpoint>,
    /// By member; `None` before it has joined.
    states: Vec<Option<Arc<EndpointState>>>,
    /// By slot.
    members: Vec<usize>,
    /// Number of the readings that all engines have told.
    told: Option<u64>,
}

impl Routing {
    fn new(
        scenario: &Scenario,
        options: &router::Options,
        fleet: &[Member],
    ) -> Result<Self, FleetError> {
        let endpoints = fleet.iter().enumerate().map(|(at, member)| member.endpoint(at));
        let predicts = Scheduler::new(options.schedule.clone())
            .map_err(router::Error::from)?
            .wants_predictions();
        let minds_prefixes = predicts
            || scenario.recorder.is_some()
            || !options.schedule.profile.filters.iter().all(|filter| filter.name == "decode")
            || matches!(options.schedule.policy, Policy::Learned | Policy::Heuristic);
        // Fits run where labels arrive, or two runs would differ.
        let mut options = router::Options { refits: Refits::Inline, ..options.clone() };
        if !predicts && scenario.recorder.is_none() {
            // Lengths of answers and of prompts are learned all the same; latencies nobody asks for.
            options.learner.regressors = vec!["mean".to_owned()];
            options.learner.experts.clear();
            options.learner.batch.clear();
        }
        let router = Router::new(options, Arc::new(Pool::default()))?;
        if let Some(recorder) = &scenario.recorder {
            router.record_to(Arc::clone(recorder));
        }
        Ok(Self {
            router,
            predicts,
            minds_prefixes,
            endpoints: endpoints.collect::<Result<_, _>>()?,
            states: vec![None; fleet.len()],
            members: Vec::new(),
            told: None,
        })
    }

    /// Whether a request must tell its prefix.
    pub(super) fn minds_prefixes(&self) -> bool {
        self.minds_prefixes
    }

    /// `joining` are found, as discovery finds them, and join those that have before.
    pub(super) fn join(&mut self, joining: &[usize]) {
        let is_in = |at: &usize| self.states[*at].is_some() || joining.contains(at);
        let present: Vec<usize> = (0..self.endpoints.len()).filter(is_in).collect();
        self.router.replace_endpoints(present.iter().map(|at| self.endpoints[*at].clone()));
        for (at, state) in present.into_iter().zip(self.router.pool().endpoints().iter()) {
            let slot = state.slot as usize;
            if self.members.len() <= slot {
                self.members.resize(slot + 1, 0);
            }
            self.members[slot] = at;
            self.states[at] = Some(Arc::clone(state));
        }
        self.told = None;
    }

    /// Hands the router the readings that have arrived by `now`.
    pub(super) fn read_all(&mut self, scrapes: &mut Scrapes, engines: &[Engine], now: Time) {
        let arrived = scrapes.instant(now.nanos());
        if arrived.is_none() || self.told == arrived {
            return;
        }
        self.told = arrived;
        for ((at, state), engine) in self.states.iter().enumerate().zip(engines) {
            if let Some(state) = state
                && let Some(reading) = scrapes.newest(at, engine, now.nanos(), true)
            {
                state.publish(snapshot_of(&reading));
            }
        }
    }

    /// Hands the router the reading of one engine that has arrived before `now`.
    pub(super) fn read(&self, at: usize, scrapes: &mut Scrapes, engine: &Engine, now: Time) {
        if let Some(state) = &self.states[at]
            && let Some(reading) = scrapes.newest(at, engine, now.nanos(), false)
        {
            state.publish(snapshot_of(&reading));
        }
    }

    /// Where `request` goes, of those that are not among the slots in `avoid`.
    pub(super) fn route(&self, request: &Request, now: Time, avoid: &[u32]) -> Option<Choice> {
        let routed = self.router.route(request, now, avoid).ok()?;
        let chosen = routed.explanation.and_then(|reasons| reasons.best.into_iter().next());
        let prediction = chosen.and_then(|reason| reason.prediction);
        let slot = routed.endpoint.slot;
        let accepted = Accepted {
            slot,
            rung: routed.rung.as_str(),
            predicted: prediction.map(|of| (of.ttft.p50(), of.itl.p50())),
            flight: routed.flight,
        };
        Some(Choice { member: self.members[slot as usize], routed: Some(accepted) })
    }
}

fn snapshot_of(reading: &Reading) -> Snapshot {
    let gauges = &reading.gauges;
    Snapshot {
        scraped_at: Some(Time::from_nanos(reading.at)),
        running: Some(gauges.running),
        waiting: Some(gauges.waiting),
        kv_utilization: Some(gauges.kv_utilization as f32),
        kv_block_tokens: Some(BLOCK_TOKENS),
        kv_blocks: Some(gauges.kv_blocks),
        preemptions: u32::try_from(gauges.counts.preemptions).ok(),
    }
}
