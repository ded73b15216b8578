//! The store as its caller sees it: what survives, what is bounded, what is refused.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{fs, path::Path};

use state::{Error, Found, Opened, Options, Store, Writer};
use tempfile::TempDir;

const SCHEMA: u32 = 7;

fn options(folder: &TempDir) -> Options {
    Options { path: folder.path().join("state"), ..Options::default() }
}

fn open(options: &Options) -> Store {
    Store::open(options.clone(), SCHEMA).unwrap().store
}

/// A sample of 200 bytes that tells its number.
fn sample(number: u64) -> Vec<u8> {
    let mut sample = number.to_be_bytes().to_vec();
    // Hardly compressible, as rows are.
    let mut state = number | 1;
    while sample.len() < 200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sample.extend(state.to_be_bytes());
    }
    sample
}

fn numbers(store: &Store) -> Vec<u64> {
    let numbers = store.samples().map(|sample| {
        let sample = sample.unwrap();
        u64::from_be_bytes(sample[..8].try_into().unwrap())
    });
    numbers.collect()
}

/// Names of what lies in `folder`, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    let Opened { store, found } = Store::open(options.clone(), SCHEMA).unwrap();
    assert_eq!(found, Found::Fresh);
    let model: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    store.put_blob("model", &model).unwrap();
    store.put_blob("calibration", b"").unwrap();
    assert_eq!(store.append((0..500).map(sample)).unwrap(), 500);
    drop(store);

    let Opened { store, found } = Store::open(options, SCHEMA).unwrap();
    assert_eq!(found, Found::Warm);
    assert_eq!(store.blobs().unwrap(), ["calibration", "model"]);
    assert_eq!(store.blob("model").unwrap(), Some(model));
    assert_eq!(store.blob("calibration").unwrap(), Some(Vec::new()));
    assert_eq!(store.blob("nothing").unwrap(), None);
    assert_eq!(numbers(&store), (0..500).collect::<Vec<_>>());
    assert_eq!(store.append([sample(500)]).unwrap(), 501);
    assert!(store.samples().last().unwrap().unwrap() == sample(500));
}

#[test]
fn a_blob_is_replaced_as_a_whole() {
    let folder = TempDir::new().unwrap();
    let store = open(&options(&folder));
    // Names of which one begins the other, and content that shrinks and grows over pieces.
    for (round, bytes) in [90_000, 10, 20_000, 0, 7_168, 50_000].into_iter().enumerate() {
        let fill = vec![round as u8; bytes];
        store.put_blob("m", &fill).unwrap();
        store.put_blob("model", &fill[bytes / 2..]).unwrap();
        assert_eq!(store.blob("m").unwrap(), Some(fill.clone()));
        assert_eq!(store.blob("model").unwrap(), Some(fill[bytes / 2..].to_vec()));
    }
}

#[test]
fn the_oldest_samples_go_first() {
    let folder = TempDir::new().unwrap();
    let options = Options { max_samples: 2_000, ..options(&folder) };
    let store = open(&options);
    for batch in 0..60 {
        store.append((batch * 100..).take(100).map(sample)).unwrap();
        let kept = numbers(&store);
        assert!(kept.len() <= 2_000, "{}", kept.len());
        assert_eq!(kept.last(), Some(&(batch * 100 + 99)));
    }
    let kept = numbers(&store);
    assert!(kept.len() > 1_700, "{}", kept.len());
    assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1));
    drop(store);
    assert_eq!(numbers(&open(&options)), kept);
}

#[test]
fn one_append_of_more_than_fits_keeps_the_newest() {
    let folder = TempDir::new().unwrap();
    let store = open(&Options { max_samples: 1, ..options(&folder) });
    store.append((0..3).map(sample)).unwrap();
    assert_eq!(numbers(&store), [2]);
}

#[test]
fn the_disk_is_bounded_whatever_is_written() {
    let folder = TempDir::new().unwrap();
    let options = Options { max_bytes: 16 << 20, ..options(&folder) };
    let store = open(&options);
    for round in 0..80_u64 {
        store.append((round * 1_000..).take(1_000).map(sample)).unwrap();
        store.put_blob("model", &vec![round as u8; 500_000]).unwrap();
        // A name for each model that ever was would be unbounded: the room is shared.
        let _ = store.put_blob(&format!("other {round}"), &vec![0; 100_000]);
        let size = store.size_on_disk().unwrap();
        assert!(size <= options.max_bytes, "{size} after round {round}");
    }
    let kept = numbers(&store);
    assert!(kept.len() > 4_000, "{}", kept.len());
    assert_eq!(kept.last(), Some(&79_999));
    assert_eq!(store.blob("model").unwrap(), Some(vec![79; 500_000]));
    store.flush().unwrap();
    drop(store);
    assert_eq!(numbers(&open(&options)), kept);
    let stores = names(&options.path).into_iter().filter(|name| name.starts_with("store-"));
    assert_eq!(stores.count(), 1, "a copy was left behind");
}

