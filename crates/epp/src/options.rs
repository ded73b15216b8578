//! What configuration says about the `ext_proc` front.

use serde::Deserialize;

/// Tuning of the `ext_proc` front. Addresses are not here: listeners are handed in, and they carry
/// plaintext HTTP/2 (no TLS yet: run it beside the proxy or inside a mesh).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Longest request body held to find the prompt, in bytes. A longer one is answered 413.
    pub max_body_bytes: usize,
    /// Whether to mark every response with `x-went-into-resp-headers: true`, as llm-d does.
    pub response_marker: bool,
    /// How long streams in flight may go on after shutdown began, in milliseconds.
    pub drain_timeout_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_body_bytes: 2 << 20, response_marker: false, drain_timeout_ms: 30_000 }
    }
}
