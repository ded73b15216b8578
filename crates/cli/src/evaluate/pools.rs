//! Rows made by simulating a pool in virtual time, in the form in which a router records them.
//!
//! Requests are those of the Azure 2023 conversation slice that comes with the program, repeated, at the
//! rate that each pool names, routed by the weighted scorers.

use std::{sync::Arc, time::Duration};

use clap::ValueEnum;
use parking_lot::Mutex;
use predict::Options;
use router::{Recorded, Recorder};
use schedule::Policy;
use sim::{
    Arrival, BlockSource, Bundled, Change, Chooser, Class, Member, Profile, Scenario, Timing,
    Trace, TraceOptions, simulate,
};
use types::Slo;

use crate::rows;

/// Model of every engine.
const MODEL: &str = "llama-3.1-8b";
/// Time between two scrapes of an engine.
const SCRAPE_EVERY: Duration = Duration::from_millis(50);
/// Factor on every step time after the change of a drifting pool.
const SLOWDOWN: f64 = 1.6;

const H100: &str = "H100-SXM";
const A100: &str = "A100-SXM-80";
const L40S: &str = "L40S";

/// A pool to simulate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum PoolName {
    /// Two H100, two A100 and two L40S, busy
    Mixed,
    /// Four H100, busy
    Homogeneous,
    /// The mixed pool; half way all engines become 1.6 times as slow
    Drift,
    /// Two H100 under a load that rises beyond what they can do
    Saturated,
}

/// Requests per second over a simulation: rising evenly from the first to the second.
#[derive(Clone, Copy, Debug)]
struct Rate(f64, f64);

impl PoolName {
    fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Homogeneous => "homogeneous",
            Self::Drift => "drift",
            Self::Saturated => "saturated",
        }
    }

    fn gpus(self) -> &'static [&'static str] {
        match self {
            Self::Mixed | Self::Drift => &[H100, H100, A100, A100, L40S, L40S],
            Self::Homogeneous => &[H100; 4],
            Self::Saturated => &[H100; 2],
        }
    }

    fn rate(self) -> Rate {
        match self {
            Self::Mixed => Rate(36.0, 36.0),
            Self::Homogeneous => Rate(60.0, 60.0),
            Self::Drift => Rate(24.0, 24.0),
            Self::Saturated => Rate(10.0, 70.0),
        }
    }

    fn changes(self) -> bool {
        self == Self::Drift
    }
}

/// Rows of a simulation.
#[derive(Debug)]
pub(super) struct Simulated {
    /// What was simulated.
    pub(super) name: String,
    /// The rows, one JSON object a line, in the order in which requests ended.
    pub(super) lines: Vec<u8>,
    /// Instant of the change, if the pool has one.
    pub(super) change_ms: Option<f64>,
}

/// Keeps rows as lines.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<u8>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        // Writing to memory cannot fail.
        let _ = rows::write(&mut self.0.lock(), row, 0.0);
    }
}

/// Simulates `requests` requests to `pool`.
pub(super) fn simulate_rows(
    pool: PoolName,
    requests: usize,
    seed: u64,
) -> anyhow::Result<Simulated> {
    let trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default())?;
    let trace = paced(repeated(trace, requests), pool.rate());
    let change = pool.changes().then(|| trace.span() / 2);
    let kept = Arc::new(Kept::default());
    let schedule = schedule::Options { policy: Policy::Heuristic, ..schedule::Options::default() };
    // What the router learns itself decides nothing here.
    let learner = Options {
        regressors: vec!["mean".to_owned()],
        experts: Vec::new(),
        batch: Vec::new(),
        ..Options::default()
    };
    let options = router::Options { schedule, learner, seed, ..router::Options::default() };
    let slowdown = Change::Slowdown { member: None, factor: SLOWDOWN };
    let scenario = Scenario {
        timing: Timing { scrape_every: SCRAPE_EVERY, ..Timing::default() },
        events: change.map(|at| (at, slowdown)).into_iter().collect(),
        recorder: Some(Arc::clone(&kept) as Arc<dyn Recorder>),
        ..Scenario::new(Chooser::Router(options), vec![Class::only(Slo::default())], MODEL)
    };
    simulate(pool.name(), &fleet(pool, seed)?, &trace, &scenario)?;
    let Rate(from, to) = pool.rate();
    let rate = if (from - to).abs() < f64::EPSILON {
        format!("{from} requests per second")
    } else {
        format!("{from} to {to} requests per second")
    };
    let lines = std::mem::take(&mut *kept.0.lock());
    Ok(Simulated {
        name: format!("simulated {} pool, {} at {rate}", pool.name(), trace.name),
        lines,
        change_ms: change.map(|at| at.as_secs_f64() * 1e3),
    })
}

