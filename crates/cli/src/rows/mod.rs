//! Recorded rows in files: how a line of ours is written, and how rows of every known form are read.

mod fields;
mod open;
mod ours;
mod peer;
mod write;

pub(crate) use open::{Format, read, read_file};
pub(crate) use write::{is_row, write};

use std::collections::BTreeMap;

use predict::Labelled;

/// What a file of rows holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Rows to learn from, in the order of the file.
    pub(crate) labelled: Vec<Labelled>,
    /// Rows read.
    pub(crate) read: usize,
    /// Rows of requests that nothing is to be learned from, by how they ended.
    pub(crate) kept_out: BTreeMap<String, usize>,
    /// Whether instants count rows, since the file tells no time.
    pub(crate) without_times: bool,
}
