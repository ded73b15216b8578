//! `slackline evaluate`: how good predictions on recorded rows would have been.

mod first;
mod html;
mod measure;
mod plots;
mod pools;
mod table;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use predict::{EXPERTS, Judged, Options, PriorSource};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::{
    first::FirstRows,
    measure::{Around, Figures, Outcomes, Stretch, TARGETS},
    pools::PoolName,
};
use crate::{
    output, priors,
    rows::{self, Format, Rows},
    signals::Interrupted,
};

/// Stretches of time in the timeline of the JSON report.
const STRETCHES: usize = 60;

/// Judge the learners on recorded rows, forward in time
///
/// Every row is predicted with what was known at its decision and learned when its latency was known.
/// Rows come from `serve --record` or `epp --record`, or are those that llm-d's latency predictor keeps;
/// or a simulated pool makes them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rows to judge on
    #[arg(value_name = "ROWS", required_unless_present = "simulate", conflicts_with = "simulate")]
    rows: Option<PathBuf>,
    /// Format of the rows; gzip is seen by itself
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Make the rows by simulating this pool
    #[arg(long, value_enum, value_name = "POOL")]
    simulate: Option<PoolName>,
    /// Requests to simulate
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "simulate")]
    requests: usize,
    /// Seed of the simulation
    #[arg(long, default_value_t = 0, requires = "simulate")]
    seed: u64,
    /// Write the simulated rows to this file
    #[arg(long, value_name = "FILE", requires = "simulate")]
    record: Option<PathBuf>,
    /// Learners by name [default: all]; the last of mean and rls is the one that others must beat
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    learners: Vec<String>,
    /// What the learner starts from: builtin, none, or a file that `train` has written
    #[arg(long, value_name = "WHAT", default_value = "builtin")]
    prior: String,
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the figures with plots to this file, as one web page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// All that is told.
#[derive(Clone, Debug, Serialize)]
struct Report {
    /// File or pool.
    source: String,
    /// What became of the rows.
    rows: Counts,
    /// Names of the learners.
    learners: Vec<&'static str>,
    /// By class, regime and target.
    groups: Vec<Figures>,
    /// Over all regimes; the last of a target over all classes, too.
    totals: Vec<Figures>,
    /// When the simulated pool changes, on the clock of the rows.
    change_at_ms: Option<f64>,
    /// Before and after that change.
    around_change: Vec<Around>,
    /// How the first rows of every class were predicted.
    first_rows: Vec<FirstRows>,
    /// How promises followed what came.
    timeline: Vec<Stretch>,
}

/// What became of the rows.
#[derive(Clone, Debug, Serialize)]
struct Counts {
    read: usize,
    /// By how their requests ended.
    kept_out: BTreeMap<String, usize>,
    /// Learned but not judged, by target.
    warm_up: BTreeMap<&'static str, usize>,
    /// Whether instants count rows.
    without_times: bool,
}

/// Rows and where they come from.
struct Source {
    name: String,
    rows: Rows,
    change_ms: Option<f64>,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    for path in [&args.json, &args.html, &args.record].into_iter().flatten() {
        output::check_file(path)?;
    }
    let options = options(&args.learners)?;
    let work = tokio::task::spawn_blocking(move || evaluate(&args, &options));
    tokio::select! {
        done = work => done.context("the evaluation ended badly")?,
        () = stop.cancelled() => Err(Interrupted.into()),
    }
}

fn evaluate(args: &Args, options: &Options) -> anyhow::Result<()> {
    let source = source(args)?;
    let rows = &source.rows.labelled;
    let priors = priors::load(&PriorSource::from(args.prior.clone()))?;
    let judged = predict::validate_from(rows, options, Arc::clone(&priors))?;
    if judged.is_empty() {
        bail!(
            "{}: nothing to judge: {} rows are too few to predict from",
            source.name,
            source.rows.read
        );
    }
    let outcomes = Outcomes { rows, judged: &judged };
    let first_rows = first::rows(rows, &judged, options, &priors)?;
    let report = report(&source, outcomes, first_rows);
    output::line(table::text(&report).trim_end())?;
    if let Some(path) = &args.json {
        output::json(path, &report)?;
    }
    if let Some(path) = &args.html {
        let page = html::page(&report, outcomes)?;
        fs::write(path, page).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

fn source(args: &Args) -> anyhow::Result<Source> {
    if let Some(path) = &args.rows {
        let rows = rows::read_file(path, args.format)?;
        return Ok(Source { name: path.display().to_string(), rows, change_ms: None });
    }
    let pool = args.simulate.context("neither rows nor a pool to simulate")?;
    let simulated = pools::simulate_rows(pool, args.requests, args.seed)?;
    if let Some(path) = &args.record {
        fs::write(path, &simulated.lines)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let rows = rows::read(&simulated.name, simulated.lines, Format::Jsonl)?;
    Ok(Source { name: simulated.name, rows, change_ms: simulated.change_ms })
}

fn report(source: &Source, outcomes: Outcomes<'_>, first_rows: Vec<FirstRows>) -> Report {
    let names = |judged: &Judged| judged.models.iter().map(|(name, _)| *name).collect();
    Report {
        source: source.name.clone(),
        rows: Counts {
            read: source.rows.read,
            kept_out: source.rows.kept_out.clone(),
            warm_up: TARGETS.map(|target| (target.as_str(), outcomes.warm_up(target))).into(),
            without_times: source.rows.without_times,
        },
        learners: outcomes.judged.first().map(names).unwrap_or_default(),
        groups: outcomes.groups(),
        totals: outcomes.totals(),
        change_at_ms: source.change_ms,
        around_change: source.change_ms.map(|at| outcomes.around(at)).unwrap_or_default(),
        first_rows,
        timeline: outcomes.timeline(STRETCHES),
    }
}

/// The learner's options with the learners called `names`, or all of them.
fn options(names: &[String]) -> anyhow::Result<Options> {
    if names.is_empty() {
        return Ok(Options::default());
    }
    let is_batch = |name: &&String| regress::BATCH.iter().any(|kind| kind.name == name.as_str());
    let is_expert = |name: &&String| EXPERTS.contains(&name.as_str());
    let (batch, online): (Vec<_>, Vec<_>) = names.iter().partition(is_batch);
    let (experts, regressors): (Vec<_>, Vec<_>) = online.into_iter().partition(is_expert);
    for name in &regressors {
        regress::kind(name)?;
    }
    if regressors.is_empty() {
        let known: Vec<_> = regress::REGRESSORS.iter().map(|kind| kind.name).collect();
        bail!("name one of {} too: the others stand beside it", known.join(", "));
    }
    let owned = |names: Vec<&String>| names.into_iter().cloned().collect();
    Ok(Options {
        regressors: owned(regressors),
        experts: owned(experts),
        batch: owned(batch),
        ..Options::default()
    })
}