fn fleet(pool: PoolName, seed: u64) -> anyhow::Result<Vec<Member>> {
    let member = |(at, gpu): (u64, &&str)| {
        let profile = Profile::named(gpu, MODEL)?;
        let options = sim::Options { seed: seed.wrapping_add(at), ..sim::Options::new(&profile) };
        Ok(Member::new(format!("{}-{at}", gpu.to_lowercase()), profile, options))
    };
    (0..).zip(pool.gpus()).map(member).collect()
}

/// `count` requests: the trace again and again, its prompts new every time.
fn repeated(mut trace: Trace, count: usize) -> Trace {
    let whole = trace.arrivals.len();
    let gap = trace.span() / u32::try_from(whole).unwrap_or(u32::MAX).max(1);
    let turn = trace.span() + gap;
    let arrival = |at: usize| {
        let (lap, first) = (at / whole, &trace.arrivals[at % whole]);
        let blocks = match &first.blocks {
            BlockSource::Unique(number) => BlockSource::Unique(number + (lap * whole) as u64),
            shared @ (BlockSource::Shared(_) | BlockSource::Parts(_)) => shared.clone(),
        };
        let lap = u32::try_from(lap).unwrap_or(u32::MAX);
        Arrival { at: first.at + turn * lap, blocks, ..first.clone() }
    };
    trace.arrivals = (0..count).map(arrival).collect();
    trace
}

/// The trace at `rate`: with `λ(t) = a + b·t` requests per second, the one that would be the `u`-th at an
/// even rate arrives when `a·t + b·t²/2 = u`. Its bursts stay.
fn paced(mut trace: Trace, Rate(from, to): Rate) -> Trace {
    let count = trace.arrivals.len() as f64;
    let even = count / trace.span().as_secs_f64().max(1e-9);
    let growth = (to - from) * (to + from) / 2.0 / count.max(1.0);
    for arrival in &mut trace.arrivals {
        let u = arrival.at.as_secs_f64() * even;
        let at = 2.0 * u / (from + (from * from + 2.0 * growth * u).max(0.0).sqrt());
        arrival.at = Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX);
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(count: usize) -> Trace {
        let azure = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default());
        repeated(azure.unwrap(), count)
    }

    #[test]
    fn a_repeated_trace_is_in_order_and_shares_no_prompt() {
        let trace = trace(4_000);
        assert!(trace.arrivals.is_sorted_by_key(|arrival| arrival.at));
        let prompts: std::collections::HashSet<_> =
            trace.arrivals.iter().map(|arrival| format!("{:?}", arrival.blocks)).collect();
        assert_eq!(prompts.len(), 4_000);
    }

    #[test]
    fn a_steady_rate_is_kept_and_a_ramp_rises() {
        let per_s = |trace: &Trace| trace.arrivals.len() as f64 / trace.span().as_secs_f64();
        assert!((per_s(&paced(trace(3_000), Rate(20.0, 20.0))) - 20.0).abs() < 0.1);
        let ramp = paced(trace(3_000), Rate(10.0, 50.0));
        assert!((per_s(&ramp) - 30.0).abs() < 0.3, "{}", per_s(&ramp));
        let half = ramp.span() / 2;
        let early = ramp.arrivals.iter().filter(|arrival| arrival.at < half).count();
        assert!((900..1_100).contains(&early), "{early}");
    }
}