#[test]
fn samples_keep_to_their_bytes_and_leave_the_rest_to_blobs() {
    let folder = TempDir::new().unwrap();
    let bound = 2 << 20;
    let options = Options { max_bytes: 64 << 20, max_sample_bytes: bound, ..options(&folder) };
    let store = open(&options);
    // Ten times the bound, in rows of about 400 bytes.
    let row = |number: u64| [&number.to_be_bytes()[..], &[b'x'; 392]].concat();
    let rows = 10 * bound / 400;
    for start in (0..rows).step_by(1_000) {
        store.append((start..rows.min(start + 1_000)).map(row)).unwrap();
        let (_, bytes) = store.sample_size().unwrap();
        assert!(bytes <= bound, "{bytes} after {start}");
    }
    let (count, bytes) = store.sample_size().unwrap();
    assert!(bytes > bound * 9 / 10 && count > bound / 400 * 8 / 10, "{count} {bytes}");
    let on_disk = store.size_on_disk().unwrap();
    assert!(on_disk <= options.max_bytes, "{on_disk}");
    let newest = store.samples().last().unwrap().unwrap();
    assert_eq!(newest, row(rows - 1));
    store.put_blob("model", &vec![1; 4 << 20]).unwrap();
}

#[test]
fn a_lower_limit_holds_from_the_next_start() {
    let folder = TempDir::new().unwrap();
    let wide = options(&folder);
    let store = open(&wide);
    for batch in 0..100 {
        store.append((batch * 1_000..).take(1_000).map(sample)).unwrap();
    }
    store.put_blob("model", b"kept").unwrap();
    store.flush().unwrap();
    drop(store);
    let narrow = Options { max_bytes: 8 << 20, ..wide };
    let store = open(&narrow);
    assert!(store.size_on_disk().unwrap() <= narrow.max_bytes);
    assert_eq!(numbers(&store).last(), Some(&99_999));
    assert_eq!(store.blob("model").unwrap().unwrap(), b"kept");
}

#[test]
fn what_cannot_fit_is_refused_by_name_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let store = open(&Options { max_bytes: 8 << 20, ..options(&folder) });
    store.put_blob("model", b"old").unwrap();
    let error = store.put_blob("model", &vec![0; 2 << 20]).unwrap_err();
    assert_eq!(error.to_string(), "`model` has 2097152 bytes, 1048576 fit");
    assert_eq!(store.blob("model").unwrap().unwrap(), b"old");
    let error = store.append([sample(0), vec![0; 70_000]]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(store.samples().count(), 0);
}

#[test]
fn another_schema_is_moved_aside_and_kept() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    for schema in [7, 8, 7, 8] {
        let store = Store::open(options.clone(), schema).unwrap().store;
        assert_eq!(store.samples().count(), 0, "schema {schema}");
        store.append([sample(u64::from(schema))]).unwrap();
        store.flush().unwrap();
    }
    let expected = ["state", "state.schema-7-3", "state.schema-8-2"];
    assert_eq!(names(folder.path()), expected);
    let kept = Options { path: folder.path().join("state.schema-7-3"), ..options };
    assert_eq!(numbers(&open(&kept)), [7]);
}

#[test]
fn two_of_those_moved_aside_stay_the_newest() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    for schema in 1..=5_u32 {
        let store = Store::open(options.clone(), schema).unwrap().store;
        store.put_blob("model", &schema.to_be_bytes()).unwrap();
        store.flush().unwrap();
    }
    let mine = folder.path().join("state.backup-1");
    fs::create_dir(&mine).unwrap();
    drop(Store::open(options.clone(), 5).unwrap());
    let left = names(folder.path());
    assert_eq!(left, ["state", "state.backup-1", "state.schema-3-3", "state.schema-4-4"]);
}

