//! Latency histograms with vLLM's buckets.

use std::fmt::Write as _;

/// Upper edges for the time to first token, seconds.
const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Upper edges for the gap between tokens, seconds.
const ITL: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
/// Upper edges for whole requests, seconds.
const E2E: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// Counts of observations by bucket.
#[derive(Debug)]
pub(super) struct Histogram {
    edges: &'static [f64],
    /// One more than edges: the last is what exceeds them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(edges: &'static [f64]) -> Self {
        Self { edges, counts: vec![0; edges.len() + 1], sum: 0.0 }
    }

    /// Counts one observation of `seconds`.
    pub(super) fn observe(&mut self, seconds: f64) {
        self.counts[self.edges.partition_point(|edge| *edge < seconds)] += 1;
        self.sum += seconds;
    }

    /// Appends the samples of the family `vllm:name` for engine 0 of `model`.
    pub(super) fn render(&self, page: &mut String, name: &str, model: &str) {
        let mut total = 0;
        for (position, count) in self.counts.iter().enumerate() {
            total += count;
            let edge = self.edges.get(position).map_or("+Inf".to_owned(), |e| format!("{e:?}"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                page,
                "vllm:{name}_bucket{{engine=\"0\",le=\"{edge}\",model_name=\"{model}\"}} {total}.0"
            );
        }
        let labels = format!("engine=\"0\",model_name=\"{model}\"");
        let _ = writeln!(page, "vllm:{name}_count{{{labels}}} {total}.0");
        let _ = writeln!(page, "vllm:{name}_sum{{{labels}}} {:?}", self.sum);
    }
}

/// What the server counts beyond its engine.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) ttft: Histogram,
    pub(super) itl: Histogram,
    pub(super) e2e: Histogram,
    /// Requests that ended of themselves.
    pub(super) stopped: u64,
    /// Requests that reached their bound.
    pub(super) cut: u64,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            ttft: Histogram::new(TTFT),
            itl: Histogram::new(ITL),
            e2e: Histogram::new(E2E),
            stopped: 0,
            cut: 0,
        }
    }
}
