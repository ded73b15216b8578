//! One inference request, as the rooms behind the fronts see it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Address, Millis};

/// What the caller was promised for one request. A missing ceiling is no promise.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slo {
    /// Ceiling on the time to first token.
    #[serde(rename = "ttft_ms")]
    pub ttft: Option<Millis>,
    /// Ceiling on the mean time per output token after the first (TPOT).
    #[serde(rename = "itl_ms")]
    pub itl: Option<Millis>,
}

impl Slo {
    /// Whether nothing was promised.
    pub fn is_empty(self) -> bool {
        self.ttft.is_none() && self.itl.is_none()
    }

    /// Whether latencies that were seen (in milliseconds; `itl_ms` is `None` for fewer than two
    /// tokens) keep the promise.
    pub fn is_met(self, ttft_ms: f32, itl_ms: Option<f32>) -> bool {
        self.ttft.is_none_or(|limit| ttft_ms <= limit.get())
            && self.itl.is_none_or(|limit| itl_ms.is_none_or(|itl_ms| itl_ms <= limit.get()))
    }
}

/// Which part of the OpenAI API a request speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Api {
    /// The API of a request path; the query is ignored. `None` for any other path.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.split('?').next().unwrap_or_default() {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            _ => None,
        }
    }
}

/// One inference request, parsed once at the edge.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identity in logs and traces; never a metric label.
    pub id: Arc<str>,
    /// Model asked for.
    pub model: Arc<str>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Bytes of prompt text (or four per token id).
    pub prompt_bytes: u32,
    /// Prompt length in tokens where the caller sent token ids; else unknown until usage tells.
    pub prompt_tokens: Option<u32>,
    /// The caller's bound on output tokens.
    pub max_tokens: Option<u32>,
    /// Rolling hashes of the prompt, one per block, see the `prefix` room.
    pub blocks: Arc<[u64]>,
    /// The objective the caller asked for.
    pub slo: Slo,
    /// Tenant or route it belongs to, as far as the caller's headers tell; never a metric label.
    pub scope: Option<Arc<str>>,
    /// Conversation it belongs to, as far as the caller's headers tell; never a metric label.
    pub session: Option<Arc<str>>,
    /// What a miss of it weighs beside those of others; 1 where nothing else is said.
    pub weight: f32,
    /// If present, only these endpoints may serve it; an empty list allows none.
    pub subset: Option<Vec<SubsetEntry>>,
    /// Whether the caller wants the reasons of the decision.
    pub explain: bool,
}

/// One entry of a subset hint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SubsetEntry {
    /// This address exactly.
    Address(Address),
    /// Every port of this host.
    Host(String),
}

impl SubsetEntry {
    /// Reads `host`, `host:port`, `v6` or `[v6]:port`; what is neither matches nothing.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Ok(address) = text.parse() {
            return Self::Address(address);
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        Self::Host(bare.to_owned())
    }

    /// Whether `address` is meant.
    pub fn matches(&self, address: &Address) -> bool {
        match self {
            Self::Address(wanted) => wanted == address,
            Self::Host(host) => host == address.host(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_cannot_miss_an_itl_objective() {
        let slo = Slo { ttft: Millis::new(100.0), itl: Millis::new(10.0) };
        assert!(slo.is_met(100.0, None));
        assert!(!slo.is_met(100.0, Some(10.5)));
        assert!(!slo.is_met(100.5, None));
        assert!(Slo::default().is_met(1e9, Some(1e9)));
    }

    #[test]
    fn subset_entries_match_with_and_without_port() {
        let v4: Address = "10.0.0.1:8000".parse().unwrap();
        let v6: Address = "[2001:db8::1]:8000".parse().unwrap();
        assert!(SubsetEntry::parse("10.0.0.1").matches(&v4));
        assert!(SubsetEntry::parse(" 10.0.0.1:8000").matches(&v4));
        assert!(!SubsetEntry::parse("10.0.0.1:8001").matches(&v4));
        assert!(SubsetEntry::parse("2001:db8::1").matches(&v6));
        assert!(SubsetEntry::parse("[2001:db8::1]:8000").matches(&v6));
        assert!(!SubsetEntry::parse("").matches(&v4));
    }

    #[test]
    fn only_generation_paths_have_an_api() {
        assert_eq!(Api::of_path("/v1/chat/completions?x=1"), Some(Api::Chat));
        assert_eq!(Api::of_path("/v1/completions"), Some(Api::Completions));
        assert_eq!(Api::of_path("/v1/models"), None);
    }
}