#[test]
fn one_moved_aside_that_holds_something_else_is_not_removed() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    for schema in 1..=4 {
        drop(Store::open(options.clone(), schema).unwrap());
        if schema == 2 {
            fs::write(folder.path().join("state.schema-1-1/notes"), "mine").unwrap();
        }
    }
    drop(Store::open(options.clone(), 5).unwrap());
    let notes = fs::read_to_string(folder.path().join("state.schema-1-1/notes"));
    assert_eq!(notes.unwrap(), "mine");
    assert!(!folder.path().join("state.schema-2-2").exists());
}

#[test]
fn what_is_there_can_be_read_without_being_changed() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    let refused = |schema| Store::open_existing(&options.path, schema).unwrap_err().to_string();
    let path = options.path.display();
    assert_eq!(refused(SCHEMA), format!("there is no state in `{path}`"));
    assert!(!options.path.exists());
    let store = open(&options);
    store.append((0..100).map(sample)).unwrap();
    store.flush().unwrap();
    assert_eq!(refused(SCHEMA), format!("state in `{path}` is in use by another process"));
    drop(store);
    let text = format!("state in `{path}` has schema version {SCHEMA}, not {}", SCHEMA + 1);
    assert_eq!(refused(SCHEMA + 1), text);
    let store = Store::open_existing(&options.path, SCHEMA).unwrap();
    assert_eq!(numbers(&store), (0..100).collect::<Vec<_>>());
    drop(store);
    fs::write(options.path.join("manifest"), "rubbish").unwrap();
    assert_eq!(refused(SCHEMA), format!("the state database in `{path}` failed"));
    assert_eq!(names(folder.path()), ["state"]);
}

#[test]
fn a_store_is_held_by_one_at_a_time() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    let store = open(&options);
    let clone = store.clone();
    let error = Store::open(options.clone(), SCHEMA).unwrap_err();
    let expected = format!("state in `{}` is in use by another process", options.path.display());
    assert_eq!(error.to_string(), expected);
    // Nor may a wrong schema take it away from its holder.
    assert!(matches!(Store::open(options.clone(), 8), Err(Error::InUse { .. })));
    drop(store);
    assert!(matches!(Store::open(options.clone(), SCHEMA), Err(Error::InUse { .. })));
    clone.append([sample(0)]).unwrap();
    drop(clone);
    assert_eq!(numbers(&open(&options)), [0]);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let options = Options { path: file.join("state"), ..Options::default() };
    let error = Store::open(options.clone(), SCHEMA).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot use `{}` for state", options.path.display()));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(fs::read_to_string(file).unwrap(), "not a directory");
}

#[test]
fn what_else_lies_in_the_directory_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    fs::create_dir(&options.path).unwrap();
    fs::write(options.path.join("notes"), "mine").unwrap();
    assert_eq!(Store::open(options.clone(), SCHEMA).unwrap().found, Found::Fresh);
    assert_eq!(Store::open(options.clone(), SCHEMA).unwrap().found, Found::Warm);
    assert_eq!(fs::read_to_string(options.path.join("notes")).unwrap(), "mine");
}

#[test]
fn the_writer_has_written_everything_once_it_is_stopped() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    let writer = Writer::start(open(&options)).unwrap();
    assert!((0..3_210).all(|number| writer.try_append(sample(number))));
    writer.put_blob("model", b"old".to_vec());
    writer.put_blob("model", b"new".to_vec());
    writer.stop();
    assert_eq!(writer.dropped(), 0);
    assert!(!writer.try_append(sample(0)), "nobody would write it");
    assert_eq!(writer.dropped(), 1);

    let store = open(&options);
    assert_eq!(numbers(&store), (0..3_210).collect::<Vec<_>>());
    assert_eq!(store.blob("model").unwrap().unwrap(), b"new");
}

#[test]
fn every_sample_is_written_or_counted_as_dropped() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder);
    let writer = Writer::start(open(&options)).unwrap();
    let pushed = 50_000;
    // Faster than a disk; how many are dropped is the disk's affair.
    let taken: Vec<u64> = (0..pushed).filter(|&n| writer.try_append(sample(n))).collect();
    assert!(!writer.try_append(vec![0; 70_000]), "too large for the store");
    writer.stop();
    assert_eq!(writer.dropped(), pushed + 1 - taken.len() as u64);
    assert_eq!(numbers(&open(&options)), taken);
}

#[test]
fn options_have_defaults_and_refuse_what_they_do_not_know() {
    let options: Options = serde_json::from_str(r#"{"max_samples": 5}"#).unwrap();
    assert_eq!(options, Options { max_samples: 5, ..Options::default() });
    assert!(serde_json::from_str::<Options>(r#"{"max_rows": 5}"#).is_err());
}
