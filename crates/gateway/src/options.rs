//! What can be tuned.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::Slo;

/// Tuning of the gateway.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Longest request body, in bytes; a longer one is answered with 413. Default: 2 MiB.
    pub max_body_bytes: usize,
    /// Longest wait for a connection to an endpoint, in milliseconds. Default: 2,000.
    pub connect_timeout_ms: u64,
    /// Other endpoints tried when one cannot be reached. Default: 2.
    pub max_retries: u32,
    /// How long an idle connection to an endpoint is kept, in milliseconds. Default: 4,000, which
    /// is less than the 5,000 after which common model servers close theirs.
    pub upstream_idle_ms: u64,
    /// How long a caller's connection may take to send the head of its next request, in
    /// milliseconds. Default: 75,000.
    pub head_timeout_ms: u64,
    /// Longest wait for one endpoint's list of models, in milliseconds. Default: 2,000.
    pub models_timeout_ms: u64,
    /// How long answers under way may still take once the gateway stops, in milliseconds.
    /// Default: 30,000.
    pub drain_timeout_ms: u64,
    /// What is promised to a caller whose request carries no objective of its own, each ceiling by
    /// itself. Default: nothing.
    pub default_slo: Slo,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_body_bytes: 2 * 1024 * 1024,
            connect_timeout_ms: 2_000,
            max_retries: 2,
            upstream_idle_ms: 4_000,
            head_timeout_ms: 75_000,
            models_timeout_ms: 2_000,
            drain_timeout_ms: 30_000,
            default_slo: Slo::default(),
        }
    }
}

impl Options {
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) fn upstream_idle(&self) -> Duration {
        Duration::from_millis(self.upstream_idle_ms)
    }

    pub(crate) fn head_timeout(&self) -> Duration {
        Duration::from_millis(self.head_timeout_ms)
    }

    pub(crate) fn models_timeout(&self) -> Duration {
        Duration::from_millis(self.models_timeout_ms)
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }
}
