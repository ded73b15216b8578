//! The measured rows that come with the program, as their files have them.

use flate2::read::GzDecoder;
use serde::{Deserialize, de::DeserializeOwned};

use super::ValidateError;
use crate::profile::Profile;

/// One rate of a `GuideLLM` sweep.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SweepRow {
    pub(super) experiment: String,
    pub(super) model: String,
    pub(super) out_cfg: u32,
    pub(super) strategy: String,
    pub(super) rps: f64,
    pub(super) concurrency: Option<f64>,
    pub(super) in_tokens: f64,
    pub(super) out_tokens: f64,
    pub(super) ttft_ms: f64,
    pub(super) itl_ms: f64,
}

/// One operating point of `AIConfigurator`'s table of real servers.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PointRow {
    pub(super) model: String,
    pub(super) system: String,
    pub(super) precision: String,
    pub(super) mode: String,
    pub(super) isl: f64,
    pub(super) osl: f64,
    pub(super) tp: Option<u32>,
    pub(super) concurrency: Option<u32>,
    pub(super) ttft_ms: f64,
    pub(super) tpot_ms: f64,
}

/// Time between the starts of two steps, with what was in the first one.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct CycleRow {
    pub(super) model: String,
    pub(super) tp: u32,
    pub(super) cycle_us: f64,
    pub(super) decode_a: u32,
    pub(super) decode_b: u32,
    pub(super) prefill_tokens: u32,
    pub(super) running: u32,
    pub(super) kv_usage: f64,
    pub(super) kv_blocks: u32,
}

pub(super) fn sweeps() -> Result<Vec<SweepRow>, ValidateError> {
    unpack("measured_sweeps", include_bytes!("../../data/measured_sweeps.csv.gz"))
}

pub(super) fn points() -> Result<Vec<PointRow>, ValidateError> {
    let packed = include_bytes!("../../data/measured_operating_points.csv.gz");
    unpack("measured_operating_points", packed)
}

pub(super) fn cycles() -> Result<Vec<CycleRow>, ValidateError> {
    unpack("measured_step_cycles", include_bytes!("../../data/measured_step_cycles.csv.gz"))
}

/// Profiles of models that were measured but that no user of the program is offered.
pub(super) fn profiles() -> Result<Vec<Profile>, ValidateError> {
    Profile::table(include_str!("../../data/validation_profiles.csv"))
        .map_err(|source| ValidateError::Data { file: "validation_profiles", source })
}

fn unpack<T: DeserializeOwned>(file: &'static str, packed: &[u8]) -> Result<Vec<T>, ValidateError> {
    csv::Reader::from_reader(GzDecoder::new(packed))
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|source| ValidateError::Data { file, source })
}
