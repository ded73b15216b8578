//! The engine of one server, the requests it works on, and the task that drives it.

use std::{ops::Range, sync::Arc, time::Duration};

use ahash::AHashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::{Clock, Time};

use super::{
    ServerOptions,
    failure::Failure,
    histogram::Stats,
    prompt::{Job, Part},
};
use crate::engine::{Engine, Event, EventKind, Rejected, Submit};

/// No wake-up is due.
const NEVER: Time = Time::from_nanos(u64::MAX);
/// Shortest sleep of the driver: an engine that runs much faster than life is driven in bursts.
const MIN_SLEEP: Duration = Duration::from_micros(200);

/// One model server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) options: ServerOptions,
    pub(super) core: Mutex<Core>,
    pub(super) shutdown: CancellationToken,
    clock: Arc<dyn Clock>,
    /// Something is due before the driver would wake.
    sooner: Notify,
}

/// What the lock of a server guards.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) stats: Stats,
    live: AHashMap<u64, Live>,
    events: Vec<Event>,
    next_id: u64,
    /// Engine time at which the driver wakes.
    wake: Time,
    time_scale: f64,
}

/// A request that the engine works on.
#[derive(Debug)]
struct Live {
    answer: Arc<Answer>,
    part: usize,
    submitted: Time,
    last_token: Time,
    is_cut: bool,
}

/// How far the parts of one answer are: written by the engine's side, read by the client's.
#[derive(Debug)]
pub(super) struct Answer {
    parts: Mutex<Vec<Progress>>,
    changed: Notify,
}

/// How far one part of an answer is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Tokens emitted.
    pub(super) tokens: u32,
    /// Prompt tokens that were cached; known with the first token.
    pub(super) cached: u32,
    /// Whether that was all.
    pub(super) finished: bool,
}

impl Server {
    pub(super) fn new(
        options: ServerOptions,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> Self {
        let core = Core {
            engine: Engine::new(options.profile.clone(), options.engine.clone()),
            stats: Stats::new(),
            live: AHashMap::new(),
            events: Vec::new(),
            next_id: 0,
            wake: NEVER,
            time_scale: options.time_scale,
        };
        Self { options, core: Mutex::new(core), shutdown, clock, sooner: Notify::new() }
    }

    /// The present instant in the engine's time.
    pub(super) fn engine_now(&self) -> Time {
        Time::from_nanos((self.clock.now().nanos() as f64 * self.options.time_scale) as u64)
    }

    /// Seconds since 1970.
    pub(super) fn unix_s(&self) -> u64 {
        self.options.clock_start_unix_s + self.clock.now().nanos() / 1_000_000_000
    }

    /// Hands every part of `job` to the engine, or none.
    pub(super) fn submit(self: &Arc<Self>, job: &Job) -> Result<Ticket, Failure> {
        let answer = Answer {
            parts: Mutex::new(vec![Progress::default(); job.parts.len()]),
            changed: Notify::new(),
        };
        let mut core = self.core.lock();
        let first = core.next_id;
        let now = self.engine_now();
        core.advance(now);
        let ids = first..first + job.parts.len() as u64;
        core.next_id = ids.end;
        let ticket = Ticket { server: Arc::clone(self), answer: Arc::new(answer), ids };
        let result = core.take(&ticket, &job.parts, now);
        let is_sooner = core.engine.next_event().is_some_and(|at| at < core.wake);
        // The ticket takes the lock when it is dropped.
        drop(core);
        result?;
        if is_sooner {
            self.sooner.notify_one();
        }
        Ok(ticket)
    }
}

impl Core {
    /// Brings the engine up to `now` and tells the answers.
    pub(super) fn advance(&mut self, now: Time) {
        let mut events = std::mem::take(&mut self.events);
        self.engine.advance(now, &mut events);
        for event in events.drain(..) {
            self.tell(event);
        }
        self.events = events;
    }

