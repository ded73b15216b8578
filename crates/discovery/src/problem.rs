//! What is wrong in an endpoints file, and where.

use std::{fmt, sync::Arc};

use serde_saphyr::Location;

/// How much a problem costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// The entry, or the file, is not used.
    Error,
    /// The entry is used; something in it has no effect.
    Warning,
}

/// One thing wrong in an endpoints file. Displays as `file:line:column: reason`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}:{line}:{column}: {reason}")]
pub struct Problem {
    /// The file, as it was named to us.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// What it costs.
    pub severity: Severity,
    /// What is wrong.
    pub reason: String,
}

impl Problem {
    /// An error at `at` in `file`.
    pub(crate) fn error(file: &Arc<str>, at: Location, reason: impl fmt::Display) -> Self {
        Self::new(file, at, Severity::Error, reason)
    }

    /// A warning at `at` in `file`.
    pub(crate) fn warning(file: &Arc<str>, at: Location, reason: impl fmt::Display) -> Self {
        Self::new(file, at, Severity::Warning, reason)
    }

    /// An error about `file` as a whole.
    pub(crate) fn whole(file: &Arc<str>, reason: impl fmt::Display) -> Self {
        let (line, column, severity) = (1, 1, Severity::Error);
        Self { file: Arc::clone(file), line, column, severity, reason: reason.to_string() }
    }

    fn new(file: &Arc<str>, at: Location, severity: Severity, reason: impl fmt::Display) -> Self {
        // A location that the parser does not know is line 0.
        let (line, column) = (at.line().max(1), at.column().max(1));
        Self { file: Arc::clone(file), line, column, severity, reason: reason.to_string() }
    }
}
