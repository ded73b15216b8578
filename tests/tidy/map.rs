//! The table in `ARCHITECTURE.md` and the crates agree, and each room reads only rooms above it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    files::{files, is_test, production, read, root},
    manifests::{manifest, reads},
};

/// Room names in the order of the table in ARCHITECTURE.md.
pub(crate) fn rooms() -> Vec<String> {
    let text = read(&root().join("ARCHITECTURE.md"));
    text.lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned())
        })
        .collect()
}

#[test]
fn the_map_lists_every_room() {
    let mut listed = rooms();
    let mut present: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort();
    present.sort();
    assert_eq!(listed, present);
}

#[test]
fn rooms_read_only_rooms_above_them() {
    let rooms = rooms();
    for (position, room) in rooms.iter().enumerate() {
        let manifest = manifest(&format!("crates/{room}"));
        for name in reads(&manifest) {
            if let Some(other) = rooms.iter().position(|room| *room == name) {
                assert!(
                    other < position,
                    "`{room}` may not read `{name}`: it stands below it in the map"
                );
            }
        }
    }
}

/// Names that `text` reads as `crate::name`, alone or in a `crate::{…}` group.
fn modules_read(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, found) in text.match_indices("crate::") {
        let rest = &text[at + found.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(leading_name(rest));
            continue;
        };
        let mut depth = 1;
        let mut at_start = true;
        for (i, c) in group.char_indices() {
            if depth == 1 && at_start && !c.is_whitespace() && c != '}' {
                names.push(leading_name(&group[i..]));
                at_start = false;
            }
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => at_start = true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn leading_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Top-level modules of a room form no cycle, so each can be read after the ones it uses.
#[test]
fn modules_of_a_room_form_no_cycle() {
    for room in rooms() {
        let src = root().join("crates").join(&room).join("src");
        let mut reads = BTreeMap::<String, BTreeSet<String>>::new();
        for path in files(&src, &[".rs"]).into_iter().filter(|path| !is_test(path)) {
            let first = path.strip_prefix(&src).unwrap().components().next().unwrap();
            let module = Path::new(&first).file_stem().unwrap().to_str().unwrap().to_owned();
            let text = read(&path);
            reads.entry(module).or_default().extend(modules_read(production(&text)));
        }
        reads.retain(|module, _| module != "lib" && module != "main");
        while let Some(settled) = reads
            .iter()
            .find(|(module, read)| !read.iter().any(|r| r != *module && reads.contains_key(r)))
            .map(|(module, _)| module.clone())
        {
            reads.remove(&settled);
        }
        assert!(reads.is_empty(), "`{room}` has modules that read each other: {:?}", reads.keys());
    }
}

#[test]
fn a_group_of_imports_is_read_at_its_first_level() {
    let text = "use crate::{\n    a::{b, c},\n    d,\n};\nuse crate::e::f;";
    assert_eq!(modules_read(text), ["a", "d", "e"]);
}
