//! Recorded rows in files and state folders: how ours are written, and how those of every known form are
//! read.

mod decision;
mod fields;
mod logged;
mod open;
mod ours;
mod peer;
mod samples;
mod write;

pub(crate) use decision::{Candidate, Decision, Predicted, Sessions};
pub(crate) use logged::{Logged, read_logged};
pub(crate) use open::{Format, read};
pub(crate) use samples::{Kept, STATE_SCHEMA, columns, name_columns, number, read_store, sample};
pub(crate) use write::{version, write, write_whole};

use std::{collections::BTreeMap, path::Path};

use predict::Labelled;

use self::open::RowsError;

/// What a file of rows holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Rows to learn from, in the order of the file.
    pub(crate) labelled: Vec<Labelled>,
    /// Rows read.
    pub(crate) read: usize,
    /// Rows of requests that nothing is to be learned from, by how they ended.
    pub(crate) kept_out: BTreeMap<String, usize>,
    /// Names of the endpoints, by the slots that the rows have; none where the file tells none.
    pub(crate) endpoints: Vec<String>,
    /// Whether instants count rows, since the file tells no time.
    pub(crate) without_times: bool,
}

/// Reads the file at `path`, or the state folder.
pub(crate) fn read_file(path: &Path, format: Format) -> Result<Rows, RowsError> {
    if path.is_dir() { samples::read_folder(path) } else { open::read_path(path, format) }
}
