//! Watches one streamed answer: when tokens came, how many, and how it ended.

use serde::Deserialize;
use serde_json::value::RawValue;
use types::Time;

use crate::report::Failure;

/// Longest line kept; a longer one is no token.
const MAX_LINE: usize = 1 << 20;

/// What a stream told so far. Bytes may be cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Observer {
    line: Vec<u8>,
    first: Option<Time>,
    last: Option<Time>,
    gaps_ms: Vec<f32>,
    chunks: u32,
    usage_tokens: Option<u32>,
    /// Whether a choice said why it ended.
    finished: bool,
    /// Whether `[DONE]` was seen.
    done: bool,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: Option<u32>,
}

impl Choice<'_> {
    fn has_output(&self) -> bool {
        let delta = self.delta.as_ref();
        [
            self.text,
            delta.and_then(|delta| delta.content),
            delta.and_then(|delta| delta.reasoning_content),
            delta.and_then(|delta| delta.reasoning),
            delta.and_then(|delta| delta.tool_calls),
        ]
        .into_iter()
        .flatten()
        .any(|value| !matches!(value.get(), "\"\"" | "[]"))
    }
}

impl Observer {
    /// Takes the next bytes of the body, which came at `now`. Returns whether the answer is complete
    /// or has failed, so that nothing more matters.
    pub(super) fn push(&mut self, mut bytes: &[u8], now: Time) -> bool {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.line.is_empty() {
                self.take_line(head, now);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.take_line(&line, now);
                line.clear();
                self.line = line;
            }
            if self.done || self.failure.is_some() {
                return true;
            }
        }
        if self.line.len() + bytes.len() > MAX_LINE {
            self.failure = Some(Failure::Malformed);
            return true;
        }
        self.line.extend_from_slice(bytes);
        false
    }

    fn take_line(&mut self, line: &[u8], now: Time) {
        let line = line.trim_ascii();
        if let Some(event) = line.strip_prefix(b"event:") {
            if event.trim_ascii() == b"error" {
                self.failure = Some(Failure::ErrorEvent);
            }
            return;
        }
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
            return;
        };
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        match serde_json::from_slice::<Chunk<'_>>(data) {
            Err(_) => self.failure = Some(Failure::Malformed),
            Ok(chunk) if chunk.error.is_some() => self.failure = Some(Failure::ErrorEvent),
            Ok(chunk) => self.take_chunk(&chunk, now),
        }
    }

    fn take_chunk(&mut self, chunk: &Chunk<'_>, now: Time) {
        if let Some(tokens) = chunk.usage.as_ref().and_then(|usage| usage.completion_tokens) {
            self.usage_tokens = Some(tokens);
        }
        self.finished |= chunk.choices.iter().any(|choice| choice.finish_reason.is_some());
        if !chunk.choices.iter().any(Choice::has_output) {
            return;
        }
        self.chunks += 1;
        self.first.get_or_insert(now);
        if let Some(last) = self.last.replace(now) {
            self.gaps_ms.push(now.ms_since(last));
        }
    }

    /// When the first token came; a complete answer without visible text counts from its `end`.
    pub(super) fn first(&self, end: Time) -> Option<Time> {
        self.first
            .or_else(|| (self.failure().is_none() && self.usage_tokens > Some(0)).then_some(end))
    }

    /// Why the answer is none, if it ended here.
    pub(super) fn failure(&self) -> Option<Failure> {
        let complete = self.done || self.finished;
        self.failure.or((!complete).then_some(Failure::Truncated))
    }

    /// Tokens generated, as usage tells, else one per chunk.
    pub(super) fn output_tokens(&self) -> u32 {
        self.usage_tokens.unwrap_or(self.chunks)
    }

    /// Mean time per token after the first, from the first to the last chunk.
    pub(super) fn itl_ms(&self) -> Option<f32> {
        let (first, last) = (self.first?, self.last?);
        let tokens = self.output_tokens().max(self.chunks);
        (self.chunks > 1).then(|| last.ms_since(first) / (tokens - 1) as f32)
    }

    /// The gaps between chunks with text, in milliseconds.
    pub(super) fn into_gaps_ms(self) -> Vec<f32> {
        self.gaps_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn chat(text: &str) -> String {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
        )
    }

    #[test]
    fn the_first_token_is_the_first_text() {
        let mut observer = Observer::default();
        let role =
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        assert!(!observer.push(role.as_bytes(), at(1)));
        for (text, ms) in [("a", 10), ("b", 14), ("c", 30)] {
            assert!(!observer.push(chat(text).as_bytes(), at(ms)));
        }
        let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\n";
        assert!(!observer.push(usage.as_bytes(), at(31)));
        assert!(observer.push(b"data: [DONE]\n\n", at(32)));
        assert_eq!(observer.first(at(32)), Some(at(10)));
        assert_eq!(observer.itl_ms(), Some(10.0));
        assert_eq!(observer.output_tokens(), 3);
        assert_eq!(observer.failure(), None);
        assert_eq!(observer.into_gaps_ms(), [4.0, 16.0]);
    }

    #[test]
    fn cuts_make_no_difference() {
        let body = format!(": hello\r\n{}{}data: [DONE]\n\n", chat("a"), chat("b"));
        let mut observer = Observer::default();
        for (ms, byte) in (0..).zip(body.as_bytes()) {
            observer.push(&[*byte], at(ms));
        }
        assert_eq!(observer.failure(), None);
        assert_eq!(observer.output_tokens(), 2);
    }

    #[test]
    fn several_tokens_in_a_chunk_share_its_gap() {
        let mut observer = Observer::default();
        let text = |t: &str| format!("data: {{\"choices\":[{{\"text\":\"{t}\"}}]}}\n");
        observer.push(text("a").as_bytes(), at(0));
        observer.push(text("b c").as_bytes(), at(40));
        observer.push(b"data: {\"usage\":{\"completion_tokens\":5}}\n", at(40));
        assert_eq!(observer.itl_ms(), Some(10.0));
    }

    #[test]
    fn every_bad_end_has_its_kind() {
        for (body, expected) in [
            (chat("a"), Failure::Truncated),
            ("data: {\"error\":{\"message\":\"x\"}}\n".to_owned(), Failure::ErrorEvent),
            ("event: error\ndata: {}\n".to_owned(), Failure::ErrorEvent),
            ("data: {oops\n".to_owned(), Failure::Malformed),
            ("<html>".to_owned(), Failure::Truncated),
        ] {
            let mut observer = Observer::default();
            observer.push(body.as_bytes(), at(0));
            assert_eq!(observer.failure(), Some(expected), "{body}");
        }
        let mut endless = Observer::default();
        assert!(endless.push(&vec![b'x'; MAX_LINE + 1], at(0)));
        assert_eq!(endless.failure(), Some(Failure::Malformed));
    }

    #[test]
    fn a_finish_reason_ends_an_answer_without_an_end_marker() {
        let mut observer = Observer::default();
        observer.push(chat("a").as_bytes(), at(0));
        let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n";
        observer.push(stop.as_bytes(), at(1));
        assert_eq!(observer.failure(), None);
        assert_eq!(observer.itl_ms(), None);
    }
}
