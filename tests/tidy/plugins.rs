//! Every plugin is registered, exactly once: a file in a plugin folder, or beside a registry.

use std::path::{Path, PathBuf};

use crate::files::{files, is_test, production, read, root, shown};

/// How a plugin file names itself.
const KIND: &str = "const KIND:";

/// The list that a plugin at `path` must stand in: its folder's `mod.rs`, or the room's registry.
fn list_for(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap();
    let in_folder = folder.join("mod.rs");
    if in_folder.exists() { in_folder } else { folder.join("registry.rs") }
}

#[test]
fn every_plugin_is_registered_once() {
    let mut plugins = 0;
    for path in files(&root().join("crates"), &[".rs"]) {
        let text = read(&path);
        if is_test(&path) || !production(&text).contains(KIND) {
            continue;
        }
        plugins += 1;
        let list = list_for(&path);
        let entry = entry_of(&path);
        let listed = read(&list);
        let uses = listed.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let uses = uses.filter(|word| *word == entry).count();
        assert_eq!(uses, 1, "`{entry}` stands {uses} times in {}", shown(&list));
    }
    assert!(plugins > 0, "no plugin was found");
}

/// A file that is in no module tree would pass unseen, so each one beside plugins must be one.
#[test]
fn a_plugin_folder_holds_plugins_only() {
    for list in files(&root().join("crates"), &["mod.rs"]) {
        if !production(&read(&list)).contains("::KIND") {
            continue;
        }
        for path in files(list.parent().unwrap(), &[".rs"]) {
            if path != list && !is_test(&path) {
                assert!(read(&path).contains(KIND), "{} is no plugin", shown(&path));
            }
        }
    }
}

fn entry_of(path: &Path) -> String {
    format!("{}::KIND", path.file_stem().unwrap().to_str().unwrap())
}
