//! How far a prior is off, on rows and on operating points that were measured.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use features::{Column, FeatureRow, WIDTH};
use predict::{ForModel, Learner, Lessons, Options, Prediction, Prior, Priors};
use serde::{Deserialize, Serialize};
use types::{Accelerator, Role};

/// Learners without batch models: a prior holds none.
pub(super) fn learner_options() -> Options {
    Options {
        regressors: vec!["rls".to_owned()],
        experts: Vec::new(),
        batch: Vec::new(),
        ..Options::default()
    }
}

/// Predicts from priors alone.
#[derive(Debug)]
pub(super) struct Alone {
    models: predict::Models,
    priors: Arc<Priors>,
}

impl Alone {
    pub(super) fn of(priors: Priors) -> anyhow::Result<Self> {
        let priors = Arc::new(priors);
        let models = Learner::with_priors(&learner_options(), Arc::clone(&priors))?.publish();
        Ok(Self { models, priors })
    }
}

/// The class of a prior, so that no other prior is found for it.
fn accelerator(name: &str, tp: u32) -> Accelerator {
    Accelerator::new(&format!("{name} tp{tp}"))
}

/// What a prior is worth on rows that it was not taught.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct HeldOut {
    /// What was played.
    pub(super) workload: String,
    /// Rows with a TTFT.
    pub(super) rows: usize,
    pub(super) ttft_mape_ratio: f64,
    pub(super) ttft_p90_coverage_ratio: f64,
    pub(super) itl_mape_ratio: f64,
    pub(super) itl_p90_coverage_ratio: f64,
}

/// Judges `prior`, with no row learned, on `lessons`.
pub(super) fn held_out(
    prior: &Prior,
    workload: String,
    lessons: &Lessons,
) -> anyhow::Result<HeldOut> {
    let alone = Alone::of(std::iter::once(prior.clone()).collect())?;
    let of = alone.models.of(&prior.model);
    let class = accelerator(&prior.accelerator, prior.tp);
    let figures = |rows: &[(FeatureRow, f32)], of_target: fn(&Prediction) -> [f32; 2]| {
        let (mut off, mut within, mut count) = (0.0, 0.0, 0.0);
        for (row, observed) in rows {
            let Some(predicted) = of.predict(&class, Role::Both, 0, row) else { continue };
            let [p50, p90] = of_target(&predicted);
            off += f64::from((p50 / observed - 1.0).abs());
            within += f64::from(u8::from(*observed <= p90));
            count += 1.0;
        }
        (rounded(off / count), rounded(within / count))
    };
    let ttft = figures(&lessons.ttft, |p| [p.ttft.p50(), p.ttft.p90()]);
    let itl = figures(&lessons.itl, |p| [p.itl.p50(), p.itl.p90()]);
    Ok(HeldOut {
        workload,
        rows: lessons.ttft.len(),
        ttft_mape_ratio: ttft.0,
        ttft_p90_coverage_ratio: ttft.1,
        itl_mape_ratio: itl.0,
        itl_p90_coverage_ratio: itl.1,
    })
}

/// Four digits behind the point: what a card tells.
pub(super) fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

/// One measured operating point: so many requests of one shape at one time.
#[derive(Clone, Debug, Deserialize)]
struct Point {
    source: String,
    model: String,
    accelerator: String,
    tp: u32,
    input_tokens: f32,
    output_tokens: f32,
    concurrency: f32,
    arrivals: Arrivals,
    ttft_ms: f32,
    tpot_ms: f32,
}

/// When requests of a point arrive.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Arrivals {
    /// When another one ends: it finds all others.
    Closed,
    /// At a steady rate: it finds as many as there are on average.
    Open,
}

/// How priors fare on measured points of one kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Reality {
    /// Where the points come from.
    pub(super) source: String,
    /// Model, accelerator and parallelism measured.
    pub(super) class: String,
    /// The prior that answers.
    pub(super) prior: String,
    /// On which scale.
    pub(super) scale: f64,
    /// Concurrency of the points.
    pub(super) concurrency: [f32; 2],
    pub(super) points: usize,
    pub(super) ttft_mape_ratio: f64,
    pub(super) itl_mape_ratio: f64,
}

/// Up to this many requests at one time a point counts as lightly loaded.
const LIGHT: f32 = 16.0;

/// Holds `priors` against the points in the file at `path`, by class, light and heavy load apart.
pub(super) fn reality(priors: &Priors, path: &Path) -> anyhow::Result<Vec<Reality>> {
    let name = path.display();
    let mut reader = csv::Reader::from_path(path)
        .with_context(|| format!("cannot read points from `{name}`"))?;
    let points: Vec<Point> = reader
        .deserialize()
        .collect::<Result<_, _>>()
        .with_context(|| format!("`{name}` is not a table of measured points"))?;
    let alone = Alone::of(priors.clone())?;
    let key = |point: &Point| {
        (point.source.clone(), point.model.clone(), point.tp, point.concurrency > LIGHT)
    };
    let mut groups = std::collections::BTreeMap::<_, Vec<&Point>>::new();
    for point in &points {
        groups.entry(key(point)).or_default().push(point);
    }
    Ok(groups.into_values().filter_map(|points| alone.reality(&points)).collect())
}

