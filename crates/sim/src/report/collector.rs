//! Takes the result of one request after the other and sums them up in bounded memory.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use hdrhistogram::Histogram;
use types::Slo;

use super::{PolicyReport, Quantiles};

/// Longest latency told apart, in microseconds: two hours.
const MAX_US: u64 = 7_200_000_000;
/// Quantiles are exact to three digits.
const DIGITS: u8 = 3;
/// Endpoints counted by name; more would be a caller that sends random names.
const MAX_ENDPOINTS: usize = 4_096;

/// How one request ended. Times are as the caller would see them in real time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestResult {
    /// When it was due, from the start of the run.
    pub scheduled: Duration,
    /// From then to the first token; `None` if there was none.
    pub ttft_ms: Option<f32>,
    /// Mean gap between its tokens; `None` for fewer than two.
    pub itl_ms: Option<f32>,
    /// From when it was due to its end.
    pub e2e_ms: f32,
    /// Who served it, where that is known.
    pub endpoint: Option<Arc<str>>,
    /// Why it failed; `None` if it did not.
    pub failure: Option<Failure>,
    /// Tokens generated.
    pub output_tokens: u32,
}

impl RequestResult {
    /// Whether it succeeded and kept `slo`. Without a first token it did not.
    pub fn met(&self, slo: Slo) -> bool {
        self.failure.is_none() && self.ttft_ms.is_some_and(|ttft| slo.is_met(ttft, self.itl_ms))
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Failure {
    /// No connection, or it broke before the response began.
    Connect,
    /// A status other than 200.
    Status(u16),
    /// The response ended before the end marker.
    Truncated,
    /// The stream carried an error instead of a token.
    ErrorEvent,
    /// The stream is not what the API promises.
    Malformed,
    /// It took longer than the caller waits.
    Timeout,
    /// The router refused it.
    Shed,
    /// It could never fit the endpoint.
    Rejected,
}

impl Failure {
    /// The word used in reports, such as `status-503`.
    pub fn label(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Connect => "connect",
            Self::Status(code) => return Cow::Owned(format!("status-{code}")),
            Self::Truncated => "truncated",
            Self::ErrorEvent => "error-event",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
            Self::Shed => "shed",
            Self::Rejected => "rejected",
        })
    }
}

/// A distribution of latencies in bounded memory.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// `None` only if the bounds above were no bounds.
    histogram: Option<Histogram<u64>>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histogram: Histogram::new_with_bounds(1, MAX_US, DIGITS).ok() }
    }
}

