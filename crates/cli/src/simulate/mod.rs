//! `slackline simulate`: policies compared on one fleet and workload, in virtual time.

mod compare;
mod figures;
mod html;
mod load;
mod plots;
mod policies;
mod replay;
mod table;
mod validate;

use std::{
    fs,
    io::{self, IsTerminal as _},
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sim::{Lab, LabReport, Timed};
use tokio_util::sync::CancellationToken;
use types::SystemClock;

pub(crate) use self::load::{Overrides, parse};
use crate::{args, output, signals::Interrupted};

/// Compare policies on a fleet and a workload, in virtual time
///
/// The scenario is a YAML file, see config/scenarios; `slackline check` tells what is wrong in one, and
/// `slackline check --schema scenario` what it may say.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Scenario to run
    #[arg(value_name = "SCENARIO", required_unless_present = "compare")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    search: Search,
    /// Simulations at one time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Show what a decision takes in real time
    #[arg(long)]
    timing: bool,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report with plots to this file, as one web page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show what changed between two reports that --json has written
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "scenario")]
    compare: Option<Vec<PathBuf>>,
}

/// What is done with virtual time beside running a scenario.
#[derive(Debug, clap::Subcommand)]
enum Other {
    Validate(validate::Args),
    Replay(replay::Args),
}

/// What is run of the scenario.
#[derive(Clone, Debug, clap::Args)]
struct Choice {
    /// Fleet to run on, of a scenario that has several [default: the first]
    #[arg(long, value_name = "NAME")]
    fleet: Option<String>,
    /// Policy to run in place of the scenario's: one that comes with the program, or a configuration file;
    /// may be given several times
    #[arg(long = "policy", value_name = "NAME|FILE")]
    policies: Vec<String>,
    /// Seeds in place of the scenario's
    #[arg(long, alias = "seed", value_name = "N", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Factor on the rate of the workload
    #[arg(long, value_name = "X", value_parser = args::positive)]
    speed: Option<f64>,
    /// Factors on the rate, each of which every policy runs at
    #[arg(long, value_name = "X", value_delimiter = ',', value_parser = args::positive)]
    loads: Vec<f64>,
    /// Cut every run to its first requests
    #[arg(long, value_name = "N")]
    requests: Option<NonZero<usize>>,
}

/// What is searched instead of being compared at given rates.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Search {
    /// Search the largest rate at which each policy holds the scenario's target
    #[arg(long)]
    goodput: bool,
    /// Search the cheapest of the scenario's `what_if` fleets that holds the target
    #[arg(long)]
    what_if: bool,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let work = tokio::task::spawn_blocking(move || simulate(&args));
    tokio::select! {
        done = work => done.context("the simulation ended badly")?,
        () = stop.cancelled() => Err(Interrupted.into()),
    }
}

fn simulate(args: &Args) -> anyhow::Result<()> {
    match (&args.other, args.compare.as_deref(), &args.scenario) {
        (Some(Other::Validate(args)), ..) => validate::run(args),
        (Some(Other::Replay(args)), ..) => replay::run(args),
        (None, Some([before, after]), _) => {
            let text = compare::compare(&report_of(before)?, &report_of(after)?);
            output::line(text.trim_end())
        }
        (None, _, Some(path)) => play(path, args),
        _ => bail!("no scenario is named"),
    }
}

/// Reads a report that `--json` has written.
fn report_of(path: &Path) -> anyhow::Result<LabReport> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
    serde_json::from_str(&text)
        .with_context(|| format!("`{name}` is not a report of `slackline simulate --json`"))
}

fn play(path: &Path, args: &Args) -> anyhow::Result<()> {
    for path in args.json.iter().chain(&args.html) {
        output::check_file(path)?;
    }
    let lab = prepared(path, args)?;
    let (report, timed) = results(&lab, args)?;
    output::line(table::text(&report).trim_end())?;
    if !timed.is_empty() {
        output::line(table::timing(&timed).trim_end())?;
    }
    if let Some(path) = &args.json {
        output::json(path, &report)?;
    }
    if let Some(path) = &args.html {
        fs::write(path, html::page(&report)?)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

fn prepared(path: &Path, args: &Args) -> anyhow::Result<Lab> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let choice = args.choice.clone();
    let overrides = Overrides {
        fleet: choice.fleet,
        policies: choice.policies,
        seeds: choice.seeds,
        loads: choice.loads,
        speed: choice.speed,
        requests: choice.requests.map(NonZero::get),
        jobs: args.jobs.map_or_else(cores, NonZero::get),
    };
    let mut lab = load::load(path, &overrides)?;
    if args.timing {
        lab.clock = Some(Arc::new(SystemClock::start()));
    }
    Ok(lab)
}

/// What is asked for: a search, runs at given rates, or both where rates are named beside a search.
fn results(lab: &Lab, args: &Args) -> anyhow::Result<(LabReport, Vec<Timed>)> {
    let search = args.search;
    let (mut report, mut timed) = (lab.about(), Vec::new());
    if !(search.goodput || search.what_if) || !args.choice.loads.is_empty() {
        let bar = progress("simulating");
        (report, timed) = lab.run(&|done, of| show(&bar, done, of))?;
        bar.finish_and_clear();
    }
    if search.goodput {
        let bar = progress("searching the largest rates");
        report.goodput = lab.goodput(&|done, of| show(&bar, done, of))?;
        bar.finish_and_clear();
    }
    if search.what_if {
        let bar = progress("searching the cheapest fleet");
        report.what_if = lab.what_if(&|done, of| show(&bar, done, of))?;
        bar.finish_and_clear();
    }
    Ok((report, timed))
}

fn show(bar: &ProgressBar, done: usize, of: usize) {
    bar.set_length(of as u64);
    bar.set_position(done as u64);
}

/// A bar where a terminal can show it.
fn progress(doing: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}: {pos} of {len} done, {elapsed}");
    let bar = ProgressBar::new(1)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(doing);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
