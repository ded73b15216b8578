//! A fleet of engines in virtual time, driven by the very router that serves.
//!
//! Discrete events: arrivals, engine steps and scrapes, in order of time; equal seeds give equal
//! reports. The router sees what it would see in production: its own requests, tokens as they come,
//! and each engine's gauges as old as the last scrape.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use ahash::AHashMap;
use datalayer::{EndpointState, Pool, Snapshot};
use predict::ClassError;
use router::{End, Flight, Recorder, Refits, Router, Usage};
use types::{Endpoint, EndpointId, Request, Slo, Time};

use crate::{
    engine::{Engine, Event, EventKind, Options, Submit},
    profile::{BLOCK_TOKENS, Profile},
    report::{Collector, Failure, PolicyReport, RequestResult},
    workload::{Arrival, Trace, engine_blocks, router_blocks},
};

/// One engine of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name of the endpoint.
    pub name: String,
    /// What it runs on.
    pub profile: Profile,
    /// How it is set up.
    pub options: Options,
}

/// What is simulated beside the fleet and the trace.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How requests are routed.
    pub router: router::Options,
    /// What every caller is promised.
    pub slo: Slo,
    /// Time between two scrapes of an engine.
    pub scrape_every: Duration,
    /// Model that everybody asks for.
    pub model: String,
    /// What happens to the engines, and when, from the start.
    pub events: Vec<(Duration, Change)>,
    /// Who gets the rows of the requests.
    pub recorder: Option<Arc<dyn Recorder>>,
}

/// Something that happens to every engine of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Steps take this many times as long as the profile says, from the next one on.
    Slowdown {
        /// 1 is the profile's speed, 2 half of it.
        factor: f64,
    },
}

/// What came of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What callers saw.
    pub report: PolicyReport,
    /// How good the router's predictions were at the end, by class.
    pub errors: Vec<ClassError>,
    /// Engine steps run.
    pub steps: u64,
}

/// A fleet or a policy that cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The name of a member does not make an address.
    #[error("member {0} of the fleet has no usable address")]
    Address(String),
    /// The router's options do not fit.
    #[error(transparent)]
    Router(#[from] router::Error),
}

/// Runs `trace` through `fleet` under one policy, and reports as `name`.
pub fn simulate(
    name: &str,
    fleet: &[Member],
    trace: &Trace,
    scenario: &Scenario,
) -> Result<Simulated, FleetError> {
    let mut run = Run::new(fleet, trace, scenario)?;
    run.play();
    let steps = run.engines.iter().map(|engine| engine.gauges().counts.steps).sum();
    Ok(Simulated {
        report: run.collector.report(name, trace.span()),
        errors: run.router.errors(),
        steps,
    })
}

/// What happens next, and to whom; at one instant, changes come before tokens before scrapes before
/// arrivals.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Next {
    Change(usize),
    Step(usize),
    Scrape(usize),
    Arrival(usize),
}

#[derive(Debug)]
struct Running {
    flight: Flight,
    endpoint: Arc<str>,
    arrived: Time,
    first: Option<Time>,
    last: Time,
    tokens: u32,
    gaps_ms: Vec<f32>,
    prompt_tokens: u32,
}

#[derive(Debug)]
struct Run<'a> {
    fleet: &'a [Member],
    scenario: &'a Scenario,
    trace: &'a Trace,
    router: Router,
    engines: Vec<Engine>,
    states: Vec<Arc<EndpointState>>,
    by_slot: AHashMap<u32, usize>,
    queue: BinaryHeap<Reverse<(Time, Next)>>,
    /// Instant for which each engine's next step is queued.
    queued: Vec<Option<Time>>,
    running: AHashMap<u64, Running>,
    collector: Collector,
    events: Vec<Event>,
    left: usize,
}

