//! What a run came to: latencies, attainment and goodput per policy, from results taken one by one.
//!
//! Nothing here knows how a request was served: over HTTP or in virtual time.

mod collector;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use collector::{Collector, Failure, Latencies, RequestResult};

/// Policies compared on the same workload.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// One entry per policy, in the order they ran.
    pub policies: Vec<PolicyReport>,
    /// How far predictions were off, by what was predicted and how the error is measured
    /// (`ttft_mape_ratio`); empty where nothing predicts.
    #[serde(default)]
    pub model_error: BTreeMap<String, f64>,
}

/// What one policy came to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Its name.
    pub name: String,
    /// Requests that ended, in whichever way.
    pub requests: u64,
    /// Share of them that met the objective, 0..=1; one that failed has missed it. Zero if none ended.
    pub attainment: f64,
    /// Requests offered per second, over the span of arrivals.
    pub offered_rps: f64,
    /// Those that met the objective per second, over the span of arrivals.
    pub goodput_rps: f64,
    /// Output tokens per second, until the last request ended.
    pub throughput_tokens_per_s: f64,
    /// Time to first token, of requests that succeeded.
    pub ttft_ms: Quantiles,
    /// Gaps between tokens, of requests that succeeded.
    pub itl_ms: Quantiles,
    /// Time to the end of the answer, of requests that succeeded.
    pub e2e_ms: Quantiles,
    /// Failed requests by kind.
    pub errors: BTreeMap<String, u64>,
    /// Which part of the requests each endpoint served, 0..=1, of those that tell.
    pub share: BTreeMap<String, f64>,
}

/// Quantiles of a latency, in milliseconds; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// Exceeded by one in ten.
    pub p90: Option<f64>,
    /// Exceeded by one in a hundred.
    pub p99: Option<f64>,
}