    /// Passes one event on to its answer and to the histograms.
    fn tell(&mut self, event: Event) {
        let Some(live) = self.live.get_mut(&event.id) else { return };
        let seconds = |since: Time| event.at.since(since).as_secs_f64() / self.time_scale;
        let mut parts = live.answer.parts.lock();
        let progress = &mut parts[live.part];
        match event.kind {
            EventKind::FirstToken { cached_tokens } => {
                progress.tokens = 1;
                progress.cached = cached_tokens;
                self.stats.ttft.observe(seconds(live.submitted));
                live.last_token = event.at;
            }
            EventKind::Token => {
                progress.tokens += 1;
                self.stats.itl.observe(seconds(live.last_token));
                live.last_token = event.at;
            }
            EventKind::Finished { .. } => progress.finished = true,
            EventKind::Preempted => return,
        }
        drop(parts);
        live.answer.changed.notify_one();
        if let EventKind::Finished { .. } = event.kind {
            self.stats.e2e.observe(seconds(live.submitted));
            *(if live.is_cut { &mut self.stats.cut } else { &mut self.stats.stopped }) += 1;
            self.live.remove(&event.id);
        }
    }

    /// Submits the parts of the answer behind `ticket`.
    fn take(&mut self, ticket: &Ticket, parts: &[Part], now: Time) -> Result<(), Failure> {
        for ((index, part), id) in parts.iter().enumerate().zip(ticket.ids.clone()) {
            let submit = Submit {
                id,
                prompt_tokens: part.prompt_tokens,
                blocks: Arc::clone(&part.blocks),
                output_tokens: part.output_tokens,
            };
            self.engine.submit(submit, now).map_err(|rejected| match rejected {
                Rejected::TooLong { limit, .. } => {
                    Failure::too_long(limit, part.prompt_tokens.into(), part.output_tokens.into())
                }
                Rejected::Duplicate(_) => Failure::malformed(rejected.to_string()),
            })?;
            let answer = Arc::clone(&ticket.answer);
            let is_cut = part.is_cut;
            let live = Live { answer, part: index, submitted: now, last_token: now, is_cut };
            self.live.insert(id, live);
        }
        Ok(())
    }
}

/// Runs the engine of `server` until it is shut down.
pub(super) async fn drive(server: &Server) {
    loop {
        let due = {
            let mut core = server.core.lock();
            let now = server.engine_now();
            core.advance(now);
            core.wake = core.engine.next_event().unwrap_or(NEVER);
            (core.wake != NEVER).then(|| core.wake.since(now).div_f64(server.options.time_scale))
        };
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep(due.max(MIN_SLEEP)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = server.shutdown.cancelled() => return,
            () = server.sooner.notified() => {}
            () = sleep => {}
        }
    }
}

/// The claim of a client on its answer. Dropped early, it takes the request back at once.
#[derive(Debug)]
pub(super) struct Ticket {
    server: Arc<Server>,
    answer: Arc<Answer>,
    ids: Range<u64>,
}

impl Ticket {
    /// Number of the request within its server.
    pub(super) fn first_id(&self) -> u64 {
        self.ids.start
    }

    /// Waits until a part has moved on; `false` when the server shuts down.
    pub(super) async fn changed(&self) -> bool {
        tokio::select! {
            biased;
            () = self.server.shutdown.cancelled() => false,
            () = self.answer.changed.notified() => true,
        }
    }

    /// How far part `index` is.
    pub(super) fn progress(&self, index: usize) -> Progress {
        self.answer.parts.lock().get(index).copied().unwrap_or_default()
    }

    /// Waits for the end of every part; gives the cached tokens of each, or `None` when the server
    /// shuts down.
    pub(super) async fn finished(&self) -> Option<Vec<u32>> {
        while self.changed().await {
            let parts = self.answer.parts.lock();
            if parts.iter().all(|part| part.finished) {
                return Some(parts.iter().map(|part| part.cached).collect());
            }
        }
        None
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut core = self.server.core.lock();
        let is_live = |id: &u64| core.live.contains_key(id);
        if !self.ids.clone().any(|id| is_live(&id)) {
            return;
        }
        let now = self.server.engine_now();
        core.advance(now);
        for id in self.ids.clone() {
            if core.live.remove(&id).is_some() {
                core.engine.abort(id, now);
            }
        }
    }
}
