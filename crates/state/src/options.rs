//! What configuration says about the store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Less than this cannot hold a database: sled writes in segments of 512 KiB.
const LEAST_BYTES: u64 = 8 << 20;
/// A flush more often than this only wears the disk.
const LEAST_FLUSH_MS: u64 = 10;

/// Where the store lies and how large it may grow.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Directory of the store; made if missing.
    pub path: PathBuf,
    /// Samples kept; the oldest go first.
    pub max_samples: u64,
    /// Bytes of samples kept, their keys and checksums included; the oldest go first.
    pub max_sample_bytes: u64,
    /// Bytes of the store on disk, at least 8 MiB. About a quarter holds samples, as sled needs the
    /// rest to reclaim space; blobs share that quarter. Stores moved aside are not counted.
    pub max_bytes: u64,
    /// Milliseconds between flushes: what a power cut may lose. At least 10.
    pub flush_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: PathBuf::from("state"),
            max_samples: 200_000,
            max_sample_bytes: 64 << 20,
            max_bytes: 256 << 20,
            flush_ms: 1_000,
        }
    }
}

impl Options {
    /// The same with every number in its range.
    pub(crate) fn bounded(self) -> Self {
        Self {
            max_samples: self.max_samples.max(1),
            max_bytes: self.max_bytes.max(LEAST_BYTES),
            flush_ms: self.flush_ms.max(LEAST_FLUSH_MS),
            ..self
        }
    }
}
