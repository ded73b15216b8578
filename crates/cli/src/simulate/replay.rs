//! `slackline simulate replay`: logged decisions made anew by other policies, and what those would have
//! attained.
//!
//! Decisions come from `serve --record --record-candidates`. Each is made by every policy in the state that
//! the log shows: what one decision changes for later ones is left out (interference), so the result is
//! about single decisions, not about a policy that makes them all.

mod estimate;
mod model;
mod rebuild;
mod table;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::bail;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use schedule::Scheduler;
use serde::Serialize;
use sim::Chooser;
use types::{Millis, Request, Slo};

use self::{
    estimate::{Case, Estimate, Estimates, estimates, logged},
    model::{Fit, chance, forward_fits},
    rebuild::Rebuilder,
};
use super::policies;
use crate::{
    output,
    rows::{self, Decision, Logged, read_logged},
};

/// Fewest decisions that are judged.
const LEAST_JUDGED: usize = 50;
/// Times that a policy in which chance has a part makes each decision.
const DRAWS: u32 = 32;

/// Make recorded decisions anew under other policies, and estimate what those would have attained
///
/// The rows must hold candidates, see `slackline serve --record-candidates`; predictions are those of the
/// log, whatever learner a policy's file names.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recorded rows, JSON lines, gzipped or not
    #[arg(value_name = "ROWS")]
    rows: PathBuf,
    /// Policy to replay under: one that comes with the program, or a configuration file; may be given
    /// several times
    #[arg(long = "policy", value_name = "NAME|FILE", required = true)]
    policies: Vec<String>,
    /// Ceiling on TTFT for requests that were promised nothing, in milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    ttft_ms: Option<Millis>,
    /// Ceiling on mean ITL for the same, in milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    itl_ms: Option<Millis>,
    /// Seed of the random numbers that policies draw
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the estimates to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn millis(text: &str) -> Result<Millis, String> {
    let ms = text.parse().ok().and_then(Millis::new).filter(|ms| ms.get() > 0.0);
    ms.ok_or_else(|| "not a positive number of milliseconds".to_owned())
}

/// All that is told.
#[derive(Clone, Debug, Serialize)]
struct Report {
    /// The file.
    source: String,
    /// Rows in it.
    rows: usize,
    /// Decisions that are judged.
    judged: usize,
    /// Others, by why they are not.
    left_out: BTreeMap<&'static str, usize>,
    /// Time from the first to the last of the judged.
    span_s: f64,
    /// Judged decisions by what decided.
    rungs: BTreeMap<String, usize>,
    /// Judged decisions that hold a sample of their candidates.
    sampled: usize,
    /// What the log itself attained.
    logged: Estimate,
    /// What the reward model says of the log's choices.
    model_of_logged: Estimate,
    /// In the order of the flags.
    policies: Vec<Replayed>,
}

/// What came of one policy.
#[derive(Clone, Debug, Serialize)]
struct Replayed {
    /// Its name.
    name: String,
    /// Decisions for which its filters leave nothing.
    refused: usize,
    /// The estimates.
    #[serde(flatten)]
    estimates: Estimates,
}

/// Prints the estimates and writes them where asked.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let targets = args.policies.iter().map(|name| Ok((name.clone(), scheduling(name)?)));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    let log = Log {
        source: args.rows.display().to_string(),
        rows: read_logged(&args.rows)?,
        slo: Slo { ttft: args.ttft_ms, itl: args.itl_ms },
    };
    let report = replay(&log, targets, args.seed)?;
    output::line(table::text(&report).trim_end())?;
    args.json.as_ref().map_or(Ok(()), |path| output::json(path, &report))
}

/// How the policy called `name` schedules.
fn scheduling(name: &str) -> anyhow::Result<schedule::Options> {
    let policy = policies::resolve(&policies::from_flag(name), Path::new(""))?;
    match policy.chooser {
        Chooser::Router(options) => Ok(options.schedule),
        Chooser::Oracle(_) => {
            bail!("policy `{name}` knows what no log holds: it is for `simulate` alone")
        }
    }
}

/// A file of rows.
#[derive(Debug)]
struct Log {
    source: String,
    /// In the order in which they were decided.
    rows: Vec<Logged>,
    /// For requests that were promised nothing.
    slo: Slo,
}

