//! An endpoints file on disk, read again when it may have changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Parsed, Problem, parse};

/// Why there are no endpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("endpoints file `{}` is not readable", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not usable as a whole.
    #[error("endpoints file is not usable: {0}")]
    Unusable(#[from] Problem),
}

/// The file, and what it held when last read.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    last: Option<Last>,
}

#[derive(Debug, PartialEq)]
enum Last {
    Text(String),
    Unreadable(io::ErrorKind),
}

impl Source {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; `None` if it is as it was, or cannot be read for the same reason as before.
    pub(crate) fn changed(&mut self) -> Option<Result<Parsed, Error>> {
        let (now, failure) = match read(&self.path) {
            Ok(text) => (Last::Text(text), None),
            Err(source) => (Last::Unreadable(source.kind()), Some(source)),
        };
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        let result = match (&now, failure) {
            (Last::Text(text), _) => parse(text, &self.path.to_string_lossy()).map_err(Error::from),
            (Last::Unreadable(kind), failure) => {
                let source = failure.unwrap_or_else(|| (*kind).into());
                Err(Error::Read { path: self.path.clone(), source })
            }
        };
        self.last = Some(now);
        Some(result)
    }
}

/// Reads at most one byte more than [`crate::MAX_FILE_BYTES`], which is enough to refuse it.
fn read(path: &Path) -> io::Result<String> {
    use io::Read as _;
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(crate::MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > crate::MAX_FILE_BYTES {
        let reason = format!("it has more than {} bytes", crate::MAX_FILE_BYTES);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "endpoints: [{name: a, address: 10.0.0.1, port: '80'}]";

    #[test]
    fn each_change_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("endpoints.yaml");
        fs::write(&path, GOOD).unwrap();
        let mut source = Source::new(path.clone());
        assert!(matches!(source.changed(), Some(Ok(_))));
        assert!(source.changed().is_none());

        fs::write(&path, "endpoints: [").unwrap();
        let told = source.changed().unwrap().unwrap_err().to_string();
        assert!(told.contains("endpoints.yaml:1:12: "), "{told}");
        assert!(source.changed().is_none());

        fs::remove_file(&path).unwrap();
        assert!(matches!(source.changed(), Some(Err(Error::Read { .. }))));
        assert!(source.changed().is_none());
    }

    #[test]
    fn what_is_no_text_or_too_much_of_it_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("endpoints.yaml");
        for content in [vec![0xff, 0xfe, b'a'], vec![b'#'; crate::MAX_FILE_BYTES + 1]] {
            fs::write(&path, content).unwrap();
            let result = Source::new(path.clone()).changed().unwrap();
            assert!(matches!(result, Err(Error::Read { .. })));
        }
    }
}
