//! How scheduling is configured.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::misses::MissOptions;

/// What decides.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Least expected added misses, by learned predictions; the rest of the ladder below it.
    #[default]
    Learned,
    /// The weighted scorers of the profile.
    Heuristic,
    /// Fewest requests in flight, by our own count.
    LeastRequests,
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
}

/// A plugin by name, with its options.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// Name in the registry.
    #[serde(rename = "type")]
    pub name: String,
    /// Its own options.
    #[serde(default)]
    pub parameters: Value,
}

impl Plugin {
    /// The plugin called `name`, with its defaults.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), parameters: Value::Null }
    }
}

/// A scorer by name, with its weight and options.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedPlugin {
    /// Name in the registry.
    #[serde(rename = "type")]
    pub name: String,
    /// What its score counts in the sum.
    #[serde(default = "one")]
    pub weight: f32,
    /// Its own options.
    #[serde(default)]
    pub parameters: Value,
}

fn one() -> f32 {
    1.0
}

/// Filters, weighted scorers and a picker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileOptions {
    /// Applied in order, whatever the policy.
    pub filters: Vec<Plugin>,
    /// Weighted and summed.
    pub scorers: Vec<WeightedPlugin>,
    /// Decides by the sum.
    pub picker: Plugin,
}

impl Default for ProfileOptions {
    /// The weights of llm-d's optimized baseline: queue 2, KV 2, prefix 3, no-hit-LRU 2.
    fn default() -> Self {
        let scorer = |name: &str, weight| WeightedPlugin {
            name: name.to_owned(),
            weight,
            parameters: Value::Null,
        };
        Self {
            filters: vec![Plugin::named("decode")],
            scorers: vec![
                scorer("queue", 2.0),
                scorer("kv-cache-utilization", 2.0),
                scorer("prefix-cache", 3.0),
                scorer("no-hit-lru", 2.0),
            ],
            picker: Plugin::named("max-score"),
        }
    }
}

/// How scheduling is configured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// What decides.
    pub policy: Policy,
    /// What the heuristic policy weighs, and the learned one falls back to.
    pub profile: ProfileOptions,
    /// Tuning of the learned pick.
    pub learned: MissOptions,
}
