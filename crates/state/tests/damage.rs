//! Whatever happens to the files, the store opens, and nothing is lost that could be kept.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use state::{Error, Found, Opened, Options, Store};
use tempfile::TempDir;

const SCHEMA: u32 = 7;
const SAMPLES: u64 = 3_000;

fn options(path: PathBuf) -> Options {
    Options { path, ..Options::default() }
}

fn samples(range: std::ops::Range<u64>) -> impl Iterator<Item = Vec<u8>> {
    range.map(|number| number.to_be_bytes().repeat(25))
}

/// A store of [`SAMPLES`] samples and two blobs in `path`, closed in good order.
fn filled(path: &Path) {
    let store = Store::open(options(path.to_owned()), SCHEMA).unwrap().store;
    for start in (0..SAMPLES).step_by(500) {
        store.append(samples(start..start + 500)).unwrap();
    }
    store.put_blob("model", &vec![1; 20_000]).unwrap();
    store.put_blob("calibration", &[2; 100]).unwrap();
    store.flush().unwrap();
}

/// The one folder in `path` that sled writes to.
fn database(path: &Path) -> PathBuf {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut stores = entries.filter(|path| path.is_dir());
    let store = stores.next().unwrap();
    assert!(stores.next().is_none());
    store
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens what lies in `path`, and checks that it works whatever that was.
fn opens_and_works(path: &Path) -> Found {
    let Opened { store, found } = Store::open(options(path.to_owned()), SCHEMA).unwrap();
    let before = store.samples().flatten().count();
    for name in store.blobs().unwrap() {
        let read = store.blob(&name);
        assert!(matches!(read, Ok(Some(_)) | Err(Error::Damaged { .. })), "{name}: {read:?}");
    }
    if found != Found::Warm {
        assert_eq!((before, store.blobs().unwrap().len()), (0, 0), "a fresh store is empty");
    }
    store.append(samples(0..100)).unwrap();
    store.put_blob("model", &vec![3; 30_000]).unwrap();
    store.flush().unwrap();
    drop(store);
    let Opened { store, found: again } = Store::open(options(path.to_owned()), SCHEMA).unwrap();
    assert_eq!(again, Found::Warm);
    assert_eq!(store.samples().flatten().count(), before + 100);
    assert_eq!(store.blob("model").unwrap(), Some(vec![3; 30_000]));
    found
}

/// Seeded numbers; xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn files_of_garbage_are_moved_aside_and_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    for n in 1..=3 {
        filled(&path);
        let file = database(&path).join("db");
        let bytes = fs::metadata(&file).unwrap().len() as usize;
        let mut random = Random(n);
        let garbage: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        fs::write(&file, &garbage).unwrap();
        let found = opens_and_works(&path);
        let Found::MovedAside { to, why } = found else { panic!("{found:?}") };
        assert_eq!(to, folder.path().join(format!("state.corrupt-{n}")));
        assert!(!why.is_empty());
        assert!(database(&to).join("db").exists());
    }
}

#[test]
fn a_truncated_file_never_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole");
    filled(&whole);
    for eighth in 0..8 {
        let path = folder.path().join(format!("cut-{eighth}"));
        copy(&whole, &path);
        let file = fs::File::options().write(true).open(database(&path).join("db")).unwrap();
        file.set_len(file.metadata().unwrap().len() * eighth / 8).unwrap();
        opens_and_works(&path);
    }
}

#[test]
fn a_lost_or_garbled_manifest_moves_the_store_aside() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    filled(&path);
    fs::remove_file(path.join("manifest")).unwrap();
    assert!(matches!(opens_and_works(&path), Found::MovedAside { .. }));
    fs::write(path.join("manifest"), "schema 7").unwrap();
    assert!(matches!(opens_and_works(&path), Found::MovedAside { .. }));
    fs::remove_dir_all(database(&path)).unwrap();
    assert!(matches!(opens_and_works(&path), Found::MovedAside { .. }));
}

