//! A request that has gone to an endpoint, and its response as it passes.

use std::fmt::Write as _;

use proto::ext_proc::HeaderMutation;
use router::{End, Observer, Routed};
use types::Time;

use crate::headers::{Received, set};

/// Longest explanation put in a header, in bytes. Envoy refuses 60 KiB of headers in all.
const EXPLANATION_BYTES: usize = 16 << 10;

/// A response that is being watched. Dropping it means that the client is gone.
#[derive(Debug)]
pub(crate) struct Serving {
    observer: Observer,
    rung: &'static str,
    explanation: Option<String>,
}

impl Serving {
    pub(crate) fn new(routed: Routed) -> Self {
        Self {
            rung: routed.rung.as_str(),
            explanation: routed.explanation.as_deref().and_then(header_text),
            observer: Observer::new(routed.flight),
        }
    }

    /// The headers of the response came at `now`, from `served` if the proxy says who that was.
    pub(crate) fn head(&mut self, headers: Received<'_>, served: Option<&str>, now: Time) {
        if let Some(address) = served {
            self.observer.served_by(address, now);
        }
        let status = headers.get(":status").and_then(|text| text.parse().ok()).unwrap_or(0);
        self.observer.head(status, headers.get("content-type"), now);
    }

    /// What to tell the client in headers. `marker` adds the one that llm-d sets.
    pub(crate) fn mutation(&mut self, marker: bool) -> HeaderMutation {
        let endpoint = self.observer.endpoint().id.to_string();
        let mut set_headers = Vec::with_capacity(4);
        set_headers.push(set("x-slackline-endpoint", endpoint));
        set_headers.push(set("x-slackline-rung", self.rung));
        if let Some(explanation) = self.explanation.take() {
            set_headers.push(set("x-slackline-explanation", explanation));
        }
        if marker {
            set_headers.push(set("x-went-into-resp-headers", "true"));
        }
        HeaderMutation { set_headers, remove_headers: Vec::new() }
    }

    /// `bytes` of the body came at `now`.
    pub(crate) fn chunk(&mut self, bytes: &[u8], now: Time) {
        self.observer.chunk(bytes, now);
    }

    /// The response ended at `now`.
    pub(crate) fn end(self, now: Time) {
        self.observer.end(End::Complete, now);
    }

    /// The proxy stopped showing the response at `now`. A client that leaves after the end marker
    /// has all it wanted.
    pub(crate) fn leave(self, now: Time) {
        if self.observer.is_done() {
            self.end(now);
        }
    }
}

/// `explanation` as JSON that a header can carry: visible ASCII, of bounded length.
fn header_text(explanation: &schedule::Explanation) -> Option<String> {
    let json = serde_json::to_string(explanation).ok()?;
    Some(in_ascii(json))
}

fn in_ascii(json: String) -> String {
    if json.len() > EXPLANATION_BYTES {
        return format!("{{\"omitted_bytes\":{}}}", json.len());
    }
    if json.is_ascii() {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
            continue;
        }
        // Outside ASCII JSON only has characters inside strings, where an escape means the same.
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_str, json};

    use super::*;

    #[test]
    fn an_explanation_in_a_header_is_ascii_and_still_the_same_json() {
        let value = json!({"endpoint": "default/größe-🚀", "cost": 1.5});
        let text = in_ascii(value.to_string());
        assert!(text.is_ascii());
        assert_eq!(from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn an_explanation_too_long_for_a_header_is_left_out() {
        let text = in_ascii(json!("a".repeat(EXPLANATION_BYTES)).to_string());
        assert_eq!(text, r#"{"omitted_bytes":16386}"#);
    }
}
