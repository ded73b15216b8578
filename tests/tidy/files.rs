//! Where things are in the checkout.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold no source of ours.
const NOT_OURS: [&str; 4] = ["target", ".git", ".venv", "__pycache__"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every file below `folder` whose name ends with one of `extensions`, in a fixed order.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !NOT_OURS.contains(&name) {
                found.extend(files(&path, extensions));
            }
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            found.push(path);
        }
    }
    found
}

/// Every Rust file of the workspace.
pub(crate) fn sources() -> Vec<PathBuf> {
    ["crates", "tests", "benches"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), &[".rs"]))
        .collect()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of `text` before its test module.
pub(crate) fn production(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap()
}

/// Whether `path` holds nothing but tests.
pub(crate) fn is_test(path: &Path) -> bool {
    let below = path.strip_prefix(root()).unwrap();
    below.file_stem().is_some_and(|stem| stem == "tests")
        || below.components().any(|part| part.as_os_str() == "tests")
}

/// `path` as people name it.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}