impl Log {
    fn slo(&self, decision: &Decision) -> Slo {
        if decision.slo.is_empty() { self.slo } else { decision.slo }
    }
}

/// Whether `row` kept `slo`, or why it cannot be judged.
fn outcome(row: &Logged, decision: &Decision, slo: Slo) -> Result<bool, &'static str> {
    if slo.is_empty() {
        return Err("nothing was promised (see --ttft-ms and --itl-ms)");
    }
    if decision.candidates[decision.chosen].endpoint != row.endpoint {
        return Err("another endpoint served than was chosen");
    }
    let late = |limit: Millis| row.ttft_ms.is_some_and(|ms| ms > limit.get());
    match row.end.as_str() {
        "endpoint-failed" => Ok(false),
        "complete" | "warm-up" | "preempted" => match row.ttft_ms {
            Some(ttft_ms) => Ok(slo.is_met(ttft_ms, row.itl_ms)),
            None if slo.ttft.is_none() => Ok(slo.is_met(0.0, row.itl_ms)),
            None => Err("no first token was seen"),
        },
        // What was already lost when the caller went, stays lost.
        _ if slo.ttft.is_some_and(late) => Ok(false),
        _ => Err("the answer was not seen to its end"),
    }
}

/// A decision that is judged.
#[derive(Debug)]
struct Judged {
    /// Its row.
    row: usize,
    met: bool,
    /// Chance to meet the objective, by the prediction for each candidate.
    chances: Vec<Option<f64>>,
    /// What the reward model goes by there.
    fit: Fit,
}

/// What a target makes of one decision: each choice with its chance, 1 in sum; none where its filters leave
/// nothing.
type Wanted = Vec<(usize, f64)>;

fn replay(
    log: &Log,
    targets: Vec<(String, schedule::Options)>,
    seed: u64,
) -> anyhow::Result<Report> {
    let (judged, left_out) = judge(log)?;
    let rebuilder = Rebuilder::of(&log.rows)?;
    let mut policies = Vec::new();
    for (name, options) in targets {
        let target = Target { scheduler: Scheduler::new(options)?, seed };
        let wanted = target.decide_all(log, &rebuilder)?;
        let cases: Vec<_> = judged.iter().map(|one| case(log, one, &wanted[one.row])).collect();
        let refused = judged.iter().filter(|one| wanted[one.row].is_empty()).count();
        policies.push(Replayed { name, refused, estimates: estimates(&cases) });
    }
    let own: Vec<_> = judged.iter().map(|one| case(log, one, &Vec::new())).collect();
    let (logged, model_of_logged) = logged(&own);
    let rows = |one: &Judged| &log.rows[one.row];
    let mut rungs = BTreeMap::new();
    for one in &judged {
        *rungs.entry(rows(one).rung.clone()).or_default() += 1;
    }
    let is_sample = |one: &&Judged| {
        let decision = rows(one).decision.as_ref();
        decision.is_some_and(|decision| decision.candidates.len() < decision.of as usize)
    };
    let at = |one: Option<&Judged>| one.map_or(0.0, |one| rows(one).decided_at_ms);
    Ok(Report {
        source: log.source.clone(),
        rows: log.rows.len(),
        judged: judged.len(),
        left_out,
        span_s: (at(judged.last()) - at(judged.first())) / 1e3,
        rungs,
        sampled: judged.iter().filter(is_sample).count(),
        logged,
        model_of_logged,
        policies,
    })
}

