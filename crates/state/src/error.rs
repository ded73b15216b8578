//! What can go wrong with the store.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Why the store did not do what was asked. What it already held is still there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another [`crate::Store`] of this one, has the directory open.
    #[error("state in `{}` is in use by another process", path.display())]
    InUse {
        /// Directory of the store.
        path: PathBuf,
    },
    /// The disk, the quota or the file size limit is used up.
    #[error("no space left for state in `{}`", path.display())]
    Full {
        /// Directory of the store.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory cannot be made, read or written.
    #[error("cannot use `{}` for state", path.display())]
    Unusable {
        /// Directory of the store.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database stopped. The next call opens it again, and moves it aside if it must.
    #[error("the state database in `{}` failed", path.display())]
    Broken {
        /// Directory of the store.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no store in the directory.
    #[error("there is no state in `{}`", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written under another schema version.
    #[error("state in `{}` has schema version {found}, not {wanted}", path.display())]
    Schema {
        /// Directory of the store.
        path: PathBuf,
        /// Version that it was written under.
        found: u32,
        /// Version that was asked for.
        wanted: u32,
    },
    /// The value is there, but is not what was written: relearn it.
    #[error("`{name}` is damaged on disk")]
    Damaged {
        /// Name of the blob, or `samples from <sequence number>`.
        name: String,
    },
    /// The value does not fit.
    #[error("`{name}` has {bytes} bytes, {limit} fit")]
    TooLarge {
        /// Name of the blob, or `sample`.
        name: String,
        /// Its size.
        bytes: u64,
        /// What would fit now.
        limit: u64,
    },
    /// The writer's thread could not be started.
    #[error("cannot start the state writer")]
    Thread(#[source] io::Error),
}

/// What is wrong with a database.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("its content is gone")]
    Empty,
    #[error("it is closed")]
    Closed,
    #[error("its manifest is {0}")]
    Manifest(&'static str),
    #[error("its pages make no sense: {0}")]
    Panicked(String),
    #[error(transparent)]
    Sled(sled::Error),
}

impl Error {
    /// What `source` means for the store in `path`.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::Full { path, source }
            }
            _ => Self::Unusable { path, source },
        }
    }

    /// What `fault` means for the store in `path`. Only what a look at the disk can mend is told
    /// apart; a missing or short file is a broken database.
    pub(crate) fn fault(path: &Path, fault: Fault) -> Self {
        let broken = |fault| Self::Broken { path: path.to_owned(), source: Box::new(fault) };
        let Fault::Sled(sled::Error::Io(source)) = fault else { return broken(fault) };
        match source.kind() {
            ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem => Self::io(path, source),
            // sled gives this no kind of its own.
            _ if source.to_string().starts_with("could not acquire lock") => {
                Self::InUse { path: path.to_owned() }
            }
            _ => broken(Fault::Sled(sled::Error::Io(source))),
        }
    }
}