impl Alone {
    fn reality(&self, points: &[&Point]) -> Option<Reality> {
        let first = points.first()?;
        let class = accelerator(&first.accelerator, first.tp);
        let fit = self.priors.find(&first.model, &class)?;
        let of = self.models.of(&first.model);
        let (mut ttft_off, mut itl_off) = (0.0, 0.0);
        for point in points {
            let (ttft_ms, itl_ms) = at_rest(&of, &class, point)?;
            ttft_off += f64::from((ttft_ms / point.ttft_ms - 1.0).abs());
            itl_off += f64::from((itl_ms / point.tpot_ms - 1.0).abs());
        }
        let concurrency = points.iter().map(|point| point.concurrency);
        let count = points.len() as f64;
        let of_prior = fit.prior;
        let weights = of_prior.weights.as_deref().unwrap_or("?");
        Some(Reality {
            source: first.source.clone(),
            class: format!("{} on {} tp{}", first.model, first.accelerator, first.tp),
            prior: format!(
                "{} {weights} on {} tp{}",
                of_prior.model, of_prior.accelerator, of_prior.tp
            ),
            scale: rounded(f64::from(fit.scale)),
            concurrency: [
                concurrency.clone().fold(f32::MAX, f32::min),
                concurrency.fold(0.0, f32::max),
            ],
            points: points.len(),
            ttft_mape_ratio: rounded(ttft_off / count),
            itl_mape_ratio: rounded(itl_off / count),
        })
    }
}

/// TTFT and ITL at an operating point, from predictions alone: what is in flight follows from the latencies by
/// Little's law, and the latencies from what is in flight; the point where both agree is found by going
/// half the way to it many times.
fn at_rest(of: &ForModel, class: &Accelerator, point: &Point) -> Option<(f32, f32)> {
    const ROUNDS: usize = 60;
    let (mut ttft_ms, mut itl_ms, mut prefill_ms) = (50.0_f32, 10.0_f32, 20.0_f32);
    for _ in 0..ROUNDS {
        let row = arriving(point, ttft_ms, itl_ms, prefill_ms);
        let predicted = of.predict(class, Role::Both, 0, &row)?;
        ttft_ms += (predicted.ttft.p50() - ttft_ms) / 2.0;
        itl_ms += (predicted.itl.p50() - itl_ms) / 2.0;
        prefill_ms += (predicted.prefill_ms - prefill_ms) / 2.0;
    }
    Some((ttft_ms, itl_ms))
}

/// What a request finds that arrives while the others are at their mean.
fn arriving(point: &Point, ttft_ms: f32, itl_ms: f32, prefill_ms: f32) -> FeatureRow {
    let decode_ms = (point.output_tokens - 1.0).max(0.0) * itl_ms;
    let per_ms = point.concurrency / (ttft_ms + decode_ms);
    let others = match point.arrivals {
        Arrivals::Closed => (point.concurrency - 1.0).max(0.0),
        Arrivals::Open => point.concurrency,
    };
    let decoding = others * decode_ms / (ttft_ms + decode_ms);
    let ahead = others - decoding;
    let prompt = point.input_tokens;
    let pairs = prompt * prompt / 2.0 / 1e6;
    let idle = decoding < 0.5;
    FeatureRow::from([0.0; WIDTH])
        .with(Column::Prompt, prompt)
        .with(Column::Uncached, prompt)
        .with(Column::UncachedPairs, pairs)
        .with(Column::AheadRequests, ahead)
        // Those ahead are half done with theirs on average.
        .with(Column::AheadTokens, ahead * prompt / 2.0)
        .with(Column::AheadPairs, ahead * pairs / 2.0)
        .with(Column::AheadContext, ahead * prompt)
        .with(Column::Decoding, decoding)
        .with(Column::DecodeTokens, decoding * (prompt + point.output_tokens / 2.0))
        .with(Column::Remaining, decoding * point.output_tokens / 2.0)
        .with(Column::Running, decoding)
        .with(Column::Waiting, ahead)
        .with(Column::KvUtilization, 0.5)
        .with(Column::SnapshotAge, 25.0)
        .with(Column::Step, if idle { 0.0 } else { itl_ms })
        .with(Column::SinceToken, if idle { 60_000.0 } else { itl_ms / 2.0 })
        .with(Column::ArrivingTokens, per_ms * 1e3 * prompt)
        .with(Column::ArrivingRequests, per_ms * 1e3)
        .with(Column::OldestWait, if ahead < 0.5 { 0.0 } else { ttft_ms / 2.0 })
        .with(Column::Output, point.output_tokens)
        .with(Column::PrefillPerToken, prefill_ms / prompt.max(1.0) * 1e3)
}
