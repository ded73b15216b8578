//! Serde seeds that hand the bytes of JSON strings on without keeping them.
//!
//! Strings are read as bytes, since engines accept what UTF-8 cannot hold: a lone surrogate such as
//! `"\ud800"` arrives in its WTF-8 form.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, Visitor},
};

/// Hands the bytes of a JSON string, escapes resolved, to a function.
pub(super) struct Bytes<F>(pub(super) F);

impl<'de, T, F: FnOnce(&[u8]) -> T> DeserializeSeed<'de> for Bytes<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<T, F: FnOnce(&[u8]) -> T> Visitor<'_> for Bytes<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
        Ok((self.0)(bytes))
    }
}

/// What another seed reads, or nothing where the value is `null`.
pub(super) struct Nullable<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}
