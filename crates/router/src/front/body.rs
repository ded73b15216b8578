//! Reads a request body in one pass: its fields, and the hash chain of its prompt.
//!
//! The prompt is rolled into the chain as it passes and never copied. Members may come in any order,
//! and of repeated ones the last counts, as in the engines; so what stands before the prompt in the
//! engine (the model, the salt, the tools) is mixed into the blocks at the end. Equal requests give
//! equal blocks whatever the order of their members; other tools make every block of the messages
//! another one.

use std::{fmt, sync::Arc};

use prefix::Chain;
use serde::{
    Deserializer as _,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{error::Category, value::RawValue};
use types::{Api, Request, Slo, SubsetEntry};

use super::{
    messages::Messages,
    prompt::Prompt,
    strings::{Bytes, Nullable},
};

/// What a front knows of a request without its body.
#[derive(Clone, Debug)]
pub struct Head {
    /// Which API the path names.
    pub api: Api,
    /// Identity in logs and traces.
    pub id: Arc<str>,
    /// The objective that the headers ask for.
    pub slo: Slo,
    /// The tenant or route that the headers name.
    pub scope: Option<Arc<str>>,
    /// Conversation it belongs to, see [`read_session`](crate::read_session).
    pub session: Option<Arc<str>>,
    /// If present, only these endpoints may serve it.
    pub subset: Option<Vec<SubsetEntry>>,
    /// Whether the caller wants the reasons of the decision.
    pub explain: bool,
}

/// The body is not a request that an engine would take. Messages never contain what the body says.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It is not JSON, or not an object.
    #[error("the request body is not valid at line {line} column {column}: {message}")]
    Json {
        /// Line of the body, from 1.
        line: usize,
        /// Byte in that line, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A member is missing or `null`.
    #[error("`{field}` is missing")]
    Missing {
        /// The member.
        field: &'static str,
    },
    /// A member is not what it must be.
    #[error("`{field}` {reason}")]
    Invalid {
        /// The member.
        field: &'static str,
        /// What it must be.
        reason: &'static str,
    },
}

/// Reads the request in `body`, JSON of the API that `head` names.
///
/// Members that routing does not need are skipped, not checked. A byte order mark at the start is
/// tolerated.
pub fn read_request(head: Head, body: &[u8]) -> Result<Request, BodyError> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let mut members = Members::new(head.api);
    let mut json = serde_json::Deserializer::from_slice(body);
    json.deserialize_map(&mut members)
        .and_then(|()| json.end())
        .map_err(|error| describe(&error, members.reading))?;
    members.into_request(head)
}

/// `error`, without the content that the messages of serde quote.
fn describe(error: &serde_json::Error, reading: Option<Member>) -> BodyError {
    let message = match (error.classify(), reading) {
        (Category::Data, Some(member)) => {
            return BodyError::Invalid { field: member.name(), reason: member.rule() };
        }
        (Category::Data, None) => "expected an object".to_owned(),
        _ => {
            let text = error.to_string();
            text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
        }
    };
    BodyError::Json { line: error.line(), column: error.column(), message }
}

/// The members that are read.
#[derive(Clone, Copy, Debug)]
enum Member {
    Model,
    Stream,
    MaxTokens,
    MaxCompletionTokens,
    CacheSalt,
    Tools,
    Messages,
    Prompt,
}

impl Member {
    fn of(key: &[u8], api: Api) -> Option<Self> {
        match (key, api) {
            (b"model", _) => Some(Self::Model),
            (b"stream", _) => Some(Self::Stream),
            (b"max_tokens", _) => Some(Self::MaxTokens),
            (b"cache_salt", _) => Some(Self::CacheSalt),
            (b"max_completion_tokens", Api::Chat) => Some(Self::MaxCompletionTokens),
            (b"tools", Api::Chat) => Some(Self::Tools),
            (b"messages", Api::Chat) => Some(Self::Messages),
            (b"prompt", Api::Completions) => Some(Self::Prompt),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Stream => "stream",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::CacheSalt => "cache_salt",
            Self::Tools => "tools",
            Self::Messages => "messages",
            Self::Prompt => "prompt",
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::Model | Self::CacheSalt => "must be a string",
            Self::Stream => "must be true or false",
            Self::MaxTokens | Self::MaxCompletionTokens => "must be a number",
            Self::Tools => "must be valid UTF-8",
            Self::Messages => "must be a list of messages, each an object with text content",
            Self::Prompt => "must be a string, a list of strings, or token ids",
        }
    }
}

