//! `slackline train`: makes what is known of a class of endpoints before its first row.

mod card;
mod judge;
mod simulated;
mod workload;

use std::{fmt::Write as _, fs, path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use predict::{About, Judged, Label, Labelled, Lessons, Prior, Priors, Target};
use serde_json::json;
use sim::Profile;
use tokio_util::sync::CancellationToken;

use self::{
    card::Card,
    judge::{HeldOut, rounded},
};
use crate::{
    output,
    rows::{self, Format},
    signals::Interrupted,
};

/// Labels that a prior weighs, unless a flag says otherwise: after as many rows of the real engine, these
/// weigh more.
const STRENGTH: f32 = 30.0;
/// The same of one that is made from estimates.
const ESTIMATED_STRENGTH: f32 = 15.0;
/// Share of recorded rows that is held out to judge on.
const HELD_OUT: usize = 5;

/// Make priors: what a class of endpoints is known by before its first row
///
/// From recorded rows of one class, or from a table of step-time profiles, each of which is played in
/// virtual time. A prior goes into `learner.priors` of the configuration.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("from").required(true).args(["rows", "profiles"]))]
pub(crate) struct Args {
    /// Rows of one class to learn from, as `serve --record` writes them
    #[arg(long, value_name = "FILE", num_args = 1.., requires_all = ["model", "accelerator"])]
    rows: Vec<PathBuf>,
    /// Model of the rows, by a name that tells its size
    #[arg(long, value_name = "NAME", conflicts_with = "profiles")]
    model: Option<String>,
    /// Accelerator of the rows
    #[arg(long, value_name = "NAME", conflicts_with = "profiles")]
    accelerator: Option<String>,
    /// GPUs that one engine spans
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "profiles",
        value_parser = clap::value_parser!(u32).range(1..))]
    tp: u32,
    /// Labels that the prior is to weigh
    #[arg(long, value_name = "N", default_value_t = STRENGTH, conflicts_with = "profiles")]
    strength: f32,
    /// Step-time profiles, with the columns of crates/sim/profiles.csv: a prior of each
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Only profiles whose `gpu model weights tpN` begins so
    #[arg(long, value_name = "TEXT", requires = "profiles")]
    only: Option<String>,
    /// Hold the priors against the measured operating points in this file
    #[arg(long, value_name = "FILE", requires = "profiles")]
    check: Option<PathBuf>,
    /// Write what the priors are worth to this file, as Markdown
    #[arg(long, value_name = "FILE", requires = "profiles")]
    card: Option<PathBuf>,
    /// Write the priors to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    for path in std::iter::once(&args.out).chain(&args.card) {
        output::check_file(path)?;
    }
    let work = tokio::task::spawn_blocking(move || train(&args));
    tokio::select! {
        done = work => done.context("the training ended badly")?,
        () = stop.cancelled() => Err(Interrupted.into()),
    }
}

fn train(args: &Args) -> anyhow::Result<()> {
    let priors = match &args.profiles {
        Some(_) => from_profiles(args)?,
        None => vec![from_rows(args)?],
    };
    let mut text = String::new();
    for prior in &priors {
        text += &serde_json::to_string(prior)?;
        text.push('\n');
    }
    fs::write(&args.out, text).with_context(|| format!("cannot write `{}`", args.out.display()))?;
    output::line(format_args!("{} priors in {}", priors.len(), args.out.display()))
}

