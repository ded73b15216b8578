//! Named values of any size. Each lies in pieces, in one of two slots; the head says which, so that
//! replacing the head replaces the blob, wholly or not at all.
//!
//! The slots are written in turn, on the same keys, as sled reclaims overwritten keys well and
//! removed ones badly.

use std::ops::RangeFrom;

use crate::{
    disk::Trees,
    seal::{checksum, seal, unseal},
};

const PIECE_BYTES: usize = 7 << 10;
const HEAD: u8 = b'h';
const PIECE: u8 = b'p';

/// What was found under a name.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Found {
    Missing,
    Damaged,
    Is(Vec<u8>),
}

/// Where a blob lies.
#[derive(Clone, Copy, Debug)]
struct Head {
    slot: u8,
    bytes: u64,
    checksum: u64,
}

impl Head {
    fn encode(self) -> Vec<u8> {
        let mut payload = vec![self.slot];
        payload.extend(self.bytes.to_be_bytes());
        payload.extend(self.checksum.to_be_bytes());
        seal(&payload)
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (slot, rest) = unseal(value)?.split_first()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let checksum = u64::from_be_bytes(rest.try_into().ok()?);
        Some(Self { slot: *slot, bytes: u64::from_be_bytes(*bytes), checksum })
    }
}

/// Makes `bytes` the blob `name`.
pub(crate) fn write(trees: &Trees, name: &str, bytes: &[u8]) -> sled::Result<()> {
    let tree = &trees.blobs;
    let old = tree.get(head_key(name))?;
    let slot = old.and_then(|value| Head::decode(&value)).map_or(0, |head| head.slot ^ 1);
    let mut pieces = 0;
    for piece in bytes.chunks(PIECE_BYTES) {
        tree.insert(piece_key(name, slot, pieces), piece)?;
        pieces += 1;
    }
    let head = Head { slot, bytes: bytes.len() as u64, checksum: checksum(bytes) };
    tree.insert(head_key(name), head.encode())?;
    let prefix = slot_key(name, slot);
    for entry in tree.range(from(piece_key(name, slot, pieces))).keys() {
        let key = entry?;
        if !key.starts_with(&prefix) {
            break;
        }
        tree.remove(key)?;
    }
    Ok(())
}

/// The blob `name`.
pub(crate) fn read(trees: &Trees, name: &str) -> sled::Result<Found> {
    let Some(value) = trees.blobs.get(head_key(name))? else { return Ok(Found::Missing) };
    let Some(head) = Head::decode(&value) else { return Ok(Found::Damaged) };
    let mut bytes = Vec::new();
    for entry in trees.blobs.scan_prefix(slot_key(name, head.slot)) {
        bytes.extend_from_slice(&entry?.1);
    }
    // A crash between a shorter head and the removal of old pieces leaves those behind it.
    let Ok(length) = usize::try_from(head.bytes) else { return Ok(Found::Damaged) };
    bytes.truncate(length);
    let whole = bytes.len() == length && checksum(&bytes) == head.checksum;
    Ok(if whole { Found::Is(bytes) } else { Found::Damaged })
}

/// The name of the blob, if `key` is that of a head.
pub(crate) fn name(key: &[u8]) -> Option<String> {
    let (kind, name) = key.split_first()?;
    (*kind == HEAD).then(|| String::from_utf8_lossy(name).into_owned())
}

/// Bytes of the blob whose head is `value`; nothing if it is damaged.
pub(crate) fn bytes(value: &[u8]) -> u64 {
    Head::decode(value).map_or(0, |head| head.bytes)
}

fn head_key(name: &str) -> Vec<u8> {
    [&[HEAD], name.as_bytes()].concat()
}

/// The length stands before the name, so that no name begins another.
fn slot_key(name: &str, slot: u8) -> Vec<u8> {
    [&[PIECE], &(name.len() as u64).to_be_bytes()[..], name.as_bytes(), &[slot]].concat()
}

fn piece_key(name: &str, slot: u8, piece: u32) -> Vec<u8> {
    let mut key = slot_key(name, slot);
    key.extend(piece.to_be_bytes());
    key
}

fn from(key: Vec<u8>) -> RangeFrom<Vec<u8>> {
    key..
}