/// What was found so far.
#[derive(Debug)]
struct Members {
    api: Api,
    /// The member being read, for errors.
    reading: Option<Member>,
    model: Option<Arc<str>>,
    stream: bool,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    cache_salt: Arc<str>,
    tools: Option<Chain>,
    /// The prompt or the messages, and how many of them there are.
    prompt: Option<(Chain, usize)>,
    prompt_tokens: Option<u32>,
}

impl Members {
    fn new(api: Api) -> Self {
        Self {
            api,
            reading: None,
            model: None,
            stream: false,
            max_tokens: None,
            max_completion_tokens: None,
            cache_salt: Arc::default(),
            tools: None,
            prompt: None,
            prompt_tokens: None,
        }
    }

    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        member: Member,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match member {
            Member::Model => self.model = text(map)?,
            Member::Stream => self.stream = map.next_value::<Option<bool>>()?.unwrap_or_default(),
            Member::MaxTokens => self.max_tokens = map.next_value_seed(Limit)?,
            Member::MaxCompletionTokens => {
                self.max_completion_tokens = map.next_value_seed(Limit)?;
            }
            Member::CacheSalt => self.cache_salt = text(map)?.unwrap_or_default(),
            Member::Tools => {
                self.tools = map.next_value::<Option<&'de RawValue>>()?.map(|tools| {
                    let mut chain = Chain::new();
                    chain.push(tools.get().as_bytes());
                    chain
                });
            }
            Member::Messages => {
                let mut chain = Chain::new();
                let count = map.next_value_seed(Nullable(Messages(&mut chain)))?;
                self.prompt = count.map(|count| (chain, count));
            }
            Member::Prompt => {
                let mut chain = Chain::new();
                let tokens = map.next_value_seed(Nullable(Prompt(&mut chain)))?;
                self.prompt = tokens.is_some().then_some((chain, 1));
                self.prompt_tokens = tokens.flatten();
            }
        }
        Ok(())
    }

    fn into_request(self, head: Head) -> Result<Request, BodyError> {
        let field = match self.api {
            Api::Chat => "messages",
            Api::Completions => "prompt",
        };
        let model = self.model.ok_or(BodyError::Missing { field: "model" })?;
        let (prompt, count) = self.prompt.ok_or(BodyError::Missing { field })?;
        if model.is_empty() {
            return Err(BodyError::Invalid { field: "model", reason: "must not be empty" });
        }
        if count == 0 {
            return Err(BodyError::Invalid { field, reason: "must not be empty" });
        }
        let prompt = match self.tools {
            Some(tools) => tools.before(prompt),
            None => prompt,
        };
        let (blocks, bytes) = prompt.finish_for(&model, &self.cache_salt);
        Ok(Request {
            id: head.id,
            model,
            stream: self.stream,
            prompt_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            prompt_tokens: self.prompt_tokens,
            max_tokens: self.max_completion_tokens.or(self.max_tokens),
            blocks,
            slo: head.slo,
            scope: head.scope,
            subset: head.subset,
            session: head.session,
            weight: 1.0,
            explain: head.explain,
        })
    }
}

/// The next value as text; `None` for `null`.
fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Arc<str>>, A::Error> {
    let text = map.next_value_seed(Nullable(Bytes(|bytes: &[u8]| {
        std::str::from_utf8(bytes).map(Arc::from)
    })))?;
    text.transpose().map_err(A::Error::custom)
}

impl<'de> Visitor<'de> for &mut Members {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let api = self.api;
        while let Some(member) = map.next_key_seed(Bytes(|key: &[u8]| Member::of(key, api)))? {
            self.reading = member;
            match member {
                Some(member) => self.read(member, &mut map)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a bound on output tokens. What bounds nothing is tolerated as none: `null`, a negative
/// number, a fraction.
struct Limit;

impl<'de> serde::de::DeserializeSeed<'de> for Limit {
    type Value = Option<u32>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl Visitor<'_> for Limit {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(u32::try_from(value).unwrap_or(u32::MAX)))
    }

    fn visit_i64<E>(self, _negative: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok((value >= 0.0 && value.fract() == 0.0).then_some(value as u32))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