impl Latencies {
    /// Adds `count` times `ms`; more than two hours counts as two hours.
    pub fn record(&mut self, ms: f32, count: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n((f64::from(ms) * 1e3).round() as u64, count);
        }
    }

    /// Adds all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        if let (Some(histogram), Some(other)) = (&mut self.histogram, &other.histogram) {
            // Equal bounds always fit.
            let _ = histogram.add(other);
        }
    }

    /// What a `share` of them, 0..=1, does not exceed, in milliseconds to three digits; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        let value = histogram.value_at_quantile(share);
        Some(histogram.median_equivalent(value) as f64 / 1e3)
    }

    /// Its quantiles, to three digits.
    pub fn quantiles(&self) -> Quantiles {
        let at = |share| self.quantile(share);
        Quantiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

/// Sums up the results of one policy.
#[derive(Clone, Debug)]
pub struct Collector {
    slo: Slo,
    requests: u64,
    met: u64,
    output_tokens: u64,
    last_end: Duration,
    ttft: Latencies,
    itl: Latencies,
    e2e: Latencies,
    errors: BTreeMap<Failure, u64>,
    share: BTreeMap<Arc<str>, u64>,
}

impl Collector {
    /// An empty one that judges by `slo`.
    pub fn new(slo: Slo) -> Self {
        Self {
            slo,
            requests: 0,
            met: 0,
            output_tokens: 0,
            last_end: Duration::ZERO,
            ttft: Latencies::default(),
            itl: Latencies::default(),
            e2e: Latencies::default(),
            errors: BTreeMap::new(),
            share: BTreeMap::new(),
        }
    }

    /// Adds one result, with the gaps between its tokens in milliseconds; without them its mean
    /// stands for every gap. The latencies of a failed request are not counted.
    ///
    /// Returns whether it met the objective.
    pub fn record(&mut self, result: &RequestResult, gaps_ms: &[f32]) -> bool {
        self.record_for(result, gaps_ms, self.slo)
    }

    /// As [`Self::record`], judged by an objective of its own.
    pub fn record_for(&mut self, result: &RequestResult, gaps_ms: &[f32], slo: Slo) -> bool {
        self.requests += 1;
        self.output_tokens += u64::from(result.output_tokens);
        let e2e = Duration::try_from_secs_f32(result.e2e_ms / 1e3).unwrap_or_default();
        self.last_end = self.last_end.max(result.scheduled.saturating_add(e2e));
        if let Some(endpoint) = &result.endpoint {
            self.count_endpoint(endpoint);
        }
        if let Some(failure) = result.failure {
            *self.errors.entry(failure).or_default() += 1;
            return false;
        }
        if let Some(ttft_ms) = result.ttft_ms {
            self.ttft.record(ttft_ms, 1);
        }
        for gap_ms in gaps_ms {
            self.itl.record(*gap_ms, 1);
        }
        if let (true, Some(itl_ms)) = (gaps_ms.is_empty(), result.itl_ms) {
            self.itl.record(itl_ms, u64::from(result.output_tokens.saturating_sub(1)));
        }
        self.e2e.record(result.e2e_ms, 1);
        let met = result.met(slo);
        self.met += u64::from(met);
        met
    }

    fn count_endpoint(&mut self, endpoint: &Arc<str>) {
        if let Some(count) = self.share.get_mut(endpoint) {
            *count += 1;
        } else if self.share.len() < MAX_ENDPOINTS {
            self.share.insert(Arc::clone(endpoint), 1);
        }
    }

    /// What came of the policy called `name`, whose requests were due within `span`.
    pub fn report(&self, name: &str, span: Duration) -> PolicyReport {
        let rate = |count: u64, time: Duration| {
            if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
        };
        let served = self.share.values().sum::<u64>().max(1) as f64;
        PolicyReport {
            name: name.to_owned(),
            requests: self.requests,
            attainment: self.met as f64 / self.requests.max(1) as f64,
            offered_rps: rate(self.requests, span),
            goodput_rps: rate(self.met, span),
            throughput_tokens_per_s: rate(self.output_tokens, span.max(self.last_end)),
            ttft_ms: self.ttft.quantiles(),
            itl_ms: self.itl.quantiles(),
            e2e_ms: self.e2e.quantiles(),
            errors: self.errors.iter().map(|(e, n)| (e.label().into_owned(), *n)).collect(),
            share: self.share.iter().map(|(e, n)| (e.to_string(), *n as f64 / served)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use types::Millis;

    use super::*;
    use crate::report::Report;

    fn slo() -> Slo {
        Slo { ttft: Millis::new(200.0), itl: Millis::new(20.0) }
    }

    fn result(at_s: u64, ttft_ms: f32, itl_ms: f32, endpoint: &str) -> RequestResult {
        RequestResult {
            scheduled: Duration::from_secs(at_s),
            ttft_ms: Some(ttft_ms),
            itl_ms: Some(itl_ms),
            e2e_ms: ttft_ms + 10.0 * itl_ms,
            endpoint: Some(endpoint.into()),
            failure: None,
            output_tokens: 11,
        }
    }

    fn four() -> PolicyReport {
        let mut collector = Collector::new(slo());
        assert!(collector.record(&result(0, 100.0, 10.0, "a"), &[]));
        assert!(!collector.record(&result(1, 300.0, 10.0, "a"), &[]));
        assert!(!collector.record(&result(2, 100.0, 30.0, "a"), &[]));
        let failed = RequestResult {
            failure: Some(Failure::Status(503)),
            output_tokens: 0,
            ..result(9, 1.0, 1.0, "b")
        };
        assert!(!collector.record(&failed, &[]));
        collector.report("p", Duration::from_secs(8))
    }

    fn near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found / expected - 1.0).abs() < 2e-3, "{found}, not {expected}");
    }

    #[test]
    fn counts_and_rates_add_up() {
        let report = four();
        assert_eq!(report.requests, 4);
        assert!((report.attainment - 0.25).abs() < 1e-9);
        assert!((report.goodput_rps - 0.125).abs() < 1e-9);
        assert!((report.offered_rps - 0.5).abs() < 1e-9);
        // 33 tokens until the failed request ended at 9.011 s.
        assert!((report.throughput_tokens_per_s - 33.0 / 9.011).abs() < 1e-3);
        assert_eq!(report.errors, [("status-503".to_owned(), 1)].into());
        assert_eq!(report.share, [("a".to_owned(), 0.75), ("b".to_owned(), 0.25)].into());
    }

    #[test]
    fn a_failed_request_has_no_latencies() {
        let report = four();
        near(report.ttft_ms.p50, 100.0);
        near(report.ttft_ms.p90, 300.0);
        near(report.itl_ms.p50, 10.0);
        near(report.itl_ms.p99, 30.0);
        near(report.e2e_ms.p50, 400.0);
    }

    #[test]
    fn quantiles_are_those_of_the_gaps() {
        let mut collector = Collector::new(Slo::default());
        let gaps: Vec<f32> = (1..=100_u8).map(f32::from).collect();
        assert!(collector.record(&result(0, 5.0, 50.5, "a"), &gaps));
        let quantiles = collector.report("p", Duration::from_secs(1)).itl_ms;
        near(quantiles.p50, 50.0);
        near(quantiles.p90, 90.0);
        near(quantiles.p99, 99.0);
    }

    #[test]
    fn no_token_is_a_miss_and_nothing_measured_is_null() {
        let mut collector = Collector::new(Slo::default());
        assert!(!collector.record(&RequestResult::default(), &[]));
        let report = collector.report("p", Duration::ZERO);
        assert_eq!(report.ttft_ms, Quantiles::default());
        assert!(report.goodput_rps.abs() < f64::EPSILON);
        assert!(report.attainment.abs() < f64::EPSILON);
    }

    #[test]
    fn the_report_has_the_promised_keys() {
        let mut report = Report { policies: vec![four()], ..Report::default() };
        report.model_error.insert("ttft_mape_ratio".to_owned(), 0.1);
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value["model_error"], json!({ "ttft_mape_ratio": 0.1 }));
        let policy = &value["policies"][0];
        assert_eq!(policy["name"], "p");
        for key in ["attainment", "goodput_rps"] {
            assert!(policy[key].is_f64(), "{key}");
        }
        for latency in ["ttft_ms", "itl_ms", "e2e_ms"] {
            for quantile in ["p50", "p90", "p99"] {
                assert!(policy[latency][quantile].is_f64(), "{latency}.{quantile}");
            }
        }
        assert_eq!(policy["share"], json!({ "a": 0.75, "b": 0.25 }));
        let back: Report = serde_json::from_value(value).unwrap();
        assert_eq!(back, report);
    }
}
