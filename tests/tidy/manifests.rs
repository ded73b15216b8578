//! Every manifest inherits what the workspace sets, and rooms of pure arithmetic stay that.

use std::fs;

use toml::{Table, Value};

use crate::files::{read, root};

/// Rooms without async, task or clock: the simulator runs them in virtual time.
const PURE: [&str; 6] = ["types", "prefix", "features", "regress", "predict", "schedule"];
/// What would bring those in.
const ASYNC: [&str; 8] =
    ["tokio", "tokio-util", "tokio-stream", "futures", "hyper", "hyper-util", "axum", "tonic"];

/// The manifest of the member in `folder`.
pub(crate) fn manifest(folder: &str) -> Table {
    read(&root().join(folder).join("Cargo.toml")).parse().unwrap()
}

/// What a crate is built from; what only its tests use is left out.
pub(crate) fn reads(manifest: &Table) -> Vec<String> {
    let table = |name| manifest.get(name).and_then(Value::as_table);
    let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(table);
    tables.flat_map(Table::keys).cloned().collect()
}

fn members() -> Vec<String> {
    let rooms = fs::read_dir(root().join("crates")).unwrap();
    let rooms = rooms.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut members: Vec<_> = rooms.map(|room| format!("crates/{room}")).collect();
    members.extend(["tests", "benches"].map(str::to_owned));
    members
}

/// Whether `keys` lead to `workspace = true` in `manifest`.
fn inherits(manifest: &Table, keys: &[&str]) -> bool {
    let (first, rest) = keys.split_first().unwrap();
    let start = manifest.get(*first);
    let at = rest.iter().try_fold(start, |at, key| Some(at?.get(key))).flatten();
    at.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

#[test]
fn every_member_inherits_the_lints_and_the_licence() {
    for member in members() {
        let manifest = manifest(&member);
        for keys in [
            &["lints"][..],
            &["package", "license"],
            &["package", "edition"],
            &["package", "version"],
            &["package", "publish"],
        ] {
            let key = keys.join(".");
            assert!(inherits(&manifest, keys), "`{member}` does not inherit `{key}`");
        }
    }
}

#[test]
fn rooms_of_arithmetic_have_no_async() {
    for room in PURE {
        let reads = reads(&manifest(&format!("crates/{room}")));
        for name in ASYNC {
            assert!(!reads.iter().any(|read| read == name), "`{room}` may not read `{name}`");
        }
    }
}

/// Two versions of one crate in a room would be two types of one name.
#[test]
fn rooms_take_other_rooms_from_the_workspace() {
    for member in members() {
        let manifest = manifest(&member);
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(dependencies) = manifest.get(table).and_then(Value::as_table) else {
                continue;
            };
            for (name, value) in dependencies {
                let is_room = root().join("crates").join(name).exists();
                let inherits = value.get("workspace").and_then(Value::as_bool) == Some(true);
                assert!(!is_room || inherits, "`{member}` does not inherit the room `{name}`");
            }
        }
    }
}

#[test]
fn the_licence_is_apache_2() {
    let text = read(&root().join("LICENSE"));
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
    let workspace = manifest(".");
    let licence = workspace["workspace"]["package"]["license"].as_str();
    assert_eq!(licence, Some("Apache-2.0"));
}
