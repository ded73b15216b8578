//! What the laboratory found: one entry per policy, rate and seed, plain data, the same bytes for the same
//! scenario on every machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::Quantiles;

/// Everything that one scenario came to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LabReport {
    /// Version of this shape.
    pub version: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// What it is about, in its author's words.
    pub about: String,
    /// The fleet in words, such as `4 H100-SXM llama-3.1-8b, 4 L40S llama-3.1-8b`.
    pub fleet: String,
    /// The workload in words.
    pub workload: String,
    /// Classes of callers, in the scenario's order.
    pub classes: Vec<ClassAbout>,
    /// Attainment that the goodput search holds, 0..=1.
    pub target: f64,
    /// What is not modelled or only estimated here.
    pub caveats: Vec<String>,
    /// Policies in the scenario's order.
    pub policies: Vec<PolicyAbout>,
    /// One entry per policy, rate and seed, in that order.
    pub runs: Vec<Run>,
    /// Goodput found by search, per policy; empty where none was asked for.
    pub goodput: Vec<Goodput>,
    /// Fleets that were tried, cheapest first; empty where none was asked for.
    pub what_if: Vec<FleetTried>,
}

/// A class of callers, for readers of a report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassAbout {
    /// Its name.
    pub name: String,
    /// Ceiling on TTFT in milliseconds, if any.
    pub ttft_ms: Option<f32>,
    /// Ceiling on mean ITL in milliseconds, if any.
    pub itl_ms: Option<f32>,
    /// What a miss of it weighs.
    pub weight: f32,
}

/// A policy, for readers of a report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PolicyAbout {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Whether it knows what no router can know.
    pub oracle: bool,
}

/// One policy at one rate with one seed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Name of the policy.
    pub policy: String,
    /// Seed of the workload, the engines and the router.
    pub seed: u64,
    /// Requests offered per second, over the span of arrivals.
    pub offered_rps: f64,
    /// Requests that ended, in whichever way.
    pub requests: u64,
    /// Share of them that met their objective, 0..=1.
    pub attainment: f64,
    /// The same with each request counted by the weight of its class.
    pub weighted_attainment: f64,
    /// Requests per second that met their objective, over the span of arrivals.
    pub goodput_rps: f64,
    /// Time to first token.
    pub ttft_ms: Quantiles,
    /// Gaps between tokens.
    pub itl_ms: Quantiles,
    /// Time to the end of the answer.
    pub e2e_ms: Quantiles,
    /// Mean, over the worst tenth of the requests, of the larger of TTFT and mean ITL as a multiple of its
    /// objective; `None` where nothing was promised.
    pub worst_tenth_ratio: Option<f64>,
    /// By class of callers.
    pub by_class: BTreeMap<String, ClassRun>,
    /// Cumulative distribution of TTFT: (ms, share at or below), at fixed shares.
    pub ttft_cdf: Vec<(f64, f64)>,
    /// The same of mean ITL per request.
    pub itl_cdf: Vec<(f64, f64)>,
    /// Share of prompt tokens found in prefix caches, 0..=1.
    pub hit_ratio: f64,
    /// Share of the time that engines of each accelerator class ran steps, 0..=1.
    pub utilization: BTreeMap<String, f64>,
    /// Part of the requests that each endpoint served, 0..=1.
    pub share: BTreeMap<String, f64>,
    /// Largest share of the uncached prompt and output tokens that one endpoint had, over the mean of its
    /// accelerator class; 1 is even.
    pub hot_spot_ratio: f64,
    /// Price of the fleet for the span of the run, in the scenario's currency.
    pub cost: f64,
    /// Price per million output tokens of requests that met their objective; `None` without price or tokens.
    pub cost_per_met_mtoken: Option<f64>,
    /// Failed requests by kind.
    pub errors: BTreeMap<String, u64>,
    /// Decisions by rung.
    pub rungs: BTreeMap<String, u64>,
    /// Sampled requests: TTFT predicted when decided and what came, both in milliseconds.
    pub predicted_ttft_ms: Vec<(f32, f32)>,
    /// The same of mean ITL.
    pub predicted_itl_ms: Vec<(f32, f32)>,
    /// Error of the router's predictions at the end (`ttft_mape_ratio`, ...), as in the report of a load test.
    pub model_error: BTreeMap<String, f64>,
    /// Engine steps run.
    pub steps: u64,
}

/// One class of callers in one run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClassRun {
    /// Requests of it that ended.
    pub requests: u64,
    /// Share of them that met their objective, 0..=1.
    pub attainment: f64,
    /// Time to first token.
    pub ttft_ms: Quantiles,
    /// Mean gap between tokens, per request.
    pub itl_ms: Quantiles,
    /// As [`Run::worst_tenth_ratio`].
    pub worst_tenth_ratio: Option<f64>,
}

/// The largest rate at which a policy holds the target.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Goodput {
    /// Name of the policy.
    pub policy: String,
    /// Requests per second that met their objective at the largest rate that holds, mean over seeds.
    pub goodput_rps: f64,
    /// That rate, requests per second, mean over seeds.
    pub rate_rps: f64,
    /// The rate found with each seed, in the order of the seeds.
    pub by_seed: Vec<f64>,
    /// Least and largest rate that the mean may be, 95 % confidence over seeds (and the width of the last
    /// bracket); equal to the ends of the bracket with one seed.
    pub interval_rps: (f64, f64),
    /// Attainment of the worst class at that rate, mean over seeds.
    pub worst_class_attainment: f64,
    /// As [`Run::worst_tenth_ratio`] at that rate, mean over seeds.
    pub worst_tenth_ratio: Option<f64>,
    /// Every rate that was tried, with the attainment found: (seed, rate, attainment).
    pub tried: Vec<(u64, f64, f64)>,
}

/// One fleet of a what-if search.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FleetTried {
    /// The fleet in words.
    pub fleet: String,
    /// Its price per hour.
    pub price_per_hour: f64,
    /// Policy that routed.
    pub policy: String,
    /// Attainment, mean over seeds.
    pub attainment: f64,
    /// Whether it holds the target for every seed.
    pub holds: bool,
}
