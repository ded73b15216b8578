//! Watches the bytes of an answer as they pass: tokens, usage, end marker, errors.
//!
//! The bytes may be cut anywhere; the sum of what is seen does not depend on it. Memory is bounded
//! whatever the endpoint sends.

use super::{
    chunk::{Chunk, Usage, read_chunk},
    sse::{IDLE_BYTES, Line, Lines, MAX_LINE_BYTES},
};

/// The longest JSON answer that is kept to read its usage.
const MAX_JSON_BYTES: usize = 8 << 20;

/// How an answer is to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `text/event-stream`: one event per chunk.
    EventStream,
    /// JSON: one object.
    Json,
    /// Anything else: not read.
    Other,
}

impl Kind {
    /// The kind of answer that the header `content-type` announces.
    pub fn of(content_type: Option<&str>) -> Self {
        let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("text/event-stream") {
            Self::EventStream
        } else if media.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else {
            Self::Other
        }
    }
}

/// What one call saw. Over the calls of an answer tokens add up, and the last usage counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// Token events: choices of chunks with generated content. A chunk with only a role or with empty
    /// content is none. Always zero for JSON, which tells no times.
    pub tokens: u32,
    /// The usage, if it was stated.
    pub usage: Option<Usage>,
    /// Whether the answer said that it is whole: `[DONE]`, or a complete JSON object.
    pub done: bool,
    /// Whether the answer said that it failed.
    pub error: bool,
}

impl Seen {
    fn add(&mut self, chunk: Chunk) {
        self.tokens = self.tokens.saturating_add(chunk.tokens);
        self.usage = chunk.usage.or(self.usage);
        self.error |= chunk.error;
    }
}

/// Reads one answer.
#[derive(Debug)]
pub struct ResponseScanner(Reader);

#[derive(Debug)]
enum Reader {
    Events { lines: Lines, event: Event },
    Json { body: Vec<u8> },
    Nothing,
}

impl ResponseScanner {
    /// A scanner for an answer of this kind.
    pub fn new(kind: Kind) -> Self {
        Self(match kind {
            Kind::EventStream => {
                Reader::Events { lines: Lines::default(), event: Event::default() }
            }
            Kind::Json => Reader::Json { body: Vec::new() },
            Kind::Other => Reader::Nothing,
        })
    }

    /// Takes the next bytes of the body and tells what became known with them.
    pub fn push(&mut self, bytes: &[u8]) -> Seen {
        let mut seen = Seen::default();
        match &mut self.0 {
            Reader::Events { lines, event } => {
                lines.push(bytes, |line| event.line(line, &mut seen));
            }
            Reader::Json { body } if body.len() + bytes.len() <= MAX_JSON_BYTES => {
                body.extend_from_slice(bytes);
            }
            Reader::Json { .. } => self.0 = Reader::Nothing,
            Reader::Nothing => {}
        }
        seen
    }

    /// Tells what became known with the end of the body. A second call tells nothing new.
    pub fn finish(&mut self) -> Seen {
        let mut seen = Seen::default();
        match std::mem::replace(&mut self.0, Reader::Nothing) {
            Reader::Events { mut lines, mut event } => {
                lines.finish(|line| event.line(line, &mut seen));
                event.end(&mut seen);
            }
            Reader::Json { body } => {
                if let Some(chunk) = read_chunk(&body) {
                    seen.add(Chunk { tokens: 0, ..chunk });
                    seen.done = !chunk.error;
                }
            }
            Reader::Nothing => {}
        }
        seen
    }
}

/// The event that is being received.
///
/// A data line that is a whole object counts at once, without waiting for the empty line that ends
/// its event; only objects that span several lines are put together first.
#[derive(Debug, Default)]
struct Event {
    data: Vec<u8>,
    /// The event is above the bound, and its data is dropped.
    is_long: bool,
    /// A line has passed, so a byte order mark can no longer come.
    is_begun: bool,
}

impl Event {
    fn line(&mut self, line: Line<'_>, seen: &mut Seen) {
        let (line, is_long) = match line {
            Line::Whole(line) => (line, false),
            Line::Long(start) => (start, true),
        };
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if !self.is_begun => rest,
            _ => line,
        };
        self.is_begun = true;
        if line.is_empty() {
            self.end(seen);
        } else if let Some(data) = value_of(line, b"data") {
            if is_long {
                self.drop_data();
            } else {
                self.data(data, seen);
            }
        } else if value_of(line, b"event") == Some(b"error") {
            seen.error = true;
        }
    }

    fn data(&mut self, data: &[u8], seen: &mut Seen) {
        if self.is_long {
            return;
        }
        if self.data.is_empty() {
            if data.trim_ascii() == b"[DONE]" {
                seen.done = true;
            } else if let Some(chunk) = read_chunk(data) {
                seen.add(chunk);
            } else {
                self.data.extend_from_slice(data);
            }
        } else if self.data.len() + data.len() < MAX_LINE_BYTES {
            self.data.push(b'\n');
            self.data.extend_from_slice(data);
        } else {
            self.drop_data();
        }
    }

    fn drop_data(&mut self) {
        self.is_long = true;
        self.data = Vec::new();
    }

    /// Ends the event. One above the bound counts as a token: only a chunk of tokens, with their
    /// probabilities, gets that long.
    fn end(&mut self, seen: &mut Seen) {
        if self.is_long {
            seen.tokens = seen.tokens.saturating_add(1);
        } else if !self.data.is_empty()
            && let Some(chunk) = read_chunk(&self.data)
        {
            seen.add(chunk);
        }
        self.is_long = false;
        self.data.clear();
        self.data.shrink_to(IDLE_BYTES);
    }
}

/// The value of `line` if its field is `name`.
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
