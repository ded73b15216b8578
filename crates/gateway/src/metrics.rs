//! What the gateway counts.

use http::StatusCode;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The families of the gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Requests by status code; 499 stands for a caller who left before there was an answer.
    pub(crate) requests: IntCounterVec,
    /// Attempts made because an earlier endpoint could not be reached.
    pub(crate) retries: IntCounter,
    /// Answers being relayed.
    pub(crate) in_flight: IntGauge,
    /// Callers who left before their answer was complete.
    pub(crate) disconnects: IntCounter,
    /// Answers that an endpoint broke off.
    pub(crate) failures: IntCounter,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "slackline_gateway_requests_total",
                    "Requests by status code; 499 is a caller who left before there was an answer.",
                ),
                &["code"],
            )?,
            retries: IntCounter::new(
                "slackline_gateway_upstream_retries_total",
                "Attempts made because an earlier endpoint could not be reached.",
            )?,
            in_flight: IntGauge::new(
                "slackline_gateway_streams_in_flight",
                "Answers being relayed to callers.",
            )?,
            disconnects: IntCounter::new(
                "slackline_gateway_client_disconnects_total",
                "Callers who left before their answer was complete.",
            )?,
            failures: IntCounter::new(
                "slackline_gateway_stream_failures_total",
                "Answers that an endpoint broke off before they were complete.",
            )?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.retries.clone()))?;
        registry.register(Box::new(metrics.in_flight.clone()))?;
        registry.register(Box::new(metrics.disconnects.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        Ok(metrics)
    }

    /// Counts a request that was answered with `status`.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.requests.with_label_values(&[status.as_str()]).inc();
    }

    /// Counts a caller who left before there was an answer.
    pub(crate) fn left(&self) {
        self.requests.with_label_values(&["499"]).inc();
        self.disconnects.inc();
    }
}