fn from_profiles(args: &Args) -> anyhow::Result<Vec<Prior>> {
    let path = args.profiles.as_ref().context("no table of profiles is named")?;
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{name}`"))?;
    let profiles = Profile::table(&text)
        .with_context(|| format!("`{name}` is not a table of step-time profiles"))?;
    let wanted = |profile: &Profile| {
        let only = args.only.as_deref().unwrap_or_default();
        title(profile).to_lowercase().starts_with(&only.to_lowercase())
    };
    let mut priors = Vec::new();
    for profile in profiles.iter().filter(|profile| wanted(profile)) {
        output::note(format_args!("playing {}", title(profile)));
        priors.push(from_profile(profile)?);
    }
    if priors.is_empty() {
        bail!("`{name}` has no such profile");
    }
    if let Some(path) = &args.check {
        let all: Priors = priors.iter().cloned().collect();
        let reality = judge::reality(&all, path)?;
        for prior in &mut priors {
            let of_prior = |real: &&judge::Reality| real.prior == card::title(prior);
            let own: Vec<_> = reality.iter().filter(of_prior).collect();
            prior.card["reality"] = json!(own);
        }
    }
    if let Some(path) = &args.card {
        fs::write(path, card::page(&priors)?)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(priors)
}

/// `gpu model weights tpN`.
fn title(profile: &Profile) -> String {
    format!("{} {} {} tp{}", profile.gpu, profile.model, profile.weights, profile.tp)
}

fn from_profile(profile: &Profile) -> anyhow::Result<Prior> {
    let played = simulated::play(profile)?;
    let strength = if profile.estimated { ESTIMATED_STRENGTH } else { STRENGTH };
    let about = About {
        model: profile.model.clone(),
        accelerator: profile.gpu.clone(),
        tp: profile.tp,
        weights: Some(profile.weights.clone()),
        strength,
    };
    let mut prior = Prior::train(&about, &played.lessons, &played.held_out)?;
    let card = Card {
        made_from: "step-time profile, played in virtual time".to_owned(),
        rows: played.lessons.ttft.len(),
        source: profile.source.clone(),
        confidence: profile.confidence.clone(),
        held_out: judge::held_out(&prior, played.other_name, &played.other)?,
        reality: Vec::new(),
    };
    prior.card = json!(card);
    Ok(prior)
}

fn from_rows(args: &Args) -> anyhow::Result<Prior> {
    let mut labelled = Vec::new();
    for path in &args.rows {
        labelled.append(&mut rows::read_file(path, Format::Auto)?.labelled);
    }
    let classes: std::collections::BTreeSet<_> =
        labelled.iter().map(|row| row.class.to_string()).collect();
    if classes.len() > 1 {
        let classes: Vec<_> = classes.into_iter().collect();
        bail!("the rows are of several classes ({}): a prior is of one", classes.join(", "));
    }
    labelled.sort_by(|a, b| a.decided_at_ms.total_cmp(&b.decided_at_ms));
    let about = About {
        model: args.model.clone().context("no model is named")?,
        accelerator: args.accelerator.clone().context("no accelerator is named")?,
        tp: args.tp,
        weights: None,
        strength: args.strength,
    };
    let first = labelled.len() - labelled.len() / HELD_OUT;
    let (early, late) = labelled.split_at(first);
    let mut prior = Prior::train(&about, &lessons(early), &lessons(late))?;
    let files: Vec<_> = args.rows.iter().map(|path| path.display().to_string()).collect();
    let held_out = progressive(&prior, late)?;
    let mut told = String::new();
    let _ = write!(
        told,
        "held-out last fifth, progressively: TTFT error {:.1} %, ITL error {:.1} %",
        held_out.ttft_mape_ratio * 100.0,
        held_out.itl_mape_ratio * 100.0
    );
    output::line(told)?;
    let card = Card {
        made_from: "recorded rows".to_owned(),
        rows: early.len(),
        source: files.join(", "),
        confidence: "measured".to_owned(),
        held_out,
        reality: Vec::new(),
    };
    prior.card = json!(card);
    Ok(prior)
}

fn lessons(rows: &[Labelled]) -> Lessons {
    let of = |label: fn(&Labelled) -> Option<Label>| {
        let mut known: Vec<_> =
            rows.iter().filter_map(|row| label(row).map(|label| (label, row.row))).collect();
        known.sort_by(|a, b| a.0.known_at_ms.total_cmp(&b.0.known_at_ms));
        known.into_iter().map(|(label, row)| (row, label.ms)).collect()
    };
    Lessons { ttft: of(|row| row.ttft), itl: of(|row| row.itl), steps: Vec::new() }
}

/// Judges `prior` on rows that come after those it was taught, each learned when its labels were known.
fn progressive(prior: &Prior, rows: &[Labelled]) -> anyhow::Result<HeldOut> {
    let class = |row: &Labelled| {
        let mut row = row.clone();
        // So that the prior is found for it, whatever the rows call it.
        row.class.model = prior.model.as_str().into();
        let accelerator = format!("{} tp{}", prior.accelerator, prior.tp);
        row.class.accelerator = types::Accelerator::new(&accelerator);
        row
    };
    let rows: Vec<_> = rows.iter().map(class).collect();
    let priors = Arc::new(std::iter::once(prior.clone()).collect());
    let judged = predict::validate_from(&rows, &judge::learner_options(), priors)?;
    let figures = |target: Target| {
        let of: Vec<&Judged> = judged.iter().filter(|j| j.target == target).collect();
        let off = |j: &&Judged| f64::from((j.promised.p50() / j.observed_ms - 1.0).abs());
        let within = |j: &&Judged| f64::from(u8::from(j.observed_ms <= j.promised.p90()));
        let count = of.len().max(1) as f64;
        let mean = |sum: f64| rounded(sum / count);
        (mean(of.iter().map(off).sum()), mean(of.iter().map(within).sum()))
    };
    let (ttft, itl) = (figures(Target::Ttft), figures(Target::Itl));
    Ok(HeldOut {
        workload: "the last fifth of the rows, progressively".to_owned(),
        rows: rows.len(),
        ttft_mape_ratio: ttft.0,
        ttft_p90_coverage_ratio: ttft.1,
        itl_mape_ratio: itl.0,
        itl_p90_coverage_ratio: itl.1,
    })
}
