//! Prefers endpoints by predicted latency against the objectives (llm-d's `latency-scorer`).
//!
//! Where some endpoint is predicted to meet both objectives, only such endpoints score, by how little
//! headroom they leave (`least`, best fit) or how much (`most`). Where none is, the idle ones score, or else
//! the first group there is of: late tokens only, late first token only, both; the smallest miss best.
//! Headrooms are scaled to their range in the group. Without any prediction, free KV cache, short queues
//! and held prefixes count.

use serde::Deserialize;
use types::{Request, read_options};

use super::range;
use crate::{
    candidate::{Candidate, Kind, Scorer},
    headroom::Headroom,
    ranges,
};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "latency",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(Latency { options }))
    },
};

/// Which of the endpoints that meet the objectives is best.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Strategy {
    /// The one that leaves the least headroom.
    #[default]
    Least,
    /// The one that leaves the most.
    Most,
}

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Weight of the time to first token.
    #[serde(deserialize_with = "ranges::not_negative")]
    ttft_weight: f32,
    /// Weight of the time between tokens.
    #[serde(deserialize_with = "ranges::not_negative")]
    tpot_weight: f32,
    /// Which of the endpoints that meet the objectives is best.
    headroom_selection_strategy: Strategy,
    /// Weight of free KV cache, where nothing is predicted.
    #[serde(rename = "compositeKVWeight", deserialize_with = "ranges::not_negative")]
    composite_kv_weight: f32,
    /// Weight of a short queue, likewise.
    #[serde(deserialize_with = "ranges::not_negative")]
    composite_queue_weight: f32,
    /// Weight of held prefixes, likewise.
    #[serde(deserialize_with = "ranges::not_negative")]
    composite_prefix_weight: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            headroom_selection_strategy: Strategy::default(),
            composite_kv_weight: 1.0,
            composite_queue_weight: 1.0,
            composite_prefix_weight: 1.0,
        }
    }
}

/// What is predicted to be missed, from what scores first to what scores last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Misses {
    Nothing,
    Itl,
    Ttft,
    Both,
}

impl Misses {
    /// An endpoint without a prediction is not predicted to miss anything.
    fn of(headroom: Option<Headroom>) -> Self {
        let Some(Headroom { ttft_ms, itl_ms }) = headroom else { return Self::Nothing };
        match (ttft_ms < 0.0, itl_ms < 0.0) {
            (false, false) => Self::Nothing,
            (false, true) => Self::Itl,
            (true, false) => Self::Ttft,
            (true, true) => Self::Both,
        }
    }
}

/// The group of candidates that score.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Group {
    Idle,
    Missing(Misses),
}

#[derive(Debug)]
struct Latency {
    options: Options,
}

fn headroom(request: &Request, candidate: &Candidate) -> Option<Headroom> {
    candidate.prediction.as_ref().map(|prediction| Headroom::of(request.slo, prediction))
}

impl Group {
    fn of(request: &Request, candidates: &[Candidate]) -> Self {
        let misses = |candidate: &Candidate| Misses::of(headroom(request, candidate));
        let first = candidates.iter().map(misses).min().unwrap_or(Misses::Nothing);
        let some_idle = candidates.iter().any(|candidate| candidate.in_flight() == 0);
        if first != Misses::Nothing && some_idle { Self::Idle } else { Self::Missing(first) }
    }

    fn has(self, request: &Request, candidate: &Candidate) -> bool {
        match self {
            Self::Idle => candidate.in_flight() == 0,
            Self::Missing(misses) => Misses::of(headroom(request, candidate)) == misses,
        }
    }
}

/// One of the two latencies over the candidates of a group.
struct Scale {
    least: f32,
    span: f32,
    weight: f32,
}

impl Scale {
    fn of(sizes: impl Iterator<Item = f32>, weight: f32) -> Self {
        let (least, most) = sizes
            .fold((f32::MAX, f32::MIN), |(least, most), size| (least.min(size), most.max(size)));
        Self { least, span: most - least, weight }
    }

    fn is_flat(&self) -> bool {
        self.span <= 1e-9
    }

    /// Where `size` lies in the range, weighted.
    fn part(&self, size: f32) -> f32 {
        let place = if self.is_flat() { 0.5 } else { (size - self.least) / self.span };
        self.weight * place
    }
}

/// Weights that sum to 1, or the first alone.
fn normalised<const N: usize>(weights: [f32; N]) -> [f32; N] {
    let sum: f32 = weights.iter().sum();
    let mut first_alone = [0.0; N];
    first_alone[0] = 1.0;
    if sum > 0.0 { weights.map(|weight| weight / sum) } else { first_alone }
}

impl Latency {
    fn by_headroom(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        let group = Group::of(request, candidates);
        // One without a prediction is as if it left no headroom.
        let sizes = |candidate: &Candidate| {
            headroom(request, candidate).map_or((0.0, 0.0), |h| (h.ttft_ms.abs(), h.itl_ms.abs()))
        };
        let members = || candidates.iter().filter(|candidate| group.has(request, candidate));
        let [of_ttft, of_itl] = normalised([self.options.ttft_weight, self.options.tpot_weight]);
        let mut ttft = Scale::of(members().map(|candidate| sizes(candidate).0), of_ttft);
        let mut itl = Scale::of(members().map(|candidate| sizes(candidate).1), of_itl);
        if ttft.is_flat() != itl.is_flat() {
            ttft.weight = f32::from(u8::from(!ttft.is_flat()));
            itl.weight = 1.0 - ttft.weight;
        }
        let strategy = match group {
            Group::Missing(Misses::Nothing) => self.options.headroom_selection_strategy,
            _ => Strategy::Least,
        };
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            *score = 0.0;
            if group.has(request, candidate) {
                let (ttft_ms, itl_ms) = sizes(candidate);
                let combined = ttft.part(ttft_ms) + itl.part(itl_ms);
                let best = match strategy {
                    Strategy::Least => 1.0 - combined,
                    Strategy::Most => combined,
                };
                *score = (((best * 100.0).trunc() + 1.0) / 100.0).clamp(0.0, 1.0);
            }
        }
    }

    fn by_composite(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        let options = &self.options;
        let [of_kv, of_queue, of_prefix] = normalised([
            options.composite_kv_weight,
            options.composite_queue_weight,
            options.composite_prefix_weight,
        ]);
        let waiting = |candidate: &Candidate| {
            candidate.snapshot.waiting.unwrap_or(candidate.load.prefilling) as f32
        };
        let (_, most) = range(candidates, waiting);
        for (score, candidate) in scores.iter_mut().zip(candidates) {
            let free = 1.0 - candidate.snapshot.kv_utilization.unwrap_or(0.5).clamp(0.0, 1.0);
            let short = if most > 0.0 { (most - waiting(candidate)) / most } else { 1.0 };
            let prefix = candidate.hit_ratio(request);
            let sum = of_kv * free + of_queue * short + of_prefix * prefix;
            *score = ((sum * 100.0).round() / 100.0).clamp(0.0, 1.0);
        }
    }
}

impl Scorer for Latency {
    fn score(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        if candidates.iter().any(|candidate| candidate.prediction.is_some()) {
            self.by_headroom(request, candidates, scores);
        } else {
            self.by_composite(request, candidates, scores);
        }
    }

    fn wants_predictions(&self) -> bool {
        true
    }
}