/// Any file, anywhere, in any way: it opens, and is either kept or moved aside.
#[test]
fn no_damage_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole");
    filled(&whole);
    let mut random = Random(42);
    for round in 0..60 {
        let path = folder.path().join("state");
        copy(&whole, &path);
        let store = database(&path);
        let files = [store.join("db"), store.join("db"), store.join("conf"), path.join("manifest")];
        let file = &files[random.below(files.len())];
        let mut bytes = fs::read(file).unwrap();
        let at = random.below(bytes.len());
        match round % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at..].fill(0),
            _ => bytes.iter_mut().skip(at).take(4_096).for_each(|byte| *byte ^= 0x5a),
        }
        fs::write(file, bytes).unwrap();
        opens_and_works(&path);
        fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn what_a_link_leads_to_is_moved_aside_and_the_link_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    filled(&path);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let found = Store::open(options(link.clone()), 8).unwrap().found;
    let Found::MovedAside { to, .. } = found else { panic!("{found:?}") };
    assert_eq!(to, folder.path().join("state.schema-7-1"));
    assert!(link.is_symlink() && path.join("manifest").exists());
}

#[test]
fn a_directory_that_cannot_be_renamed_keeps_the_old_store_inside() {
    let folder = TempDir::new().unwrap();
    // A longer name than this is refused, as any other name is for a mounted volume.
    let path = folder.path().join("s".repeat(250));
    filled(&path);
    for schema in [8, 7] {
        Store::open(options(path.clone()), schema).unwrap();
    }
    let old = options(path.join("schema-7-1"));
    assert_eq!(Store::open(old, 7).unwrap().store.samples().count() as u64, SAMPLES);
    assert!(path.join("schema-8-2").exists());
}

#[test]
fn a_copy_that_was_cut_short_is_removed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    filled(&path);
    copy(&database(&path), &path.join("store-77"));
    fs::write(path.join("store-77/db"), "not all of it").unwrap();
    assert_eq!(opens_and_works(&path), Found::Warm);
    assert!(database(&path).exists());
}

#[test]
fn rotten_bits_in_one_value_cost_only_that_value() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    filled(&path);
    let db = sled::open(database(&path)).unwrap();
    flip_last(&db.open_tree("samples").unwrap(), |_| true);
    // The last piece of the model, not the head, whose key begins with an h.
    flip_last(&db.open_tree("blobs").unwrap(), |key| {
        key[0] == b'p' && key.windows(5).any(|part| part == b"model")
    });
    db.flush().unwrap();
    drop(db);

    let Opened { store, found } = Store::open(options(path), SCHEMA).unwrap();
    assert_eq!(found, Found::Warm);
    let error = store.blob("model").unwrap_err();
    assert_eq!(error.to_string(), "`model` is damaged on disk");
    assert_eq!(store.blob("calibration").unwrap(), Some(vec![2; 100]));
    assert_eq!(store.blobs().unwrap(), ["calibration", "model"]);
    let (good, bad): (Vec<_>, Vec<_>) = store.samples().partition(Result::is_ok);
    assert!(good.len() as u64 > SAMPLES - 100, "{}", good.len());
    assert!(matches!(bad[..], [Err(Error::Damaged { .. })]), "{bad:?}");

    store.put_blob("model", b"relearned").unwrap();
    assert_eq!(store.blob("model").unwrap().unwrap(), b"relearned");
    store.append(samples(0..1)).unwrap();
    assert_eq!(store.samples().flatten().count(), good.len() + 1);
}

/// Flips one bit in the value of the last key that `pick` takes.
fn flip_last(tree: &sled::Tree, pick: impl Fn(&[u8]) -> bool) {
    let entries = tree.iter().map(Result::unwrap);
    let (key, value) = entries.filter(|(key, _)| pick(key)).last().unwrap();
    let mut value = value.to_vec();
    *value.last_mut().unwrap() ^= 0x10;
    tree.insert(key, value).unwrap();
}