impl<'a> Run<'a> {
    fn new(
        fleet: &'a [Member],
        trace: &'a Trace,
        scenario: &'a Scenario,
    ) -> Result<Self, FleetError> {
        let endpoints = fleet.iter().enumerate().map(endpoint_of);
        let pool = Arc::new(Pool::new(endpoints.collect::<Result<Vec<_>, _>>()?));
        // Fits run where labels arrive, or two runs would differ.
        let options = router::Options { refits: Refits::Inline, ..scenario.router.clone() };
        let router = Router::new(options, Arc::clone(&pool))?;
        if let Some(recorder) = &scenario.recorder {
            router.record_to(Arc::clone(recorder));
        }
        let states: Vec<_> = pool.endpoints().iter().map(Arc::clone).collect();
        let mut run = Self {
            fleet,
            scenario,
            trace,
            router,
            engines: fleet
                .iter()
                .map(|member| Engine::new(member.profile.clone(), member.options.clone()))
                .collect(),
            by_slot: states.iter().enumerate().map(|(at, state)| (state.slot, at)).collect(),
            queued: vec![None; states.len()],
            states,
            queue: BinaryHeap::new(),
            running: AHashMap::new(),
            collector: Collector::new(scenario.slo),
            events: Vec::new(),
            left: trace.arrivals.len(),
        };
        for at in 0..run.engines.len() {
            run.queue.push(Reverse((Time::ZERO, Next::Scrape(at))));
        }
        for (at, (when, _)) in scenario.events.iter().enumerate() {
            run.queue.push(Reverse((Time::ZERO.after(*when), Next::Change(at))));
        }
        run.queue_arrival(0);
        Ok(run)
    }

    fn play(&mut self) {
        while self.left > 0
            && let Some(Reverse((now, next))) = self.queue.pop()
        {
            match next {
                Next::Change(at) => self.change(self.scenario.events[at].1),
                Next::Step(at) => self.step(at, now),
                Next::Scrape(at) => {
                    self.scrape(at, now);
                    let then = now.after(self.scenario.scrape_every);
                    self.queue.push(Reverse((then, Next::Scrape(at))));
                }
                Next::Arrival(at) => {
                    self.arrive(at, now);
                    self.queue_arrival(at + 1);
                }
            }
        }
    }

    fn change(&mut self, change: Change) {
        let Change::Slowdown { factor } = change;
        for (engine, member) in self.engines.iter_mut().zip(self.fleet) {
            engine.set_slowdown(member.options.slowdown * factor);
        }
    }

    fn queue_arrival(&mut self, at: usize) {
        if let Some(arrival) = self.trace.arrivals.get(at) {
            self.queue.push(Reverse((Time::ZERO.after(arrival.at), Next::Arrival(at))));
        }
    }

    fn queue_step(&mut self, at: usize) {
        let next = self.engines[at].next_event();
        if let Some(time) = next
            && self.queued[at] != next
        {
            self.queue.push(Reverse((time, Next::Step(at))));
        }
        self.queued[at] = next;
    }

    fn scrape(&mut self, at: usize, now: Time) {
        let gauges = self.engines[at].gauges();
        self.states[at].publish(Snapshot {
            scraped_at: Some(now),
            running: Some(gauges.running),
            waiting: Some(gauges.waiting),
            kv_utilization: Some(gauges.kv_utilization as f32),
            kv_block_tokens: Some(BLOCK_TOKENS),
            kv_blocks: Some(gauges.kv_blocks),
            preemptions: u32::try_from(gauges.counts.preemptions).ok(),
        });
    }

    fn arrive(&mut self, index: usize, now: Time) {
        let arrival = &self.trace.arrivals[index];
        let request = request_of(arrival, index, self.scenario);
        let Ok(routed) = self.router.route(&request, now, &[]) else {
            self.fail(Failure::Status(503), None, now);
            return;
        };
        let at = self.by_slot[&routed.endpoint.slot];
        let endpoint: Arc<str> = routed.endpoint.endpoint.id.name().into();
        let submit = Submit {
            id: index as u64,
            prompt_tokens: arrival.prompt_tokens,
            blocks: engine_blocks(arrival),
            output_tokens: arrival.output_tokens.max(1),
        };
        if self.engines[at].submit(submit, now).is_err() {
            routed.flight.finish(End::Rejected, now);
            self.fail(Failure::Status(400), Some(endpoint), now);
            return;
        }
        let running = Running {
            flight: routed.flight,
            endpoint,
            arrived: now,
            first: None,
            last: now,
            tokens: 0,
            gaps_ms: Vec::with_capacity(arrival.output_tokens as usize),
            prompt_tokens: arrival.prompt_tokens,
        };
        self.running.insert(index as u64, running);
        self.queue_step(at);
    }

