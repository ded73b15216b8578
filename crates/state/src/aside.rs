//! Stores that were moved aside: how they are called, and how many of them stay.
//!
//! A name is `<prefix><label>-<n>`, where `n` counts all of them, so that a higher one is newer.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

/// Stores kept of those that were moved aside, the newest.
const KEPT: usize = 2;
/// Label of one that cannot be read.
pub(crate) const CORRUPT: &str = "corrupt";
/// Begin of the label of one with another schema.
const SCHEMA: &str = "schema-";

/// Label of one that was written under `schema`.
pub(crate) fn schema_label(schema: u32) -> String {
    format!("{SCHEMA}{schema}")
}

/// A folder that stores are moved to.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    prefix: String,
}

impl Place {
    /// Beside the directory `home`; none if it has no name.
    pub(crate) fn beside(home: &Path) -> Option<Self> {
        let prefix = format!("{}.", home.file_name()?.to_str()?);
        Some(Self { folder: home.parent()?.to_owned(), prefix })
    }

    /// In the directory `home`.
    pub(crate) fn within(home: &Path) -> Self {
        Self { folder: home.to_owned(), prefix: String::new() }
    }

    /// Where the next one with `label` goes.
    pub(crate) fn next(&self, label: &str) -> PathBuf {
        let newest = self.numbered().ok().and_then(|stores| Some(stores.last()?.0));
        let mut n = newest.unwrap_or(0);
        loop {
            n += 1;
            let path = self.folder.join(format!("{}{label}-{n}", self.prefix));
            if fs::symlink_metadata(&path).is_err() {
                return path;
            }
        }
    }

    /// Removes all but the newest [`KEPT`]. One that holds anything but a store stays.
    pub(crate) fn prune(&self) {
        let Ok(stores) = self.numbered() else { return };
        let old = stores.len().saturating_sub(KEPT);
        for (_, path) in stores.into_iter().take(old).filter(|(_, path)| is_store_only(path)) {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "old state is removed"),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "old state cannot be removed");
                }
            }
        }
    }

    /// Those that are there with their numbers, oldest first.
    fn numbered(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut stores = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let tail = name.to_str().and_then(|name| name.strip_prefix(&self.prefix));
            if let Some(number) = tail.and_then(number)
                && entry.file_type()?.is_dir()
            {
                stores.push((number, entry.path()));
            }
        }
        stores.sort_unstable();
        Ok(stores)
    }
}

/// The number in `name`, if it is `<label>-<n>`.
fn number(name: &str) -> Option<u64> {
    let (label, number) = name.rsplit_once('-')?;
    let schema = label.strip_prefix(SCHEMA).and_then(|schema| schema.parse::<u32>().ok());
    (label == CORRUPT || schema.is_some()).then(|| number.parse().ok())?
}

/// Whether nothing lies in `folder` but what a store leaves there.
fn is_store_only(folder: &Path) -> bool {
    let is_ours = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            matches!(name, "lock" | "manifest" | "manifest.draft") || name.starts_with("store-")
        })
    };
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.into_iter().all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_we_named_has_a_number() {
        assert_eq!(number("corrupt-7"), Some(7));
        assert_eq!(number("schema-3-12"), Some(12));
        for name in ["corrupt", "corrupt-", "corrupt-x", "backup-1", "schema-x-1", "schema-1"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
