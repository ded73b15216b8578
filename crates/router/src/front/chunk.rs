//! Reads one chunk of an answer: does it carry tokens, usage or an error?

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Token counts as the endpoint states them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub completion_tokens: u32,
    /// Prompt tokens that came from the endpoint's cache, where it tells.
    pub cached_tokens: Option<u32>,
}

/// What one chunk, or one whole JSON answer, tells.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Chunk {
    /// Choices that carry something generated.
    pub(super) tokens: u32,
    /// The usage, if stated.
    pub(super) usage: Option<Usage>,
    /// Whether it is an error object.
    pub(super) error: bool,
}

/// Reads `json`; `None` if it is not an object of the kinds that engines send.
pub(super) fn read_chunk(json: &[u8]) -> Option<Chunk> {
    let wire: Wire<'_> = serde_json::from_slice(json).ok()?;
    let usage = wire.usage.and_then(|usage| serde_json::from_str::<WireUsage>(usage.get()).ok());
    Some(Chunk {
        tokens: wire.choices.0,
        usage: usage.map(Usage::from),
        error: wire.error.is_some() || wire.object.0,
    })
}

/// The members of a chunk that are read. Unknown ones are skipped.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    choices: Choices,
    /// Kept as text, so that a usage of another shape does not cost the tokens of its chunk.
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<IgnoredAny>,
    /// Older engines mark an error by `"object": "error"`.
    #[serde(default)]
    object: IsError,
}

/// The number of choices with generated content.
#[derive(Default)]
struct Choices(u32);

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    text: Filled,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Filled,
    #[serde(default)]
    reasoning: Filled,
    #[serde(default)]
    reasoning_content: Filled,
    #[serde(default)]
    tool_calls: Filled,
    #[serde(default)]
    refusal: Filled,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
}

impl Delta {
    fn is_token(&self) -> bool {
        self.content.0
            || self.reasoning.0
            || self.reasoning_content.0
            || self.tool_calls.0
            || self.refusal.0
            || self.function_call.is_some()
    }
}

impl<'de> Deserialize<'de> for Choices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(ChoicesVisitor).map(Self)
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of choices")
    }

    fn visit_none<E: Error>(self) -> Result<u32, E> {
        Ok(0)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<u32, A::Error> {
        let mut tokens = 0;
        while let Some(choice) = seq.next_element::<Choice>()? {
            tokens +=
                u32::from(choice.text.0 || choice.delta.is_some_and(|delta| delta.is_token()));
        }
        Ok(tokens)
    }
}

/// Whether a string or a list holds anything; `null` does not.
#[derive(Default)]
struct Filled(bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(FilledVisitor).map(Self)
    }
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list")
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut filled = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(filled)
    }
}

/// Whether a string says `error`; anything but a string does not.
#[derive(Default)]
struct IsError(bool);

impl<'de> Deserialize<'de> for IsError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(text.get() == "\"error\""))
    }
}

/// Token counts as the wire has them.
#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<WireDetails>,
}

#[derive(Deserialize)]
struct WireDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        Self {
            prompt_tokens: count(wire.prompt_tokens),
            completion_tokens: count(wire.completion_tokens.unwrap_or_default()),
            cached_tokens: wire.prompt_tokens_details.and_then(|d| d.cached_tokens).map(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(json: &str) -> u32 {
        read_chunk(json.as_bytes()).unwrap().tokens
    }

    #[test]
    fn only_generated_content_is_a_token() {
        for delta in [
            r#"{"role":"assistant","content":""}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[]}"#,
            r#"{"function_call":null,"reasoning":null}"#,
            "{}",
            "null",
        ] {
            assert_eq!(tokens(&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#)), 0, "{delta}");
        }
        for delta in [
            r#"{"content":" "}"#,
            r#"{"content":"\ud800"}"#,
            r#"{"content":[{"type":"text","text":"a"}]}"#,
            r#"{"content":null,"reasoning_content":"so"}"#,
            r#"{"content":"","reasoning":"so","reasoning_content":"so"}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
            r#"{"function_call":{"arguments":"x"}}"#,
        ] {
            assert_eq!(tokens(&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#)), 1, "{delta}");
        }
    }

    #[test]
    fn each_choice_counts_once() {
        let json = r#"{"choices":[{"text":"a"},{"text":""},{"text":"b","logprobs":{"x":[1]}}]}"#;
        assert_eq!(tokens(json), 2);
        assert_eq!(tokens(r#"{"choices":null}"#), 0);
    }

    #[test]
    fn usage_is_read_in_every_form_engines_write() {
        let usage = |json: &str| read_chunk(json.as_bytes()).unwrap().usage;
        let counts =
            |cached_tokens| Usage { prompt_tokens: 9, completion_tokens: 3, cached_tokens };
        let with = |details: &str| {
            usage(&format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":3{details}}}}}"#
            ))
        };
        assert_eq!(with(""), Some(counts(None)));
        assert_eq!(with(r#","prompt_tokens_details":null"#), Some(counts(None)));
        assert_eq!(with(r#","prompt_tokens_details":{"cached_tokens":null}"#), Some(counts(None)));
        assert_eq!(with(r#","prompt_tokens_details":{"cached_tokens":4}"#), Some(counts(Some(4))));
        assert_eq!(usage(r#"{"usage":null}"#), None);
        let odd = r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":"many"}}"#;
        assert_eq!((usage(odd), tokens(odd)), (None, 1));
    }

    #[test]
    fn errors_are_told_from_chunks() {
        let error = |json: &str| read_chunk(json.as_bytes()).unwrap().error;
        assert!(error(r#"{"error":{"message":"out of memory","code":500}}"#));
        assert!(error(r#"{"object":"error","message":"out of memory"}"#));
        assert!(!error(r#"{"error":null,"object":"chat.completion.chunk","choices":[]}"#));
        assert_eq!(read_chunk(b"[1]"), None);
        assert_eq!(read_chunk(br#"{"choices":["#), None);
    }
}
