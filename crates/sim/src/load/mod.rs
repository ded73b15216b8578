//! Replays a trace against an OpenAI endpoint, open loop: every request starts when it is due,
//! whatever became of those before it, and its latency counts from then.
//!
//! A caller that waited for answers before it sent more would measure an overloaded server at the
//! rate that server allows ("coordinated omission").

mod client;
mod options;
mod progress;
mod stream;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use types::{Clock, Time};

use client::{Call, Client};
pub use options::{LoadError, LoadOptions};
pub use progress::{Progress, Recent};

use crate::{
    report::{Collector, Latencies, PolicyReport, Quantiles},
    workload::{Arrival, Trace, prompt_text},
};

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Latencies, attainment and goodput, under the name of the trace.
    pub policy: PolicyReport,
    /// How late requests were sent, in milliseconds of the caller's clock: included in every
    /// latency, and the caller's own fault.
    pub send_lag_ms: Quantiles,
    /// Requests that were still running, or not yet sent, when the replay was cancelled.
    pub unfinished: u64,
}

/// What every request of one replay shares.
struct Replay {
    client: Client,
    options: LoadOptions,
    clock: Arc<dyn Clock>,
    start: Time,
    progress: Arc<Progress>,
    sums: Mutex<Sums>,
}

struct Sums {
    collector: Collector,
    lag: Latencies,
}

/// Replays `trace` until its last request has ended or `cancel` is cancelled; `progress` can be read
/// meanwhile. `clock` has to run at the pace of the runtime's timers.
///
/// Must be called within a tokio runtime. Dropping the future cancels every request.
pub async fn run_load(
    trace: &Trace,
    options: LoadOptions,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    cancel: CancellationToken,
) -> Result<LoadReport, LoadError> {
    let client = Client::new(&options)?;
    let plan = plan(trace, &options);
    progress.begin(plan.arrivals.len() as u64, clock.now());
    let sums = Sums { collector: Collector::new(options.slo), lag: Latencies::default() };
    let start = clock.now();
    let replay =
        Arc::new(Replay { client, options, clock, start, progress, sums: Mutex::new(sums) });
    let mut running = JoinSet::new();
    let sending = send_all(&replay, &plan, &mut running);
    let whole = cancel.run_until_cancelled(sending).await.is_some();
    if whole {
        let drain = async { while running.join_next().await.is_some() {} };
        cancel.run_until_cancelled(drain).await;
    }
    running.shutdown().await;
    Ok(replay.report(&plan, whole))
}

/// The part of the trace that is sent, at its scaled rate, still in reported time.
fn plan(trace: &Trace, options: &LoadOptions) -> Trace {
    let mut plan = trace.clone().scaled(options.rate_scale);
    if let Some(duration) = options.duration {
        plan = plan.slice(Duration::ZERO, duration);
    }
    plan.take(options.max_requests.unwrap_or(usize::MAX))
}

async fn send_all(replay: &Arc<Replay>, plan: &Trace, running: &mut JoinSet<()>) {
    for (index, arrival) in plan.arrivals.iter().enumerate() {
        // Made before it is due, so that a long prompt does not send the next request late.
        let call = replay.call(index, arrival);
        replay.wait_until(replay.due(arrival.at)).await;
        running.spawn(Arc::clone(replay).send(call));
        while running.try_join_next().is_some() {}
    }
}

impl Replay {
    /// When, by the clock, something `at` after the start of the plan is due.
    fn due(&self, at: Duration) -> Time {
        self.start.after(at.div_f64(self.options.time_scale()))
    }

    async fn wait_until(&self, due: Time) {
        loop {
            let left = due.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    fn call(&self, index: usize, arrival: &Arrival) -> Call {
        Call {
            scheduled: arrival.at,
            due: self.due(arrival.at),
            request: self.client.request(
                index,
                &prompt_text(arrival, self.options.seed),
                arrival.output_tokens,
            ),
        }
    }

    async fn send(self: Arc<Self>, call: Call) {
        let sent = self.clock.now();
        let lag_ms = sent.ms_since(call.due);
        self.sums.lock().lag.record(lag_ms, 1);
        self.progress.sent();
        let (result, gaps_ms) = self.client.run(call, &*self.clock).await;
        let met = self.sums.lock().collector.record(&result, &gaps_ms);
        self.progress.done(&result, met, self.clock.now());
    }

    fn report(&self, plan: &Trace, whole: bool) -> LoadReport {
        let sums = self.sums.lock();
        // A replay that stopped early offered load only until then.
        let elapsed = self.clock.now().since(self.start).mul_f64(self.options.time_scale());
        let span = if whole { plan.span() } else { plan.span().min(elapsed) };
        let policy = sums.collector.report(&plan.name, span);
        LoadReport {
            send_lag_ms: sums.lag.quantiles(),
            unfinished: plan.arrivals.len() as u64 - policy.requests,
            policy,
        }
    }
}

#[cfg(test)]
mod tests;
