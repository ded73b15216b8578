//! What goes to standard output and into files, and how an error reads.

use std::{
    fmt::Display,
    fs,
    io::{self, Write as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use serde::Serialize;

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct Closed;

/// Writes one line, or several, to standard output.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes one line of progress to standard error, for where no terminal can show it moving.
pub(crate) fn note(text: impl Display) {
    // Progress that cannot be shown is no reason to stop.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error and its causes as one sentence. A cause that the text before it already ends with is not
/// said twice.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text += ": ";
        }
        text += &cause;
    }
    text
}

/// Refuses a path that no file can be written to, before the work whose result it is to hold.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        bail!("cannot write `{}`: it is a folder", path.display());
    }
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("cannot write `{}`: there is no folder `{}`", path.display(), folder.display());
    }
    Ok(())
}

/// Writes `value` to the file at `path`.
pub(crate) fn json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// `text` as it may stand in markup: names in rows and reports are other people's.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes_each_once() {
        let cause = io::Error::new(io::ErrorKind::AddrInUse, "address in use");
        let error =
            anyhow::Error::from(cause).context("port 80: address in use").context("no start");
        assert_eq!(sentence(&error), "no start: port 80: address in use");
        let error = anyhow::anyhow!("b").context("a");
        assert_eq!(sentence(&error), "a: b");
    }

    #[test]
    fn a_path_into_nowhere_is_refused_before_the_work() {
        assert!(check_file(Path::new("result.json")).is_ok());
        let error = check_file(Path::new("no-such-folder/result.json")).unwrap_err();
        assert!(error.to_string().contains("no folder `no-such-folder`"), "{error}");
        assert!(check_file(Path::new("/")).is_err());
    }
}
