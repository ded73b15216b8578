//! Reads workloads of `AIBrix`: JSON lines of requests that go out at one instant, with sessions.
//!
//! The prompt of a session is what its user adds: its conversation so far goes before it. Without a
//! session, equal texts are equal prompts.

use std::{collections::HashMap, io::BufRead, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use twox_hash::XxHash3_64;

use super::{Arrival, BlockSource, Part, TraceError, draw::spread, source::each_line};

/// Bytes of text per token where only the text is there.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of an answer whose length is not there.
const OUTPUT_TOKENS: u32 = 200;
/// A conversation begins anew before it is longer than this.
const MAX_CONTEXT: u32 = 120_000;

#[derive(Deserialize)]
struct Line {
    /// Milliseconds.
    timestamp: f64,
    requests: Option<Vec<Asked>>,
    #[serde(flatten)]
    only: Asked,
}

#[derive(Default, Deserialize)]
struct Asked {
    #[serde(default, alias = "Prompt Length")]
    prompt_length: Option<u32>,
    #[serde(default, alias = "Output Length")]
    output_length: Option<u32>,
    #[serde(default, alias = "Prompt")]
    prompt: Option<String>,
    /// A number or a text.
    #[serde(default)]
    session_id: Option<Value>,
}

/// A conversation so far.
struct Talk {
    number: u32,
    parts: Vec<Part>,
    tokens: u32,
}

/// Whether `head`, the start of a file, is of this format.
pub(super) fn fits(head: &str) -> bool {
    ["\"requests\"", "\"prompt_length\"", "\"Prompt Length\""].iter().any(|key| head.contains(key))
}

pub(super) fn read(file: &str, lines: impl BufRead) -> Result<Vec<Arrival>, TraceError> {
    let mut asked = Vec::new();
    each_line(file, lines, |line, text| {
        let wrong = |problem: String| TraceError::Line { file: file.to_owned(), line, problem };
        let Line { timestamp, requests, only } = serde_json::from_str(text)
            .map_err(|error| wrong(format!("not a JSON object of an AIBrix workload: {error}")))?;
        if !(0.0..1e15).contains(&timestamp) {
            return Err(wrong("`timestamp` is not a number of milliseconds".to_owned()));
        }
        let requests = requests.unwrap_or_else(|| vec![only]);
        asked.extend(requests.into_iter().map(|request| (timestamp, request)));
        Ok(())
    })?;
    asked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = asked.first().map_or(0.0, |(at, _)| *at);
    let mut talks = HashMap::new();
    let arrival = |(index, (at_ms, asked)): (u64, (f64, Asked))| {
        let at = Duration::from_nanos(((at_ms - first) * 1e6) as u64);
        arrival(&mut talks, index, at, &asked)
    };
    Ok((0..).zip(asked).map(arrival).collect())
}

fn arrival(talks: &mut HashMap<String, Talk>, index: u64, at: Duration, asked: &Asked) -> Arrival {
    let text_tokens = asked.prompt.as_ref().map(|text| text.len().div_ceil(BYTES_PER_TOKEN) as u32);
    let added = asked.prompt_length.or(text_tokens).unwrap_or(1).clamp(1, MAX_CONTEXT);
    let output_tokens = asked.output_length.unwrap_or(OUTPUT_TOKENS).clamp(1, MAX_CONTEXT);
    let Some(session) = &asked.session_id.as_ref().filter(|id| !id.is_null()) else {
        let blocks = asked.prompt.as_ref().map_or(BlockSource::Unique(index), |text| {
            let content = XxHash3_64::oneshot(text.as_bytes());
            BlockSource::Parts(Arc::new([Part { content, tokens: added }]))
        });
        return Arrival {
            at,
            prompt_tokens: added,
            output_tokens,
            blocks,
            session: None,
            class: 0,
        };
    };
    let number = talks.len() as u32;
    let talk = talks.entry(session.to_string()).or_insert_with(|| Talk {
        number,
        parts: Vec::new(),
        tokens: 0,
    });
    let whole = talk.tokens.saturating_add(added).saturating_add(output_tokens);
    if whole > MAX_CONTEXT {
        (talk.parts, talk.tokens) = (Vec::new(), 0);
    }
    // Question and answer are one piece, which no other conversation has.
    talk.parts.push(Part { content: spread(index), tokens: added + output_tokens });
    let prompt_tokens = talk.tokens + added;
    talk.tokens = prompt_tokens + output_tokens;
    let blocks = BlockSource::Parts(talk.parts.as_slice().into());
    Arrival { at, prompt_tokens, output_tokens, blocks, session: Some(talk.number), class: 0 }
}

#[cfg(test)]
mod tests {
    use crate::workload::{Trace, TraceError, TraceOptions, engine_blocks};

    fn trace(text: &str) -> Result<Trace, TraceError> {
        Trace::read("w.jsonl", text.as_bytes(), &TraceOptions::default())
    }

    #[test]
    fn a_session_grows_and_its_next_prompt_starts_with_what_went_before() {
        let text = r#"{"timestamp": 100, "requests": [{"prompt": "a", "prompt_length": 320, "output_length": 64, "session_id": 0}, {"prompt": "b", "prompt_length": 50, "output_length": null, "session_id": 1}]}
{"timestamp": 900, "requests": [{"prompt": "c", "prompt_length": 32, "output_length": 16, "session_id": 0}]}"#;
        let arrivals = trace(text).unwrap().arrivals;
        assert_eq!(arrivals.len(), 3);
        let (first, next) = (&arrivals[0], &arrivals[2]);
        assert_eq!((first.prompt_tokens, next.prompt_tokens), (320, 320 + 64 + 32));
        assert_eq!((first.session, next.session), (Some(0), Some(0)));
        assert_eq!(next.at.as_millis(), 800);
        let (first, next) = (engine_blocks(first), engine_blocks(next));
        assert_eq!(first[..], next[..24]);
        assert_eq!(arrivals[1].output_tokens, 200);
    }

    #[test]
    fn lengths_alone_and_texts_alone_are_read_too() {
        let text = "{\"timestamp\": 5, \"Prompt Length\": 70, \"Output Length\": 9}\n\
                    {\"timestamp\": 6, \"requests\": [{\"prompt\": \"one and the same prompt\"}]}\n\
                    {\"timestamp\": 7, \"requests\": [{\"prompt\": \"one and the same prompt\"}]}";
        let arrivals = trace(text).unwrap().arrivals;
        assert_eq!((arrivals[0].prompt_tokens, arrivals[0].output_tokens), (70, 9));
        assert_eq!(arrivals[1].prompt_tokens, 6);
        assert_eq!(arrivals[1].blocks, arrivals[2].blocks);
    }

    #[test]
    fn a_bad_line_is_named() {
        let text = "{\"timestamp\": 5, \"requests\": []}\n{\"timestamp\": \"x\"}";
        let error = trace(text).unwrap_err().to_string();
        assert!(error.starts_with("w.jsonl:2: not a JSON object of an AIBrix workload"), "{error}");
    }
}
