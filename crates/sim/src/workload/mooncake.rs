//! Reads Mooncake traces: JSON lines with the prefix identity of every prompt.

use std::{io::BufRead, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Arrival, BlockSource, TRACE_BLOCK_TOKENS, TraceError, source::each_line};

/// The grid of the published timestamps, in milliseconds: no arrival is moved further.
const GROUP_MS: f64 = 3_000.0;

/// One line; values stay raw until they are read, so that an error can name its field.
#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    input_length: Option<&'a RawValue>,
    #[serde(borrow)]
    output_length: Option<&'a RawValue>,
    #[serde(borrow)]
    hash_ids: Option<&'a RawValue>,
}

/// Where a value stands, for errors.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: u64,
}

impl Place<'_> {
    fn field(self, field: &'static str, problem: impl Into<String>) -> TraceError {
        let problem = problem.into();
        TraceError::Field { file: self.file.to_owned(), line: self.line, field, problem }
    }

    fn value<T: DeserializeOwned>(
        self,
        field: &'static str,
        raw: Option<&RawValue>,
        wanted: &str,
    ) -> Result<T, TraceError> {
        let raw = raw.ok_or_else(|| self.field(field, "is missing"))?;
        serde_json::from_str(raw.get()).map_err(|_| self.field(field, format!("is not {wanted}")))
    }
}

pub(super) fn read(file: &str, lines: impl BufRead, seed: u64) -> Result<Vec<Arrival>, TraceError> {
    let mut stamped = Vec::new();
    each_line(file, lines, |line, text| {
        stamped.push(read_row(Place { file, line }, text)?);
        Ok(())
    })?;
    stamped.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(spread(stamped, seed))
}

/// The timestamp in milliseconds and the request, which has no time yet.
fn read_row(place: Place<'_>, text: &str) -> Result<(f64, Arrival), TraceError> {
    let row: Row<'_> = serde_json::from_str(text).map_err(|error| TraceError::Line {
        file: place.file.to_owned(),
        line: place.line,
        problem: format!("not a JSON object of a Mooncake trace: {error}"),
    })?;
    let at_ms: f64 = place.value("timestamp", row.timestamp, "a number of milliseconds")?;
    if !(0.0..1e15).contains(&at_ms) {
        return Err(place.field("timestamp", "is not a number of milliseconds"));
    }
    let prompt_tokens: u32 = place.value("input_length", row.input_length, "a token count")?;
    let output_tokens: u32 = place.value("output_length", row.output_length, "a token count")?;
    let prompt_tokens = prompt_tokens.max(1);
    let mut ids: Vec<u32> = place.value("hash_ids", row.hash_ids, "a list of block numbers")?;
    let needed = prompt_tokens.div_ceil(TRACE_BLOCK_TOKENS) as usize;
    if ids.len() < needed {
        let problem = format!("has {} blocks, {prompt_tokens} tokens need {needed}", ids.len());
        return Err(place.field("hash_ids", problem));
    }
    ids.truncate(needed);
    let blocks = BlockSource::Shared(Arc::from(ids));
    let output_tokens = output_tokens.max(1);
    let at = Duration::ZERO;
    let (session, class) = (None, 0);
    Ok((at_ms, Arrival { at, prompt_tokens, output_tokens, blocks, session, class }))
}

/// Gives every arrival its time: uniform over the group that its timestamp stands for.
///
/// The published timestamps lie on a grid of 3 s, which would be bursts that never happened. A group
/// is as long as the smallest step between timestamps, so finer timestamps stay nearly as they are.
fn spread(stamped: Vec<(f64, Arrival)>, seed: u64) -> Vec<Arrival> {
    let window_ms = stamped
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .filter(|gap| *gap > 0.0)
        .fold(GROUP_MS, f64::min);
    let first_ms = stamped.first().map_or(0.0, |(at_ms, _)| *at_ms);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut arrivals: Vec<Arrival> = stamped
        .into_iter()
        .map(|(at_ms, arrival)| {
            let at_ms = at_ms - first_ms + rng.random_range(0.0..window_ms);
            Arrival { at: Duration::from_nanos((at_ms * 1e6) as u64), ..arrival }
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Trace, TraceOptions};

    fn row(timestamp: &str, input: &str, ids: &str) -> String {
        format!(
            r#"{{"timestamp": {timestamp}, "input_length": {input}, "output_length": 5, "hash_ids": {ids}}}"#
        )
    }

    fn trace(text: &str, seed: u64) -> Result<Trace, TraceError> {
        Trace::read("t.jsonl", text.as_bytes(), &TraceOptions { seed, ..TraceOptions::default() })
    }

    #[test]
    fn grouped_arrivals_are_spread_over_their_group() {
        let groups = [0, 3_000, 6_000, 12_000];
        let lines: Vec<String> = groups
            .iter()
            .flat_map(|at| (0..40).map(move |_| row(&at.to_string(), "600", "[1, 2]")))
            .collect();
        let arrivals = trace(&lines.join("\n"), 7).unwrap().arrivals;
        for (group, start) in arrivals.chunks(40).zip(groups) {
            let start = Duration::from_millis(start);
            let window = start..start + Duration::from_secs(3);
            assert!(group.iter().all(|a| window.contains(&a.at)));
            let halves = group.iter().filter(|a| a.at < start + Duration::from_millis(1_500));
            assert!((8..=32).contains(&halves.count()));
        }
        assert_eq!(trace(&lines.join("\n"), 7).unwrap().arrivals, arrivals);
        assert_ne!(trace(&lines.join("\n"), 8).unwrap().arrivals, arrivals);
    }

    #[test]
    fn precise_timestamps_stay_where_they_are() {
        let lines =
            [("10", "[1]"), ("11", "[2]"), ("900", "[3]")].map(|(at, ids)| row(at, "9", ids));
        let arrivals = trace(&lines.join("\n"), 1).unwrap().arrivals;
        for (arrival, at) in arrivals.iter().zip([0, 1, 890]) {
            assert!(arrival.at.abs_diff(Duration::from_millis(at)) <= Duration::from_millis(1));
        }
    }

    #[test]
    fn a_bad_line_is_named_with_its_field() {
        let good = row("0", "9", "[1]");
        for (bad, expected) in [
            (row("-1", "9", "[1]"), "t.jsonl:2: `timestamp` is not a number of milliseconds"),
            (row("0", "\"9\"", "[1]"), "t.jsonl:2: `input_length` is not a token count"),
            (row("0", "513", "[1]"), "t.jsonl:2: `hash_ids` has 1 blocks, 513 tokens need 2"),
            (row("0", "9", "[-1]"), "t.jsonl:2: `hash_ids` is not a list of block numbers"),
            ("{\"timestamp\": 1}".to_owned(), "t.jsonl:2: `input_length` is missing"),
        ] {
            let error = trace(&format!("{good}\n{bad}\n"), 0).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let error = trace(&format!("{good}\n\nnonsense\n"), 0).unwrap_err();
        assert!(error.to_string().starts_with("t.jsonl:3: not a JSON object"), "{error}");
    }
}
