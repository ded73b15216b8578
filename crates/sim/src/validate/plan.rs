//! A group of operating points that wait to be played, and the rows that are not.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;

use super::{
    ValidateError,
    play::{Average, Lengths, Load, Pace, play},
    result::{FidelityErrors, FidelityGroup, FidelityPoint, Sample, SkippedRows},
};
use crate::{engine::Options, profile::Profile};

/// What is measured, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) source: &'a str,
    pub(super) model: &'a str,
    pub(super) replay: &'a str,
    pub(super) sample: Sample,
}

impl About<'_> {
    /// A group of `rows` rows answered by `profile`, without results.
    pub(super) fn group(self, profile: &Profile, rows: usize) -> FidelityGroup {
        let estimated = if profile.estimated { ", estimated" } else { "" };
        FidelityGroup {
            source: self.source.to_owned(),
            model: self.model.to_owned(),
            gpu: profile.gpu.clone(),
            tp: profile.tp,
            profile: format!("{} {} tp{}{estimated}", profile.model, profile.weights, profile.tp),
            replay: self.replay.to_owned(),
            sample: self.sample,
            rows,
            ttft: None,
            itl: None,
            step: None,
            points: Vec::new(),
        }
    }
}

/// One operating point to play, and what was measured at it.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) pace: Pace,
    pub(super) prompt: Lengths,
    pub(super) output: Lengths,
    /// Prompt and output length as the source has them, in tokens.
    pub(super) tokens: (f64, f64),
    /// TTFT and time between tokens, ms.
    pub(super) measured: (f64, f64),
}

/// A group to play.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) group: FidelityGroup,
    pub(super) profile: Profile,
    /// See [`Options::async_scheduling`].
    pub(super) scheduled_ahead: bool,
    pub(super) average: Average,
    pub(super) points: Vec<Planned>,
}

impl Plan {
    fn play(&self, number: usize) -> Result<Option<FidelityPoint>, ValidateError> {
        let Some(point) = self.points.get(number) else { return Ok(None) };
        let options =
            Options { async_scheduling: self.scheduled_ahead, ..Options::new(&self.profile) };
        let load = Load {
            pace: point.pace,
            prompt: point.prompt,
            output: point.output,
            seed: number as u64 + 1,
        };
        let played = play(&self.profile, &options, &load, self.average)?;
        let (concurrency, rps) = match point.pace {
            Pace::Closed(at_once, _) => (Some(at_once), None),
            Pace::Steady(rate, _) => (None, Some(rate)),
        };
        Ok(played.map(|(ttft, itl)| FidelityPoint {
            prompt_tokens: point.tokens.0,
            output_tokens: point.tokens.1,
            concurrency,
            rps,
            measured_ttft_ms: point.measured.0,
            simulated_ttft_ms: ttft,
            measured_itl_ms: point.measured.1,
            simulated_itl_ms: itl,
        }))
    }

    /// The group with its errors.
    fn filled(self, mut points: Vec<(usize, FidelityPoint)>) -> FidelityGroup {
        points.sort_by_key(|(number, _)| *number);
        let points: Vec<_> = points.into_iter().map(|(_, point)| point).collect();
        let ttft = points.iter().map(|point| (point.measured_ttft_ms, point.simulated_ttft_ms));
        let itl = points.iter().map(|point| (point.measured_itl_ms, point.simulated_itl_ms));
        FidelityGroup {
            ttft: FidelityErrors::of(ttft),
            itl: FidelityErrors::of(itl),
            rows: points.len(),
            points,
            ..self.group
        }
    }
}

/// Plays every point of every plan, `jobs` at a time; the result does not depend on `jobs`.
pub(super) fn play_all(plans: Vec<Plan>, jobs: usize) -> Result<Vec<FidelityGroup>, ValidateError> {
    let all: Vec<(usize, usize)> = (0..plans.len())
        .flat_map(|plan| (0..plans[plan].points.len()).map(move |number| (plan, number)))
        .collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Ok(Vec::with_capacity(all.len())));
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, all.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(plan, number)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = plans[plan].play(number);
                    let mut done = done.lock();
                    match (played, done.as_mut()) {
                        (Ok(point), Ok(points)) => points.push((plan, number, point)),
                        (Err(error), _) => *done = Err(error),
                        (_, Err(_)) => return,
                    }
                }
            });
        }
    });
    let mut by_plan: BTreeMap<usize, Vec<(usize, FidelityPoint)>> = BTreeMap::new();
    for (plan, number, point) in done.into_inner()? {
        by_plan.entry(plan).or_default().extend(point.map(|point| (number, point)));
    }
    let with_points =
        |(index, plan): (usize, Plan)| plan.filled(by_plan.remove(&index).unwrap_or_default());
    Ok(plans.into_iter().enumerate().map(with_points).collect())
}

/// Counts of rows that are not replayed.
#[derive(Debug, Default)]
pub(super) struct Skips(BTreeMap<(String, String, String), usize>);

impl Skips {
    pub(super) fn add(&mut self, source: &str, model: &str, reason: &str) {
        let key = (source.to_owned(), model.to_owned(), reason.to_owned());
        *self.0.entry(key).or_default() += 1;
    }

    pub(super) fn rows(self) -> Vec<SkippedRows> {
        let row = |((source, model, reason), rows)| SkippedRows { source, model, rows, reason };
        self.0.into_iter().map(row).collect()
    }
}