/// The decisions that can be judged, and how many cannot, by why.
fn judge(log: &Log) -> anyhow::Result<(Vec<Judged>, BTreeMap<&'static str, usize>)> {
    let mut judged = Vec::new();
    let mut left_out = BTreeMap::new();
    for (at, row) in log.rows.iter().enumerate() {
        let Some(decision) = &row.decision else {
            *left_out.entry("the row holds no candidates").or_default() += 1;
            continue;
        };
        let slo = log.slo(decision);
        match outcome(row, decision, slo) {
            Ok(met) => {
                let chance = |candidate: &rows::Candidate| {
                    let predicted = candidate.prediction.as_ref()?;
                    Some(chance(&predicted.prediction(), slo))
                };
                let chances = decision.candidates.iter().map(chance).collect();
                judged.push(Judged { row: at, met, chances, fit: Fit::default() });
            }
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
    }
    if log.rows.iter().all(|row| row.decision.is_none()) {
        bail!("{}: no row holds candidates: record with --record-candidates", log.source);
    }
    if judged.len() < LEAST_JUDGED {
        let why: Vec<_> = left_out.iter().map(|(why, count)| format!("{count}: {why}")).collect();
        bail!(
            "{}: {} decisions can be judged, fewer than {LEAST_JUDGED} ({})",
            log.source,
            judged.len(),
            why.join("; ")
        );
    }
    let told = |one: &Judged| {
        let chosen = log.rows[one.row].decision.as_ref().map_or(0, |decision| decision.chosen);
        (one.chances[chosen], one.met)
    };
    let fits = forward_fits(&judged.iter().map(told).collect::<Vec<_>>());
    for (one, fit) in judged.iter_mut().zip(fits) {
        one.fit = fit;
    }
    Ok((judged, left_out))
}

fn case(log: &Log, one: &Judged, wanted: &Wanted) -> Case {
    let decision = log.rows[one.row].decision.as_ref();
    let (chosen, propensity) =
        decision.map_or((0, None), |decision| (decision.chosen, decision.propensity));
    let model = |at: usize| one.fit.chance(one.chances[at]);
    Case {
        reward: f64::from(u8::from(one.met)),
        propensity: propensity.map(f64::from),
        same: wanted.iter().filter(|(at, _)| *at == chosen).map(|(_, share)| share).sum(),
        model_logged: model(chosen),
        model_target: wanted.iter().map(|(at, share)| share * model(*at)).sum(),
    }
}

/// A policy that decides anew.
#[derive(Debug)]
struct Target {
    scheduler: Scheduler,
    seed: u64,
}

impl Target {
    /// What it makes of every row, in their order; nothing of rows without candidates.
    fn decide_all(&self, log: &Log, rebuilder: &Rebuilder) -> anyhow::Result<Vec<Wanted>> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let one = |row: &Logged| {
            let Some(decision) = &row.decision else { return Ok(Vec::new()) };
            let slo = log.slo(decision);
            let request = Rebuilder::request(row, decision, slo);
            let candidates = rebuilder.candidates(row, decision, slo)?;
            let wanted = self.wanted(&request, &candidates, decision, &mut random);
            // What remembers where requests went remembers what happened, not what it would have done.
            self.scheduler.dispatched(&request, &candidates[decision.chosen]);
            Ok(wanted)
        };
        log.rows.iter().map(one).collect()
    }

    /// What it makes of one decision: each choice with its own word for how likely it is, or where it has
    /// none, with how often it was drawn.
    fn wanted(
        &self,
        request: &Request,
        candidates: &[schedule::Candidate],
        decision: &Decision,
        random: &mut StdRng,
    ) -> Wanted {
        let mut wanted = BTreeMap::<usize, (f64, Option<f32>)>::new();
        for _ in 0..DRAWS {
            let mut left = candidates.to_vec();
            let number = random.next_u64();
            let decided = self.scheduler.decide(request, &mut left, decision.all_failing, number);
            let Some(decided) = decided else { break };
            let slot = left[decided.chosen].endpoint.slot;
            let place = candidates.iter().position(|other| other.endpoint.slot == slot);
            let (times, told) = wanted.entry(place.unwrap_or(decision.chosen)).or_default();
            *times += 1.0;
            *told = decided.propensity;
            // Without chance one draw tells all; and a policy that takes turns must not skip any.
            if told.is_some_and(|told| told >= 1.0) {
                break;
            }
        }
        let by_word = wanted.values().all(|(_, told)| told.is_some());
        let weight =
            |(times, told): (f64, Option<f32>)| told.filter(|_| by_word).map_or(times, f64::from);
        let all: f64 = wanted.values().map(|one| weight(*one)).sum();
        wanted.into_iter().map(|(at, one)| (at, weight(one) / all)).collect()
    }
}

#[cfg(test)]
mod tests;
