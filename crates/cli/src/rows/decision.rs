//! What a decision chose from, as a row of ours holds it under `decision`: written and read by one shape.
//!
//! `features` is a list in the order of [`features::SCHEMA`]; a bin is `[streams, spent, per_itl_ms,
//! per_stall_ms, weight]` as in [`datalayer::Bin`]; quantiles are p50, p90, p95 and p99 in milliseconds. Sessions are
//! numbers that mean nothing outside the file.

use std::{collections::HashMap, sync::Arc};

use datalayer::Bin;
use predict::{Prediction, Quantiles, Source, Trust};
use router::{Alternative, Considered};
use serde::{Deserialize, Serialize};
use types::Slo;

/// What one decision chose from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Decision {
    /// What the request was promised.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(crate) slo: Slo,
    /// What a miss of it weighs.
    pub(crate) weight: f32,
    /// Number of the conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<u64>,
    /// Whether its answer is streamed.
    pub(crate) stream: bool,
    /// Blocks of its prompt.
    pub(crate) blocks: u32,
    /// Chance with which the chosen one was chosen; missing where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) propensity: Option<f32>,
    /// Whether no candidate was known to be alive.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) all_failing: bool,
    /// How many candidates there were.
    pub(crate) of: u32,
    /// Position of the chosen one among these.
    pub(crate) chosen: usize,
    /// All of them, or a sample.
    pub(crate) candidates: Vec<Candidate>,
}

/// One endpoint that might have been chosen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Candidate {
    /// `namespace/name`.
    pub(crate) endpoint: String,
    /// Its accelerator class.
    pub(crate) accelerator: String,
    /// `both`, `prefill` or `decode`.
    pub(crate) role: String,
    /// The features of the request there.
    pub(crate) features: Vec<f32>,
    /// Leading blocks of the prompt that it held.
    pub(crate) hit_blocks: u32,
    /// Tokens per KV-cache block and blocks, where it tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv: Option<(u32, u32)>,
    /// Its streams, by room under their ITL objectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bins: Vec<(f32, f32, f32, f32, f32)>,
    /// Streams there without an objective.
    pub(crate) unbound: f32,
    /// What was predicted, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Predicted>,
}

/// A prediction.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Predicted {
    ttft_ms: [f32; predict::LEVELS.len()],
    itl_ms: [f32; predict::LEVELS.len()],
    prefill_ms: f32,
    pending_ms: f32,
    itl_without_ms: f32,
    itl_growth_ms: f32,
    labels: u32,
    source: From,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    in_range: bool,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    calibrated: bool,
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    fresh: bool,
}

/// What a prediction comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum From {
    Learned,
    Pooled,
    Prior,
}

fn is_nothing(slo: &Slo) -> bool {
    slo.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_true(value: &bool) -> bool {
    *value
}

fn yes() -> bool {
    true
}

/// Sessions that have a number; when there are more, all get new ones.
const MOST_SESSIONS: usize = 1 << 16;

/// Gives numbers to sessions, so that no caller's header is written down.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    numbers: HashMap<Arc<str>, u64>,
    next: u64,
}

impl Sessions {
    /// The first number is `from`: runs that write to one file share none if each starts from its time.
    pub(crate) fn starting_from(from: u64) -> Self {
        Self { numbers: HashMap::new(), next: from }
    }

    fn number(&mut self, session: &Arc<str>) -> u64 {
        if let Some(number) = self.numbers.get(session) {
            return *number;
        }
        if self.numbers.len() == MOST_SESSIONS {
            self.numbers.clear();
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(Arc::clone(session), number);
        number
    }
}

impl Decision {
    /// What is written of `considered`.
    pub(super) fn of(considered: &Considered, sessions: &mut Sessions) -> Self {
        Self {
            slo: considered.slo,
            weight: considered.weight,
            session: considered.session.as_ref().map(|session| sessions.number(session)),
            stream: considered.stream,
            blocks: considered.blocks,
            propensity: considered.propensity,
            all_failing: considered.all_failing,
            of: considered.of,
            chosen: considered.chosen as usize,
            candidates: considered.candidates.iter().map(Candidate::of).collect(),
        }
    }
}

impl Candidate {
    fn of(alternative: &Alternative) -> Self {
        let bin =
            |bin: &Bin| (bin.streams, bin.spent, bin.per_itl_ms, bin.per_stall_ms, bin.weight);
        Self {
            endpoint: alternative.endpoint.as_str().to_owned(),
            accelerator: alternative.accelerator.as_str().to_owned(),
            role: alternative.role.as_str().to_owned(),
            features: alternative.row.as_slice().to_vec(),
            hit_blocks: alternative.hit_blocks,
            kv: alternative.kv,
            bins: alternative.bins.iter().map(bin).collect(),
            unbound: alternative.unbound,
            prediction: alternative.prediction.as_ref().map(Predicted::of),
        }
    }
}

impl Predicted {
    fn of(prediction: &Prediction) -> Self {
        Self {
            ttft_ms: prediction.ttft.0,
            itl_ms: prediction.itl.0,
            prefill_ms: prediction.prefill_ms,
            pending_ms: prediction.pending_ms,
            itl_without_ms: prediction.itl_without_ms,
            itl_growth_ms: prediction.itl_growth_ms,
            labels: prediction.labels,
            source: match prediction.source {
                Source::Learned => From::Learned,
                Source::Pooled => From::Pooled,
                Source::Prior => From::Prior,
            },
            in_range: prediction.trust.in_range,
            calibrated: prediction.trust.calibrated,
            fresh: prediction.trust.fresh,
        }
    }

    /// The prediction that was written.
    pub(crate) fn prediction(&self) -> Prediction {
        Prediction {
            ttft: Quantiles(self.ttft_ms),
            itl: Quantiles(self.itl_ms),
            prefill_ms: self.prefill_ms,
            pending_ms: self.pending_ms,
            itl_without_ms: self.itl_without_ms,
            itl_growth_ms: self.itl_growth_ms,
            labels: self.labels,
            source: match self.source {
                From::Learned => Source::Learned,
                From::Pooled => Source::Pooled,
                From::Prior => Source::Prior,
            },
            trust: Trust {
                in_range: self.in_range,
                calibrated: self.calibrated,
                fresh: self.fresh,
            },
        }
    }
}
