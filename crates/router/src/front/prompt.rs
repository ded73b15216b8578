//! Rolls the prompt of a completion into a hash chain while it is read.

use std::fmt;

use prefix::{BLOCK_BYTES, Chain};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::strings::Bytes;

/// Stands between the prompts of one request. It does not occur in UTF-8.
const BETWEEN: u8 = 0xFF;

/// Reads a prompt into the chain: a string, a list of strings, token ids, or a list of lists of token
/// ids. Gives the number of tokens where ids tell it.
pub(super) struct Prompt<'c>(pub(super) &'c mut Chain);

impl<'de> DeserializeSeed<'de> for Prompt<'_> {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for Prompt<'_> {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt")
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<Self::Value, E> {
        self.0.push(text);
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Self(chain) = self;
        // The first element tells what the others must be.
        let first = seq.next_element::<&'de RawValue>()?.map_or("", RawValue::get);
        let mut json = serde_json::Deserializer::from_str(first);
        let other = |_| A::Error::custom("neither text nor token ids");
        match first.as_bytes().first() {
            Some(b'"') => {
                Bytes(|text: &[u8]| chain.push(text)).deserialize(&mut json).map_err(other)?;
                let mut next = |text: &[u8]| {
                    chain.push(&[BETWEEN]);
                    chain.push(text);
                };
                while seq.next_element_seed(Bytes(&mut next))?.is_some() {}
                Ok(None)
            }
            Some(b'[') => {
                let mut tokens = Tokens(chain).deserialize(&mut json).map_err(other)?;
                while let Some(more) = seq.next_element_seed(Tokens(chain))? {
                    tokens = tokens.saturating_add(more);
                }
                Ok(Some(tokens))
            }
            Some(_) => {
                let id: u32 = serde_json::from_str(first).map_err(other)?;
                chain.push(&id.to_le_bytes());
                let more = Tokens(chain).visit_seq(seq)?;
                Ok(Some(more.saturating_add(1)))
            }
            None => Err(A::Error::custom("an empty list")),
        }
    }
}

/// Bytes of a token id in the chain.
const ID_BYTES: usize = size_of::<u32>();
/// Token ids that go into the chain at once: a call for each would cost as much as reading it.
const BLOCK_IDS: usize = BLOCK_BYTES / ID_BYTES;

/// Reads a list of token ids into the chain, four little-endian bytes each; gives their number.
struct Tokens<'c>(&'c mut Chain);

impl<'de> DeserializeSeed<'de> for Tokens<'_> {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Tokens<'_> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<u32, A::Error> {
        let mut block = [[0; ID_BYTES]; BLOCK_IDS];
        let mut count = 0;
        while let Some(id) = seq.next_element::<u32>()? {
            block[count % BLOCK_IDS] = id.to_le_bytes();
            count += 1;
            if count.is_multiple_of(BLOCK_IDS) {
                self.0.push(block.as_flattened());
            }
        }
        self.0.push(block[..count % BLOCK_IDS].as_flattened());
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