    fn fail(&mut self, failure: Failure, endpoint: Option<Arc<str>>, now: Time) {
        self.left -= 1;
        let result = RequestResult {
            scheduled: now.since(Time::ZERO),
            ttft_ms: None,
            itl_ms: None,
            e2e_ms: 0.0,
            endpoint,
            failure: Some(failure),
            output_tokens: 0,
        };
        self.collector.record(&result, &[]);
    }

    fn step(&mut self, at: usize, now: Time) {
        if self.queued[at] != Some(now) {
            return;
        }
        self.queued[at] = None;
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.engines[at].advance(now, &mut events);
        for event in &events {
            self.take(event);
        }
        self.events = events;
        self.queue_step(at);
    }

    fn take(&mut self, event: &Event) {
        match event.kind {
            EventKind::FirstToken { .. } | EventKind::Token => {
                let Some(running) = self.running.get_mut(&event.id) else { return };
                if running.first.is_none() {
                    running.first = Some(event.at);
                } else {
                    running.gaps_ms.push(event.at.ms_since(running.last));
                }
                running.last = event.at;
                running.tokens += 1;
                running.flight.tokens(1, event.at);
            }
            EventKind::Finished { cached_tokens } => {
                if let Some(running) = self.running.remove(&event.id) {
                    self.left -= 1;
                    self.collector.record(&running.result(), &running.gaps_ms);
                    running.finish(cached_tokens, event.at);
                }
            }
            EventKind::Preempted => {}
        }
    }
}

impl Running {
    fn result(&self) -> RequestResult {
        let first = self.first.unwrap_or(self.last);
        let itl_ms =
            (self.tokens > 1).then(|| self.last.ms_since(first) / (self.tokens as f32 - 1.0));
        RequestResult {
            scheduled: self.arrived.since(Time::ZERO),
            ttft_ms: Some(first.ms_since(self.arrived)),
            itl_ms,
            e2e_ms: self.last.ms_since(self.arrived),
            endpoint: Some(Arc::clone(&self.endpoint)),
            failure: None,
            output_tokens: self.tokens,
        }
    }

    fn finish(mut self, cached_tokens: u32, now: Time) {
        self.flight.usage(Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.tokens,
            cached_tokens: Some(cached_tokens),
        });
        self.flight.finish(End::Complete, now);
    }
}

/// Members stand at made-up addresses, which nothing connects to.
fn endpoint_of((at, member): (usize, &Member)) -> Result<Endpoint, FleetError> {
    let host = format!("{}.fleet.invalid", member.name);
    let port = u16::try_from(at + 1).map_err(|_| FleetError::Address(member.name.clone()))?;
    let address =
        types::Address::new(&host, port).map_err(|_| FleetError::Address(member.name.clone()))?;
    let labels = [("llm-d.ai/accelerator".to_owned(), member.profile.gpu.clone())];
    Ok(Endpoint { id: EndpointId::new("default", &member.name), address, labels: labels.into() })
}

/// The request of an arrival. How long its answer will be, the router does not know.
fn request_of(arrival: &Arrival, index: usize, scenario: &Scenario) -> Request {
    const BYTES_PER_TOKEN: u32 = 4;
    Request {
        id: index.to_string().into(),
        model: scenario.model.as_str().into(),
        stream: true,
        prompt_bytes: arrival.prompt_tokens.saturating_mul(BYTES_PER_TOKEN),
        prompt_tokens: None,
        max_tokens: None,
        blocks: router_blocks(arrival),
        slo: scenario.slo,
        scope: None,
        subset: None,
        session: None,
        weight: 1.0,
        explain: false,
    }
}
