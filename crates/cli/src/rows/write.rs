//! Writes a row of ours: one JSON object a line.
//!
//! Version [`SCHEMA_VERSION`]. Instants are milliseconds of Unix time (in simulations: since the start);
//! a latency that was not seen has no key; `itl_so_far` is a list of `{ms, known_at_ms}`, and `steps` of
//! `[known_at_ms, step_ms, streams, kv_tokens]`, in CSV and Parquet the same lists as text; `features` has one key per column of
//! [`features::SCHEMA`]; `decision`, where it was asked for, is a [`Decision`].

use std::io;

use features::{FeatureRow, SCHEMA, SCHEMA_VERSION};
use router::{Known, Recorded};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use types::Time;

use super::decision::{Decision, Sessions};

#[derive(Debug, Serialize)]
struct Line<'a> {
    schema: u32,
    decided_at_ms: f64,
    model: &'a str,
    accelerator: &'a str,
    role: &'a str,
    endpoint: &'a str,
    slot: u32,
    features: Named<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_ms: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_known_at_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    itl_ms: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    itl_known_at_ms: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    itl_so_far: Vec<SoFar>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<(f64, f32, f32, f32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e2e_ms: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e2e_known_at_ms: Option<f64>,
    output_tokens: u32,
    end: &'a str,
    rung: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
}

/// A mean gap of a stream that went on.
#[derive(Debug, Serialize)]
struct SoFar {
    ms: f32,
    known_at_ms: f64,
}

/// A row of features under their names.
#[derive(Debug)]
struct Named<'a>(&'a FeatureRow);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(SCHEMA.len()))?;
        for (feature, value) in SCHEMA.iter().zip(self.0.as_slice()) {
            map.serialize_entry(feature.name, value)?;
        }
        map.end()
    }
}

/// Version of the row that `line` is, if it is one of ours.
pub(crate) fn version(line: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Row {
        schema: u32,
    }
    serde_json::from_slice(line).ok().map(|Row { schema }| schema)
}

/// Appends the line of `row` to `out`, without what it chose from; the clock of its instants started at
/// `start_ms`.
pub(crate) fn write(out: &mut Vec<u8>, row: &Recorded, start_ms: f64) -> io::Result<()> {
    write_line(out, row, start_ms, None)
}

/// The same with what it chose from, where that was kept.
pub(crate) fn write_whole(
    out: &mut Vec<u8>,
    row: &Recorded,
    start_ms: f64,
    sessions: &mut Sessions,
) -> io::Result<()> {
    let considered = row.considered.as_ref();
    let decision = considered.map(|considered| Decision::of(considered, sessions));
    write_line(out, row, start_ms, decision)
}

fn write_line(
    out: &mut Vec<u8>,
    row: &Recorded,
    start_ms: f64,
    decision: Option<Decision>,
) -> io::Result<()> {
    let at = |time: Time| {
        let ms = start_ms + time.nanos() as f64 / 1e6;
        (ms * 1e3).round() / 1e3
    };
    let known_at = |known: Option<Known>| known.map(|known| at(known.at));
    let line = Line {
        schema: SCHEMA_VERSION,
        decided_at_ms: at(row.decided_at),
        model: &row.class.model,
        accelerator: row.class.accelerator.as_str(),
        role: row.class.role.as_str(),
        endpoint: row.endpoint.as_str(),
        slot: row.slot,
        features: Named(&row.row),
        ttft_ms: row.ttft.map(|known| known.ms),
        ttft_known_at_ms: known_at(row.ttft),
        itl_ms: row.itl.map(|known| known.ms),
        itl_known_at_ms: known_at(row.itl),
        itl_so_far: row
            .itl_so_far
            .iter()
            .map(|known| SoFar { ms: known.ms, known_at_ms: at(known.at) })
            .collect(),
        steps: row
            .steps
            .iter()
            .map(|(time, step)| (at(*time), step.step_ms, step.streams, step.kv_tokens))
            .collect(),
        e2e_ms: row.e2e.map(|known| known.ms),
        e2e_known_at_ms: known_at(row.e2e),
        output_tokens: row.output_tokens,
        end: row.end,
        rung: row.rung.as_str(),
        decision,
    };
    let from = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, &line) {
        // Half a line would spoil the next one.
        out.truncate(from);
        return Err(error.into());
    }
    out.push(b'\n');
    Ok(())
}
