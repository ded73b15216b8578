//! What the database holds, counted in memory so that pruning reads nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::{blobs, chunk, disk::Disk, error::Error, options::Options};

/// Bytes that a key and sled's own fields add to a value, about.
const OVERHEAD_BYTES: u64 = 32;

/// A chunk on disk.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Sequence number of its first sample, which is its key.
    first: u64,
    count: u64,
    bytes: u64,
}

/// Counts of what is on disk.
#[derive(Debug, Default)]
pub(crate) struct Books {
    chunks: VecDeque<Entry>,
    next: u64,
    samples: u64,
    sample_bytes: u64,
    blobs: BTreeMap<String, u64>,
}

impl Books {
    /// Counts what `disk` holds, reading every value: what cannot be read shows now.
    pub(crate) fn read(disk: &Disk) -> Result<Self, Error> {
        disk.run(|trees| {
            let mut books = Self::default();
            for entry in &trees.samples {
                let (key, value) = entry?;
                // A key of another length is not ours, and stays.
                let Ok(first) = key.as_ref().try_into() else { continue };
                books.add(u64::from_be_bytes(first), chunk::count(&value), value.len());
            }
            for entry in &trees.blobs {
                let (key, value) = entry?;
                if let Some(name) = blobs::name(&key) {
                    books.put(name, blobs::bytes(&value));
                }
            }
            Ok(books)
        })
    }

    /// Sequence number of the next sample.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Notes a chunk of `count` samples from `first`, `bytes` long.
    pub(crate) fn add(&mut self, first: u64, count: u64, bytes: usize) {
        let bytes = bytes as u64 + OVERHEAD_BYTES;
        self.chunks.push_back(Entry { first, count, bytes });
        self.next = first + count;
        self.samples += count;
        self.sample_bytes += bytes;
    }

    /// Samples, and the bytes that they take.
    pub(crate) fn samples(&self) -> (u64, u64) {
        (self.samples, self.sample_bytes)
    }

    /// Notes the blob `name` of `bytes`.
    pub(crate) fn put(&mut self, name: String, bytes: u64) {
        self.blobs.insert(name, bytes);
    }

    /// Names of the blobs, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        self.blobs.keys().cloned().collect()
    }

    /// Largest blob that may be put under `name`.
    pub(crate) fn room_for(&self, name: &str, options: &Options) -> u64 {
        let others = self.blobs.iter().filter(|(other, _)| *other != name);
        let others: u64 = others.map(|(_, bytes)| bytes).sum();
        (live(options) / 2).saturating_sub(others)
    }

    /// Keys of the oldest chunks that are over the limits, and forgets them. The newest stays.
    pub(crate) fn prune(&mut self, options: &Options) -> Vec<u64> {
        let blobs: u64 = self.blobs.values().map(|bytes| 2 * bytes).sum();
        let room = live(options).saturating_sub(blobs).max(live(options) / 4);
        let limit = room.min(options.max_sample_bytes);
        let mut keys = Vec::new();
        while self.samples > options.max_samples || self.sample_bytes > limit {
            if self.chunks.len() == 1 {
                break;
            }
            let Some(entry) = self.chunks.pop_front() else { break };
            self.samples -= entry.count;
            self.sample_bytes -= entry.bytes;
            keys.push(entry.first);
        }
        keys
    }
}

/// Bytes of values that fit into `max_bytes` on disk: sled holds about twice as many on disk in
/// steady state, and the copy that compacts it needs its own place beside that.
fn live(options: &Options) -> u64 {
    options.max_bytes / 4
}

/// Size on disk at which the database is copied to shed what sled does not reclaim.
pub(crate) fn rewrite_at(options: &Options) -> u64 {
    options.max_bytes / 8 * 5
}

/// Most samples in one chunk, so that a prune to `max_samples` never drops much below it.
pub(crate) fn samples_a_chunk(options: &Options) -> u64 {
    (options.max_samples / 8).max(1)
}
