//! What a replay sends, how fast, and by what it is judged.

use std::time::Duration;

use http::{header::InvalidHeaderName, header::InvalidHeaderValue, uri::InvalidUri};
use types::{Api, Slo};

/// How a trace is replayed. Spans and objectives are in reported time: `time_scale` divides them on
/// the way out and multiplies what is measured on the way back.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Base of the endpoint: `http://host:port`, with or without a path before `/v1`.
    pub target: String,
    /// Model asked for.
    pub model: String,
    /// API spoken; answers are always streamed.
    pub api: Api,
    /// Times the recorded rate.
    pub rate_scale: f64,
    /// Times real time: for servers that simulate faster than they would run.
    pub time_scale: f64,
    /// Objective of every request: sent as `x-slo-ttft-ms` and `x-slo-tpot-ms`, and judged by.
    pub slo: Slo,
    /// Requests due after this are not sent.
    pub duration: Option<Duration>,
    /// Requests after so many are not sent.
    pub max_requests: Option<usize>,
    /// A request that takes longer, from when it is sent, has failed.
    pub timeout: Duration,
    /// Salt of the prompts: another seed shares no prefix with an earlier replay.
    pub seed: u64,
    /// More headers, such as an API key.
    pub headers: Vec<(String, String)>,
}

impl LoadOptions {
    /// Chat requests for `model` at `target`, at the recorded rate, with no objective and a timeout of
    /// ten minutes.
    pub fn new(target: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            model: model.into(),
            api: Api::Chat,
            rate_scale: 1.0,
            time_scale: 1.0,
            slo: Slo::default(),
            duration: None,
            max_requests: None,
            timeout: Duration::from_mins(10),
            seed: 0,
            headers: Vec::new(),
        }
    }

    /// Times real time, positive.
    pub(super) fn time_scale(&self) -> f64 {
        if self.time_scale.is_finite() && self.time_scale > 0.0 { self.time_scale } else { 1.0 }
    }
}

/// A replay cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The target is no URL.
    #[error("target `{target}` is not a URL")]
    Target {
        /// As given.
        target: String,
        /// Why.
        source: InvalidUri,
    },
    /// The target is a URL, but not one that plain HTTP reaches.
    #[error("target `{0}` is not of the form http://host:port")]
    Scheme(String),
    /// A header has a name that cannot be sent.
    #[error("`{name}` is not a header name")]
    HeaderName {
        /// As given.
        name: String,
        /// Why.
        source: InvalidHeaderName,
    },
    /// A header has a value that cannot be sent.
    #[error("the value of header `{name}` cannot be sent")]
    HeaderValue {
        /// Name of the header.
        name: String,
        /// Why.
        source: InvalidHeaderValue,
    },
}
