//! The scenario file: a fleet, a workload, classes of callers, and the policies to compare on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::written::{Named, PolicySpec, Seeds};
use crate::workload::Workload;

/// A scenario as its author wrote it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Scenario of the policy laboratory (slackline simulate)")]
pub struct Spec {
    /// Name in reports.
    pub name: String,
    /// What it is about, in a sentence.
    #[serde(default)]
    pub about: String,
    /// Model that every request asks for, such as `llama-3.1-8b`.
    pub model: String,
    /// The endpoints, in groups of equal ones. Either this or `fleets`.
    #[serde(default)]
    pub fleet: Vec<Group>,
    /// Fleets by name, of which one is chosen for a run: the first, unless told.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Vec<Group>>")]
    pub fleets: Named<Vec<Group>>,
    /// Classes of callers; none is one class without an objective.
    #[serde(default)]
    pub classes: Vec<ClassSpec>,
    /// What arrives.
    pub workload: Workload,
    /// Delays between the router and the engines.
    #[serde(default)]
    pub timing: TimingSpec,
    /// What happens to the engines.
    #[serde(default)]
    pub events: Vec<EventSpec>,
    /// Policies to compare: names of those that come with the program, or entries.
    #[serde(default)]
    pub policies: Vec<PolicySpec>,
    /// Seeds of the workload, the engines and the router: a list, or how many (3 means 1, 2 and 3).
    #[serde(default)]
    pub seeds: Seeds,
    /// Seconds during which requests arrive.
    pub horizon_s: f64,
    /// Requests that arrive in the first so many seconds are served but not judged.
    #[serde(default)]
    pub warm_up_s: f64,
    /// Factors on the rate of the workload at which every policy runs.
    #[serde(default = "one_load")]
    pub loads: Vec<f64>,
    /// The target that the search for the largest rate holds.
    #[serde(default)]
    pub goodput: GoodputSpec,
    /// Fleets of which the cheapest that holds the target is searched.
    #[serde(default)]
    pub what_if: Option<WhatIfSpec>,
}

fn one_load() -> Vec<f64> {
    vec![1.0]
}

fn one() -> f64 {
    1.0
}

/// Endpoints that are set up alike.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Accelerator class, such as `H100` or `A100-SXM-80`.
    pub gpu: String,
    /// How many endpoints.
    pub count: usize,
    /// Model whose step times they have; the scenario's by default.
    #[serde(default)]
    pub model: Option<String>,
    /// Format of the weights, such as `bf16` or `fp8`.
    #[serde(default)]
    pub weights: Option<String>,
    /// GPUs per endpoint (tensor parallelism).
    #[serde(default)]
    pub tp: Option<u32>,
    /// What they do of a request.
    #[serde(default)]
    pub role: RoleSpec,
    /// Price of one endpoint per hour.
    #[serde(default)]
    pub price_per_hour: Option<f64>,
    /// Seconds from the start of an endpoint that joins later to its readiness.
    #[serde(default)]
    pub startup_s: f64,
    /// Second at which they are started; 0 is ready from the start.
    #[serde(default)]
    pub joins_at_s: f64,
    /// What the endpoints are called, followed by a number; the accelerator class by default.
    #[serde(default)]
    pub name: Option<String>,
    /// Sequences that may run at once.
    #[serde(default)]
    pub max_num_seqs: Option<u32>,
    /// Tokens that one step may compute.
    #[serde(default)]
    pub max_num_batched_tokens: Option<u32>,
    /// KV blocks of 16 tokens.
    #[serde(default)]
    pub kv_blocks: Option<u32>,
    /// Factor on every step time: 2 is half the speed of the profile.
    #[serde(default = "one")]
    pub slowdown: f64,
}

/// What an endpoint does of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum RoleSpec {
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Both.
    #[default]
    Both,
}

/// A class of callers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassSpec {
    /// Name in reports.
    pub name: String,
    /// Ceiling on TTFT in milliseconds.
    #[serde(default)]
    pub ttft_ms: Option<f32>,
    /// Ceiling on the mean ITL of a request in milliseconds.
    #[serde(default)]
    pub itl_ms: Option<f32>,
    /// Part of the requests that are of this class; those of all classes add up to 1.
    pub share: f64,
    /// What a miss of it weighs.
    #[serde(default = "one_weight")]
    pub weight: f32,
    /// Tenant that its requests name.
    #[serde(default)]
    pub tenant: Option<String>,
}

fn one_weight() -> f32 {
    1.0
}

/// Delays between the router and the engines.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct TimingSpec {
    /// Between two scrapes of an engine.
    pub scrape_interval_ms: f64,
    /// From the reading of an engine's gauges to their arrival.
    pub scrape_delay_ms: f64,
    /// One way between router and engine.
    pub network_ms: f64,
    /// Further delay of an outcome on its way to the learner.
    pub label_delay_ms: f64,
}

impl Default for TimingSpec {
    fn default() -> Self {
        Self {
            scrape_interval_ms: 50.0,
            scrape_delay_ms: 0.0,
            network_ms: 0.0,
            label_delay_ms: 0.0,
        }
    }
}

/// Something that happens to the engines: one of `slow`, `fail` and `recover`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// Second at which it happens.
    pub at_s: f64,
    /// Steps take longer from then on.
    #[serde(default)]
    pub slow: Option<SlowSpec>,
    /// An engine dies, with all that it runs and holds.
    #[serde(default)]
    pub fail: Option<TargetSpec>,
    /// It comes back, empty.
    #[serde(default)]
    pub recover: Option<TargetSpec>,
}

/// A slow-down.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowSpec {
    /// Which endpoint; all by default.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Factor on every step time.
    pub factor: f64,
}

/// One endpoint of the fleet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Its name.
    pub endpoint: String,
}

/// The target of the goodput search.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct GoodputSpec {
    /// Attainment that must hold, above 0 and at most 1.
    pub target: f64,
    /// Whose attainment.
    pub judge: Judge,
    /// Width of the last bracket, relative to the rate.
    pub within: f64,
}

impl Default for GoodputSpec {
    fn default() -> Self {
        Self { target: 0.9, judge: Judge::Overall, within: 0.025 }
    }
}

/// Whose attainment must hold.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// That of all requests.
    #[default]
    Overall,
    /// That of each class.
    EachClass,
}

/// Fleets to try: either `fleets` or `counts`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIfSpec {
    /// The fleets.
    #[serde(default)]
    pub fleets: Vec<Vec<Group>>,
    /// By the accelerator class (or name) of a group of the scenario's fleet: the least and the largest
    /// count that it may have. Groups that are not named stay.
    #[serde(default)]
    pub counts: BTreeMap<String, (usize, usize)>,
    /// The policy that routes; the first of the scenario by default.
    #[serde(default)]
    pub policy: Option<String>,
}
