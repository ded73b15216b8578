//! Operating points of real servers at a given concurrency: which are replayed, and how.

use super::{
    ValidateError,
    data::{self, PointRow},
    plan::{About, Plan, Planned, Skips},
    play::{Average, Lengths, Pace},
    result::Sample,
    sweeps::named,
};
use crate::profile::Profile;

/// Name of the source in reports.
const SOURCE: &str = "aiconfigurator";
/// Accelerator of the rows that are replayed, and its class here.
const SYSTEM: &str = "h100_sxm";
const GPU: &str = "H100-SXM";
/// Requests per one in flight, as the benchmark that made most of the rows sends them.
const ROUNDS: usize = 10;
/// Shortest length as a share of the longest.
const SHORTEST: f64 = 0.8;
/// Models that route each token to some of their layers' experts.
const EXPERTS: [&str; 4] = ["MiniMax-M2.5", "Kimi-K2.5", "gpt-oss-120b", "Qwen3-235B-A22B-FP8"];

const REPLAY: &str = "closed loop, 10 requests per one in flight, initial burst counted, lengths \
                      0.8 to 1 of the nominal, mean; new requests join the step after next";
const REPLAY_QWEN: &str = "as the 70B points; weights taken as bf16, not stated, and KV blocks by \
                           formula";

/// A model that is replayed: name in the rows, name of its profile, weights.
struct Replayed {
    model: &'static str,
    profile: &'static str,
    weights: &'static str,
    replay: &'static str,
    sample: Sample,
}

const REPLAYED: [Replayed; 2] = [
    Replayed {
        model: "Llama-3.1-70B",
        profile: "llama-3.1-70b",
        weights: "fp8",
        replay: REPLAY,
        sample: Sample::Picked,
    },
    Replayed {
        model: "Qwen3-32B",
        profile: "qwen3-32b",
        weights: "bf16",
        replay: REPLAY_QWEN,
        sample: Sample::HeldOut,
    },
];

/// A plan per model and parallelism. `profiles` are those that only the validation knows.
pub(super) fn plans(profiles: &[Profile], skips: &mut Skips) -> Result<Vec<Plan>, ValidateError> {
    let rows = data::points()?;
    let mut plans: Vec<Plan> = Vec::new();
    for row in &rows {
        let model = row.model.rsplit('/').next().unwrap_or_default();
        let found = match candidate(row, model) {
            Ok((replayed, tp, at_once)) => match profile(profiles, replayed, tp) {
                Ok(profile) => Ok((replayed, profile, at_once)),
                Err(_) => Err("no kernels were measured at this parallelism"),
            },
            Err(reason) => Err(reason),
        };
        let (replayed, profile, at_once) = match found {
            Ok(found) => found,
            Err(reason) => {
                skips.add(SOURCE, model, reason);
                continue;
            }
        };
        let same = |plan: &&mut Plan| plan.profile == profile && plan.group.model == model;
        if let Some(plan) = plans.iter_mut().find(same) {
            plan.points.push(planned(row, at_once));
            continue;
        }
        let about =
            About { source: SOURCE, model, replay: replayed.replay, sample: replayed.sample };
        plans.push(Plan {
            group: about.group(&profile, 0),
            profile,
            scheduled_ahead: true,
            average: Average::Mean,
            points: vec![planned(row, at_once)],
        });
    }
    plans.sort_by(|a, b| (&a.group.model, a.group.tp).cmp(&(&b.group.model, b.group.tp)));
    plans.push(aibrix()?);
    Ok(plans)
}

/// How a row would be replayed, or why not: model, parallelism and requests in flight.
fn candidate(row: &PointRow, model: &str) -> Result<(&'static Replayed, u32, u32), &'static str> {
    if EXPERTS.contains(&model) {
        return Err("mixture of experts is not modelled");
    }
    if row.mode != "agg" {
        return Err("prefill and decode on servers of their own are not replayed");
    }
    let at_once = row.concurrency.ok_or("no concurrency is stated")?;
    let tp = row.tp.ok_or("no parallelism is stated")?;
    let replayed = REPLAYED.iter().find(|replayed| replayed.model == model);
    let replayed = replayed.ok_or("no profile of this model")?;
    if row.system != SYSTEM {
        return Err("no profile of this model on this accelerator");
    }
    if !row.precision.is_empty() && row.precision != replayed.weights {
        return Err("no profile of these weights");
    }
    Ok((replayed, tp, at_once))
}

/// The profile of a model at `tp`: one of the validation's own, else of the program's.
fn profile(profiles: &[Profile], of: &Replayed, tp: u32) -> Result<Profile, ValidateError> {
    if let Ok(own) = named(profiles, of.profile, tp) {
        return Ok(own.clone());
    }
    Ok(Profile::find(GPU, of.profile, Some(of.weights), Some(tp))?)
}

fn planned(row: &PointRow, at_once: u32) -> Planned {
    Planned {
        pace: Pace::Closed(at_once, at_once as usize * ROUNDS),
        prompt: Lengths::below(row.isl, SHORTEST),
        output: Lengths::below(row.osl, SHORTEST),
        tokens: (row.isl, row.osl),
        measured: (row.ttft_ms, row.tpot_ms),
    }
}

/// The one point of an A100: 11 long prompts, each alone on its engine, at their median.
fn aibrix() -> Result<Plan, ValidateError> {
    let profile = Profile::named("A100-SXM-80", "llama-3.1-8b")?;
    let tokens = (21_073.0, 100.0);
    let about = About {
        source: "aibrix",
        model: "Llama-3.1-8B",
        replay: "one request at a time, median; new requests join the step after next",
        sample: Sample::Picked,
    };
    let point = Planned {
        pace: Pace::Closed(1, ROUNDS),
        prompt: Lengths::below(tokens.0, 1.0),
        output: Lengths::below(tokens.1, 1.0),
        tokens,
        measured: (1_890.94, 14.201),
    };
    Ok(Plan {
        group: about.group(&profile, 1),
        profile,
        scheduled_ahead: true,
        average: Average::Median,
        points: vec![point],
    })
}
