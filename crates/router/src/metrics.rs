//! Every metric of the router: names, labels and what they count.

use predict::{ClassKey, Unsound};
use prometheus::{
    Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use schedule::Rung;

use crate::{end::End, refusal::Refusal};

/// The counters that the request path writes.
#[derive(Debug)]
pub(crate) struct Metrics {
    decisions: IntCounterVec,
    falls: IntCounterVec,
    refusals: IntCounterVec,
    outcomes: IntCounterVec,
    rejected: IntCounterVec,
    pub(crate) labels: IntCounter,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name: &str, help: &str, label: &str| {
            let family = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(family.clone()))?;
            Ok::<_, prometheus::Error>(family)
        };
        let labels = IntCounter::new(
            "slackline_predict_labels_total",
            "Outcomes that the learner has learned from.",
        )?;
        registry.register(Box::new(labels.clone()))?;
        Ok(Self {
            decisions: counters(
                "slackline_router_decisions_total",
                "Requests routed, by the rung of the ladder that decided.",
                "rung",
            )?,
            falls: counters(
                "slackline_router_falls_total",
                "Decisions taken by a lower rung than the policy asks for, by reason.",
                "reason",
            )?,
            refusals: counters(
                "slackline_router_refusals_total",
                "Requests that went nowhere, by reason.",
                "reason",
            )?,
            outcomes: counters(
                "slackline_router_outcomes_total",
                "Requests that were routed and have ended, by how.",
                "end",
            )?,
            rejected: counters(
                "slackline_router_labels_rejected_total",
                "Outcomes that the learner was not taught, since they cannot be true, by reason.",
                "reason",
            )?,
            labels,
        })
    }

    pub(crate) fn decided(&self, rung: Rung, fell: Option<&'static str>) {
        self.decisions.with_label_values(&[rung.as_str()]).inc();
        if let Some(reason) = fell {
            self.falls.with_label_values(&[reason]).inc();
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refusals.with_label_values(&[refusal.as_str()]).inc();
    }

    /// An outcome of `class` is not learned. Told at the first of its kind, the tenth, the hundredth and
    /// so on.
    pub(crate) fn rejected(&self, why: Unsound, class: &ClassKey) {
        let counter = self.rejected.with_label_values(&[why.as_str()]);
        counter.inc();
        let count = counter.get();
        if is_power_of_ten(count) {
            tracing::warn!(
                %class, reason = why.as_str(), count,
                "an outcome is not learned: {why}"
            );
        }
    }

    pub(crate) fn ended(&self, end: Option<End>) {
        self.outcomes.with_label_values(&[end.map_or("cancelled", End::as_str)]).inc();
    }
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count > 1 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

/// What gauges are read from when the page is asked for.
pub(crate) trait Readings: Send + Sync {
    fn endpoints(&self) -> usize;
    fn in_flight(&self) -> u64;
    fn prefix_blocks(&self) -> usize;
    fn errors(&self) -> Vec<predict::ClassError>;
}

/// Gauges that are computed when the page is asked for, so that the request path pays nothing.
#[derive(Debug)]
pub(crate) struct Gauges<R> {
    readings: std::sync::Weak<R>,
    endpoints: IntGauge,
    in_flight: IntGauge,
    prefix_blocks: IntGauge,
    error: GaugeVec,
    coverage: GaugeVec,
    pinball: GaugeVec,
    labels: GaugeVec,
    drifts: GaugeVec,
}

impl<R: Readings + 'static> Gauges<R> {
    pub(crate) fn register(
        readings: std::sync::Weak<R>,
        registry: &Registry,
    ) -> prometheus::Result<()> {
        let by_class =
            |name: &str, help: &str| GaugeVec::new(Opts::new(name, help), &["class", "target"]);
        let gauges = Self {
            readings,
            endpoints: IntGauge::new("slackline_router_endpoints", "Endpoints in the pool.")?,
            in_flight: IntGauge::new(
                "slackline_router_in_flight_requests",
                "Requests routed and not yet ended.",
            )?,
            prefix_blocks: IntGauge::new(
                "slackline_prefix_blocks",
                "Distinct prompt blocks in the approximate prefix index.",
            )?,
            error: by_class(
                "slackline_predict_median_error_ratio",
                "Median absolute relative error of the newest predictions, by class and target.",
            )?,
            coverage: by_class(
                "slackline_predict_p90_coverage_ratio",
                "Share of observed values under their predicted p90 (0.9 is right), by class and target.",
            )?,
            pinball: by_class(
                "slackline_predict_p90_pinball_seconds",
                "Mean pinball loss of the promised p90, by class and target.",
            )?,
            labels: by_class(
                "slackline_predict_class_labels",
                "Labels learned, by class and target.",
            )?,
            drifts: GaugeVec::new(
                Opts::new(
                    "slackline_predict_drifts",
                    "Sudden changes of an engine's speed noticed since the start, by class.",
                ),
                &["class"],
            )?,
        };
        registry.register(Box::new(gauges))
    }

    fn refresh(&self) {
        let Some(readings) = self.readings.upgrade() else { return };
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.endpoints.set(count(readings.endpoints()));
        self.in_flight.set(i64::try_from(readings.in_flight()).unwrap_or(i64::MAX));
        self.prefix_blocks.set(count(readings.prefix_blocks()));
        for class in readings.errors() {
            for (target, of) in [("ttft", &class.ttft), ("itl", &class.itl)] {
                let set = |family: &GaugeVec, value: Option<f32>| {
                    let gauge: Gauge = family.with_label_values(&[class.class.as_str(), target]);
                    gauge.set(value.map_or(f64::NAN, f64::from));
                };
                set(&self.error, of.median_error);
                set(&self.coverage, of.p90_coverage);
                set(&self.pinball, of.p90_pinball_ms.map(|ms| ms / 1e3));
                set(&self.labels, Some(of.labels as f32));
            }
            self.drifts.with_label_values(&[class.class.as_str()]).set(class.drifts as f64);
        }
    }

    fn all(&self) -> [&dyn Collector; 8] {
        [
            &self.endpoints,
            &self.in_flight,
            &self.prefix_blocks,
            &self.error,
            &self.coverage,
            &self.pinball,
            &self.labels,
            &self.drifts,
        ]
    }
}

impl<R: Readings + 'static> Collector for Gauges<R> {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}
