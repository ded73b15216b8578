//! Rolls chat messages into a hash chain while they are read.
//!
//! Of a message counts what chat templates render: role, name, content and tool calls, in the order
//! they are written. What clients move or renew between turns (ids, cache marks, earlier reasoning)
//! stays out, or a conversation would not match its own history.

use std::fmt;

use prefix::Chain;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::strings::{Bytes, Nullable};

/// Bytes that an image, sound or video counts as: 576 tokens of four bytes, the patches that
/// CLIP ViT-L/14 makes of an image of 336 × 336, and so `LLaVA`. The length of the encoded data says
/// nothing about its tokens.
const MEDIA_BYTES: usize = 576 * 4;
/// Words of which a key that carries media has one: `image_url`, `input_audio`, `video_url`, …
const MEDIA_KEYS: [&str; 4] = ["image", "audio", "video", "file"];

/// Marks that start the fields of a message. None occurs in UTF-8, so texts cannot imitate them.
const ROLE: u8 = 0xF8;
const NAME: u8 = 0xF9;
const CONTENT: u8 = 0xFA;
const TOOL_CALLS: u8 = 0xFB;

/// Reads a list of messages into the chain; gives their number.
pub(super) struct Messages<'c>(pub(super) &'c mut Chain);

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while seq.next_element_seed(Message(self.0))?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

#[derive(Clone, Copy)]
enum Field {
    Text(u8),
    Content,
    ToolCalls,
    Other,
}

impl Field {
    fn of(key: &[u8]) -> Self {
        match key {
            b"role" => Self::Text(ROLE),
            b"name" => Self::Text(NAME),
            b"content" => Self::Content,
            b"tool_calls" => Self::ToolCalls,
            _ => Self::Other,
        }
    }
}

struct Message<'c>(&'c mut Chain);

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(chain) = self;
        while let Some(field) = map.next_key_seed(Bytes(Field::of))? {
            match field {
                Field::Text(mark) => {
                    let text = Bytes(|text: &[u8]| {
                        chain.push(&[mark]);
                        chain.push(text);
                    });
                    map.next_value_seed(Nullable(text))?;
                }
                Field::Content => {
                    map.next_value_seed(Nullable(Content(chain)))?;
                }
                Field::ToolCalls => {
                    if let Some(calls) = map.next_value::<Option<&'de RawValue>>()? {
                        chain.push(&[TOOL_CALLS]);
                        chain.push(calls.get().as_bytes());
                    }
                }
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A string, or a list of parts. Texts of several parts count as one, joined by a line end as engines
/// join them.
struct Content<'c>(&'c mut Chain);

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of parts")
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<(), E> {
        self.0.push(&[CONTENT]);
        self.0.push(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<(), A::Error> {
        let Self(chain) = self;
        let mut mark = CONTENT;
        // A part may be an object or a bare string, which only its first byte tells.
        while let Some(part) = parts.next_element::<&'de RawValue>()? {
            let mut json = serde_json::Deserializer::from_str(part.get());
            chain.push(&[mark]);
            mark = b'\n';
            let read = if part.get().starts_with('"') {
                Bytes(|text: &[u8]| chain.push(text)).deserialize(&mut json)
            } else {
                json.deserialize_map(Part(chain))
            };
            read.map_err(|_| A::Error::custom("not a part"))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum PartField {
    Text,
    Media,
    Other,
}

impl PartField {
    fn of(key: &[u8]) -> Self {
        let has = |word: &&str| key.windows(word.len()).any(|part| part == word.as_bytes());
        match key {
            b"text" => Self::Text,
            _ if MEDIA_KEYS.iter().any(has) => Self::Media,
            _ => Self::Other,
        }
    }
}

struct Part<'c>(&'c mut Chain);

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(chain) = self;
        while let Some(field) = map.next_key_seed(Bytes(PartField::of))? {
            match field {
                PartField::Text => {
                    map.next_value_seed(Nullable(Bytes(|text: &[u8]| chain.push(text))))?;
                }
                PartField::Media => {
                    if let Some(media) = map.next_value::<Option<&'de RawValue>>()? {
                        chain.push_digest(media.get().as_bytes(), MEDIA_BYTES);
                    }
                }
                PartField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
