//! What every file keeps to: length, opening line, and no name of a machine it was written on.

use std::path::Path;

use crate::files::{files, production, read, root, shown, sources};

/// Lines of a file before its test module.
const MAX_LINES: usize = 500;
/// Names that mean nothing to whoever cloned the repository. Split, so that they do not find
/// themselves.
const FOREIGN: [&str; 10] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tm", "p/bg"),
    concat!("../sha", "red"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("proxy.golang", ".org"),
    concat!("registry.npmjs", ".org"),
];
/// The one place that may look beside the checkout, and says that it is optional.
const MAY_LOOK_BESIDE: &str = ".ci/run";

#[test]
fn files_stay_short_and_say_what_they_are_for() {
    for path in sources() {
        let text = read(&path);
        let lines = production(&text).lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", shown(&path));
        assert!(text.starts_with("//!"), "{} does not say what it is for", shown(&path));
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let extensions = [".rs", ".md", ".toml", ".yaml", ".yml", ".proto", ".py", ".sh", ".json"];
    let mut paths = files(&root(), &extensions);
    paths.extend(scripts());
    for path in paths {
        let text = read(&path);
        for name in FOREIGN {
            let may = name.starts_with("..") && shown(&path) == MAY_LOOK_BESIDE;
            assert!(may || !text.contains(name), "{} names `{name}`", shown(&path));
        }
    }
}

/// Scripts without an extension.
fn scripts() -> Vec<std::path::PathBuf> {
    ["tests/real-engine/run", ".ci/run"]
        .iter()
        .map(|path| root().join(path))
        .filter(|path| path.exists())
        .collect()
}

#[test]
fn scripts_can_be_run_and_stop_at_the_first_failure() {
    use std::os::unix::fs::PermissionsExt as _;
    let scripts = scripts();
    assert_eq!(scripts.len(), 2, "{scripts:?}");
    for path in scripts {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{} is not executable", shown(&path));
        let text = read(&path);
        assert!(text.starts_with("#!/usr/bin/env bash\n"), "{}", shown(&path));
        assert!(text.contains("set -euo pipefail"), "{}", shown(&path));
    }
}

/// Lines of the fenced blocks of shell commands in the document at `path`, without prompts and
/// comments.
fn commands(path: &Path) -> Vec<String> {
    let text = read(path);
    let mut commands = Vec::new();
    let mut fence: Option<bool> = None;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(matches!(language.trim(), "" | "sh" | "bash" | "shell" | "console")),
            };
        } else if fence == Some(true) {
            let line = line.trim_start_matches("$ ");
            let line = line.split(" #").next().unwrap().trim();
            if !line.is_empty() && !line.starts_with('#') {
                commands.push(line.to_owned());
            }
        }
    }
    commands
}

#[test]
fn the_readme_starts_with_the_demo_and_the_tests() {
    let commands = commands(&root().join("README.md"));
    let first: Vec<_> = commands.iter().take(2).map(String::as_str).collect();
    assert_eq!(first, ["cargo run --release -- demo", "cargo test --workspace"]);
}

/// A `//` line of nothing but signs is a banner.
#[test]
fn no_banners() {
    for path in sources() {
        for line in read(&path).lines() {
            let signs = line.trim().trim_start_matches('/').trim();
            let is_banner = line.trim().starts_with("//")
                && signs.len() >= 4
                && signs.chars().all(|c| "-=*#~_/".contains(c));
            assert!(!is_banner, "{} has a banner", shown(&path));
        }
    }
}
