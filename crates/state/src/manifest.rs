//! The file that says which database is current and what wrote it. Replacing it is the commit.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::Path,
};

use crate::seal::checksum;

const NAME: &str = "manifest";
const DRAFT: &str = "manifest.draft";
/// Changes when the files of an older build can no longer be read.
const LAYOUT: &str = "slackline-state 1";

/// What the manifest says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Manifest {
    /// The caller's version of what it stores.
    pub(crate) schema: u32,
    /// Number of the current database.
    pub(crate) number: u64,
}

/// What lies in place of the manifest.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Read {
    Missing,
    Unreadable,
    Is(Manifest),
}

impl Manifest {
    /// The manifest of the store in `home`.
    pub(crate) fn read(home: &Path) -> io::Result<Read> {
        match fs::read(home.join(NAME)) {
            Ok(bytes) => Ok(Self::parse(&bytes).map_or(Read::Unreadable, Read::Is)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Read::Missing),
            Err(error) => Err(error),
        }
    }

    /// Makes this the manifest of the store in `home`, wholly or not at all.
    pub(crate) fn write(self, home: &Path) -> io::Result<()> {
        let draft = home.join(DRAFT);
        let mut file = File::create(&draft)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, home.join(NAME))?;
        // It is in place; a directory that cannot be synced only makes it later to the device.
        let _ = File::open(home).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Moves the manifest of the store in `home`, if there is one, into the folder `to`.
    pub(crate) fn move_to(home: &Path, to: &Path) -> io::Result<()> {
        match fs::rename(home.join(NAME), to.join(NAME)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn text(self) -> String {
        let body = self.body();
        format!("{body}check {:016x}\n", checksum(body.as_bytes()))
    }

    fn body(self) -> String {
        format!("{LAYOUT}\nschema {}\nstore {}\n", self.schema, self.number)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(bytes).ok()?.lines().skip(1);
        let schema = lines.next()?.strip_prefix("schema ")?.parse().ok()?;
        let number = lines.next()?.strip_prefix("store ")?.parse().ok()?;
        let manifest = Self { schema, number };
        (manifest.text().as_bytes() == bytes).then_some(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_with_any_bit_changed_is_unreadable() {
        let manifest = Manifest { schema: 7, number: 12 };
        let text = manifest.text().into_bytes();
        assert_eq!(Manifest::parse(&text), Some(manifest));
        for bit in 0..text.len() * 8 {
            let mut rotten = text.clone();
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::parse(&rotten), None);
        }
    }
}
