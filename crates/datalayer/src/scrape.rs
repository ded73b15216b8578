//! Asks every endpoint of a pool for its metrics page, again and again.
//!
//! Each endpoint has a task and a connection of its own, so a slow one delays no other; the tasks'
//! phases are spread over the interval, so they do not all ask at once. All of them run on one thread
//! of their own: they take no time from requests, never more than one core, and need no wake-up
//! across threads. An endpoint that does not answer keeps its last snapshot, whose age tells.

mod connection;
mod probe;
mod stats;

use std::{collections::HashMap, convert::Infallible, io, sync::Arc, thread, time::Duration};

use http::uri::PathAndQuery;
use serde::{Deserialize, Deserializer, de::Error as _};
use tokio::{
    runtime,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use types::Clock;

use crate::{EndpointState, Pool};
use probe::{Probe, Shared};
pub use stats::ScrapeStats;

/// Moments in an interval at which endpoints are asked.
const MOMENTS: f64 = 8.0;

/// Tuning of the scraper.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Time from one scrape of an endpoint to the next, ms; at least 1.
    pub interval_ms: u64,
    /// Longest time for one scrape, connecting included, ms.
    pub timeout_ms: u64,
    /// Path of the page. Unset, it is `/metrics`, or `/prometheus/metrics` for trtllm-serve; where no
    /// label names the engine and that path has no data, the others that engines use are tried.
    #[serde(deserialize_with = "read_path")]
    pub path: Option<PathAndQuery>,
    /// How the page is fetched.
    pub scheme: Scheme,
}

impl Default for Options {
    fn default() -> Self {
        Self { interval_ms: 50, timeout_ms: 1000, path: None, scheme: Scheme::Http }
    }
}

fn read_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathAndQuery>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let path = text.parse().ok().filter(|_| text.starts_with('/'));
    path.map(Some).ok_or_else(|| D::Error::custom(format_args!("`{text}` is not a path from `/`")))
}

/// How pages are fetched.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain HTTP/1.1.
    #[default]
    Http,
}

/// The scraper at work. It stops when its token is cancelled or this is dropped.
#[derive(Debug)]
pub struct Scraper {
    stats: Arc<ScrapeStats>,
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl Scraper {
    /// Starts to scrape the endpoints of `pool`, whichever they are at the time. Pages are stamped
    /// with `clock`; intervals and timeouts are the system's. Fails where no thread can be had.
    pub fn start(
        options: Options,
        pool: Arc<Pool>,
        clock: Arc<dyn Clock>,
        cancel: &CancellationToken,
    ) -> io::Result<Self> {
        let cancel = cancel.child_token();
        let stop = cancel.clone().drop_guard();
        let stats = Arc::<ScrapeStats>::default();
        let shared = Arc::new(Shared::new(options, clock, Arc::clone(&stats)));
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (at_end, ended) = oneshot::channel();
        thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            runtime.block_on(cancel.run_until_cancelled(follow(&pool, &shared)));
            // A name that is being resolved does not hold up the end.
            runtime.shutdown_background();
            drop(at_end);
        })?;
        Ok(Self { stats, stop, ended })
    }

    /// How many scrapes there were.
    pub fn stats(&self) -> Arc<ScrapeStats> {
        Arc::clone(&self.stats)
    }

    /// Stops, and returns when all has ended.
    pub async fn stop(self) {
        drop(self.stop);
        // Nothing is ever sent: the end of the thread closes the channel.
        let _closed = self.ended.await;
    }
}

/// Keeps one task per endpoint of `pool`.
async fn follow(pool: &Pool, shared: &Arc<Shared>) -> Infallible {
    let mut tasks = JoinSet::new();
    let mut probes: HashMap<u32, AbortHandle> = HashMap::new();
    let mut known: Option<Arc<Vec<Arc<EndpointState>>>> = None;
    let mut ticks = time::interval(shared.interval);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let present = pool.endpoints();
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &present)) {
            continue;
        }
        let mut gone = std::mem::take(&mut probes);
        for state in present.iter() {
            let probe = gone.remove(&state.slot).unwrap_or_else(|| {
                let probe = Probe::new(Arc::clone(state), Arc::clone(shared));
                tasks.spawn(probe.run(phase(state.slot, shared.interval)))
            });
            probes.insert(state.slot, probe);
        }
        for probe in gone.into_values() {
            probe.abort();
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "scraping of an endpoint ended badly");
            }
        }
        known = Some(present);
    }
}

/// When in the interval the endpoint in `slot` is asked. Multiples of the golden ratio spread any run
/// of numbers evenly; a few endpoints share a moment, which wakes the thread less often.
fn phase(slot: u32, interval: Duration) -> Duration {
    let share = (f64::from(slot) * 0.618_033_988_749_895).fract();
    interval.mul_f64((share * MOMENTS).floor() / MOMENTS)
}
