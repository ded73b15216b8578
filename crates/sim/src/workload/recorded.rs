//! Reads rows that `slackline serve --record` wrote, as requests.
//!
//! Rows tell how many tokens of a prompt were cached, not which: the cached part of every prompt is the
//! beginning of one text that all share. So a replay finds about as much cached as was, but as soon as
//! one request has brought a beginning to an endpoint, all others find it there.

use std::{io::BufRead, sync::Arc, time::Duration};

use serde::Deserialize;

use super::{Arrival, BlockSource, Part, TraceError, source::each_line};

/// The text that all prompts share.
const SHARED: u64 = u64::MAX;

#[derive(Deserialize)]
struct Row {
    decided_at_ms: f64,
    features: Features,
    output_tokens: u32,
}

#[derive(Deserialize)]
struct Features {
    prompt_tokens: f64,
    uncached_tokens: f64,
}

/// Whether `head`, the start of a file, is of this format.
pub(super) fn fits(head: &str) -> bool {
    head.contains("\"decided_at_ms\"")
}

pub(super) fn read(file: &str, lines: impl BufRead) -> Result<Vec<Arrival>, TraceError> {
    let mut rows = Vec::new();
    each_line(file, lines, |line, text| {
        let row: Row = serde_json::from_str(text).map_err(|error| TraceError::Line {
            file: file.to_owned(),
            line,
            problem: format!("not a recorded row: {error}"),
        })?;
        rows.push(row);
        Ok(())
    })?;
    rows.sort_by(|a, b| a.decided_at_ms.total_cmp(&b.decided_at_ms));
    let first = rows.first().map_or(0.0, |row| row.decided_at_ms);
    let arrival = |(index, row): (u64, Row)| {
        let prompt_tokens = (row.features.prompt_tokens as u32).max(1);
        // A router counts one token of every prompt as uncached, and so do engines.
        let uncached = (row.features.uncached_tokens as u32).clamp(1, prompt_tokens);
        let parts = [
            Part { content: SHARED, tokens: prompt_tokens - uncached },
            Part { content: index, tokens: uncached },
        ];
        Arrival {
            at: Duration::from_nanos(((row.decided_at_ms - first) * 1e6) as u64),
            prompt_tokens,
            output_tokens: row.output_tokens.max(1),
            blocks: BlockSource::Parts(Arc::new(parts)),
            session: None,
            class: 0,
        }
    };
    Ok((0..).zip(rows).map(arrival).collect())
}

#[cfg(test)]
mod tests {
    use crate::workload::{Trace, TraceOptions, engine_blocks};

    #[test]
    fn rows_become_requests_that_share_what_was_cached() {
        let row = |at: f64, prompt: f64, uncached: f64| {
            format!(
                "{{\"schema\":1,\"decided_at_ms\":{at},\"model\":\"m\",\"features\":{{\
                 \"prompt_tokens\":{prompt:?},\"uncached_tokens\":{uncached:?}}},\
                 \"output_tokens\":7,\"end\":\"complete\"}}\n"
            )
        };
        let text = row(1_700_000_000_500.25, 320.0, 64.0) + &row(1_700_000_000_000.0, 640.0, 320.0);
        let trace = Trace::read("r.jsonl", text.as_bytes(), &TraceOptions::default()).unwrap();
        let [first, next] = &trace.arrivals[..] else { panic!("two requests") };
        assert_eq!((first.prompt_tokens, next.prompt_tokens, next.output_tokens), (640, 320, 7));
        assert_eq!(next.at.as_micros(), 500_250);
        let (first, next) = (engine_blocks(first), engine_blocks(next));
        assert_eq!(first[..16], next[..16]);
        assert_ne!(first[16], next[16]);
    }
}
