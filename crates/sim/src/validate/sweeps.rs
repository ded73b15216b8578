//! The `GuideLLM` sweeps: which rates are replayed, which are held out, and how they were driven.

use std::time::Duration;

use super::{
    ValidateError,
    data::{self, SweepRow},
    plan::{About, Plan, Planned, Skips},
    play::{Average, Lengths, Pace},
    result::Sample,
};
use crate::profile::Profile;

/// Name of the source in reports.
const SOURCE: &str = "llm-inferno";
/// Length of one rate of a sweep.
const SPAN: Duration = Duration::from_mins(6);
/// Requests of a rate that sends one at a time: more than were measured, for less noise.
const ONE_BY_ONE: usize = 200;
/// From this many requests in flight on, a rate is past what the engine can do.
const TOO_MANY: f64 = 160.0;
/// Outputs that are replayed only one at a time: at other rates most requests of the measurement
/// did not end in its six minutes.
const LONG_OUTPUT: u32 = 4096;

const REPLAY_NEXT: &str = "6 min at an even rate, lengths +-50 %, rows at their \
                           mean; new requests join the next step, 9.3 ms in the API server";
const REPLAY_14B: &str = "as the 8B sweep, rows at their median";
const REPLAY_AFTER: &str = "as above, but new requests join the step after next, 5 ms in the API \
                            server";

/// Both sweeps. `profiles` are those that only the validation knows.
pub(super) fn plans(profiles: &[Profile], skips: &mut Skips) -> Result<Vec<Plan>, ValidateError> {
    let rows = data::sweeps()?;
    let mut plans = llama(&rows, skips)?;
    plans.extend(qwen(&rows, profiles, skips)?);
    Ok(plans)
}

/// Llama-3.1-8B, October 2025: half of the points were fitted, the neighbours held out.
fn llama(rows: &[SweepRow], skips: &mut Skips) -> Result<Vec<Plan>, ValidateError> {
    let profile = Profile::named("H100-SXM", "llama-3.1-8b")?;
    let kept: Vec<Planned> = rows
        .iter()
        .filter(|row| row.experiment == "exp1")
        .filter(|row| keep(row, skips))
        .map(planned)
        .collect();
    let half = |parity: usize, sample| {
        let numbered = kept.iter().enumerate();
        let points: Vec<_> = numbered
            .filter(|(number, _)| number % 2 == parity)
            .map(|(_, point)| point.clone())
            .collect();
        let model = "Llama-3.1-8B";
        let about = About { source: SOURCE, model, replay: REPLAY_NEXT, sample };
        Plan {
            group: about.group(&profile, points.len()),
            profile: profile.clone(),
            scheduled_ahead: false,
            average: Average::Mean,
            points,
        }
    };
    Ok(vec![half(0, Sample::Fitted), half(1, Sample::HeldOut)])
}

/// Qwen2.5-14B, February 2026: held out as a whole, and again with the way of scheduling that
/// the result speaks for.
fn qwen(
    rows: &[SweepRow],
    profiles: &[Profile],
    skips: &mut Skips,
) -> Result<Vec<Plan>, ValidateError> {
    let profile = named(profiles, "qwen2.5-14b", 1)?;
    let points: Vec<Planned> = rows
        .iter()
        .filter(|row| row.experiment == "exp2")
        .filter(|row| keep(row, skips))
        .map(planned)
        .collect();
    let plan = |scheduled_ahead, replay, sample| {
        let about = About { source: SOURCE, model: "Qwen2.5-14B", replay, sample };
        Plan {
            group: about.group(profile, points.len()),
            profile: profile.clone(),
            scheduled_ahead,
            average: Average::Median,
            points: points.clone(),
        }
    };
    Ok(vec![
        plan(false, REPLAY_14B, Sample::HeldOut),
        plan(true, REPLAY_AFTER, Sample::AfterTheFact),
    ])
}

/// The profile of `model` over `tp` GPUs among those that only the validation knows.
pub(super) fn named<'a>(
    profiles: &'a [Profile],
    model: &str,
    tp: u32,
) -> Result<&'a Profile, ValidateError> {
    profiles
        .iter()
        .find(|profile| profile.model == model && profile.tp == tp)
        .ok_or_else(|| ValidateError::Profile { model: model.to_owned(), tp })
}

/// Whether a rate is replayed; the reason is counted if not.
fn keep(row: &SweepRow, skips: &mut Skips) -> bool {
    let one_by_one = row.strategy == "synchronous";
    let reason = if row.strategy == "throughput" {
        "sent without any pace"
    } else if row.out_cfg == LONG_OUTPUT && !one_by_one {
        "outputs of 4,096 tokens at a rate: most did not end in time"
    } else if row.concurrency.is_some_and(|in_flight| in_flight >= TOO_MANY) {
        "160 requests in flight or more: past what the engine can do"
    } else if row.ttft_ms <= 0.0 {
        "the TTFT measured is below zero"
    } else {
        return true;
    };
    skips.add(SOURCE, &row.model, reason);
    false
}

fn planned(row: &SweepRow) -> Planned {
    let pace = if row.strategy == "synchronous" {
        Pace::Closed(1, ONE_BY_ONE)
    } else {
        Pace::Steady(row.rps, SPAN)
    };
    Planned {
        pace,
        prompt: Lengths::around(row.in_tokens),
        output: Lengths::around(row.out_tokens),
        tokens: (row.in_tokens, row.out_tokens),
        measured: (row.ttft_ms, row.itl_ms),
    }
}
