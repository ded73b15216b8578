//! What other processes, kills and a full disk do to the store.
//!
//! Apart from the other tests: a process that is being started holds for a moment a copy of every
//! lock of the process that starts it.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use parking_lot::Mutex;
use state::{Found, Opened, Options, Store, Writer};
use tempfile::TempDir;

const SCHEMA: u32 = 7;
const SAMPLES: u64 = 1_000;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

fn options(path: PathBuf) -> Options {
    Options { path, ..Options::default() }
}

fn samples(range: std::ops::Range<u64>) -> impl Iterator<Item = Vec<u8>> {
    range.map(|number| number.to_be_bytes().repeat(25))
}

/// Runs the test `name` of this file in a process of its own, behind `shell`.
fn shell(name: &str, shell: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!(r#"{shell} exec "$0" "$@""#)])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Such a process that is told `path` and nothing more.
fn child(name: &str, limits: &str, path: &Path) -> Child {
    let mut child = shell(name, limits);
    writeln!(child.stdin.take().unwrap(), "{}", path.display()).unwrap();
    child
}

/// What a child says, line by line, without what the test runner says.
fn said(child: &mut Child) -> impl Iterator<Item = String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.filter_map(|line| Some(line.unwrap().split_once("child: ")?.1.to_owned()))
}

fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "child: {text}").unwrap();
    out.flush().unwrap();
}

fn told_path() -> PathBuf {
    let mut path = String::new();
    std::io::stdin().read_line(&mut path).unwrap();
    path.trim_end().into()
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child_writes_until_it_cannot() {
    let opened = Store::open(options(told_path()), SCHEMA);
    let store = match opened {
        Ok(opened) => opened.store,
        Err(error) => return say(error),
    };
    let mut written = store.samples().count() as u64;
    loop {
        let result = store.append(samples(written..written + 200)).and_then(|_| store.flush());
        if let Err(error) = result {
            return say(error);
        }
        written += 200;
        say(written);
    }
}

#[test]
fn what_was_flushed_survives_kill_9() {
    let _alone = ALONE.lock();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    let mut least = 0;
    for round in 0..6 {
        let mut child = child("child_writes_until_it_cannot", "", &path);
        let acknowledged = said(&mut child).nth(round * 7).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged: usize = acknowledged.parse().unwrap();
        assert!(acknowledged > least);
        let Opened { store, found } = Store::open(options(path.clone()), SCHEMA).unwrap();
        assert_eq!(found, Found::Warm);
        let kept: Vec<_> = store.samples().map(Result::unwrap).collect();
        assert!(kept.len() >= acknowledged, "{} of {acknowledged}", kept.len());
        assert!(kept.into_iter().eq(samples(0..store.append([]).unwrap())));
        least = acknowledged;
    }
}

#[test]
fn a_full_disk_is_one_clear_error_and_loses_nothing() {
    let _alone = ALONE.lock();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    // A limit on the size of files, in blocks of 512 or 1,024 bytes, stands in for a full disk.
    for blocks in [4_096, 5_000, 6_001] {
        let limit = format!(r#"trap "" XFSZ; ulimit -f {blocks};"#);
        let mut child = child("child_writes_until_it_cannot", &limit, &path);
        let lines: Vec<_> = said(&mut child).collect();
        assert!(child.wait().unwrap().success());
        let [.., acknowledged, error] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(*error, format!("no space left for state in `{}`", path.display()));
        let Opened { store, found } = Store::open(options(path.clone()), SCHEMA).unwrap();
        assert_eq!(found, Found::Warm);
        let kept: Vec<_> = store.samples().map(Result::unwrap).collect();
        assert!(kept.len() >= acknowledged.parse().unwrap(), "{} of {acknowledged}", kept.len());
        assert!(kept.into_iter().eq(samples(0..store.append([]).unwrap())));
    }
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child_writes_beside_its_work() {
    tracing_subscriber::fmt()
        .with_env_filter("info,sled=off")
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let options = Options { flush_ms: 10, ..options(told_path()) };
    let writer = Writer::start(Store::open(options, SCHEMA).unwrap().store).unwrap();
    let is_over = std::thread::spawn(|| std::io::stdin().lock().lines().count());
    while !is_over.is_finished() {
        writer.try_append(vec![b'x'; 4_000]);
        // Some megabytes a second, as busy as a store ever is.
        std::thread::park_timeout(Duration::from_millis(1));
    }
    writer.stop();
}

#[test]
fn a_full_disk_is_told_once_and_writing_goes_on_once_there_is_space() {
    let _alone = ALONE.lock();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    let store = Store::open(options(path.clone()), SCHEMA).unwrap().store;
    store.append(samples(0..SAMPLES)).unwrap();
    store.put_blob("model", &vec![7; 20_000]).unwrap();
    store.flush().unwrap();
    drop(store);
    // A soft limit on the size of files stands in for a full disk: it can be lifted from outside.
    let limit = r#"trap "" XFSZ; ulimit -S -f 8000;"#;
    let mut child = shell("child_writes_beside_its_work", limit);
    let mut input = child.stdin.take().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    writeln!(input, "{}", path.display()).unwrap();
    let told = log.next().unwrap();
    assert!(told.contains("WARN") && told.contains("no space left for state in"), "{told}");
    let lifted = ["--fsize=unlimited", "--pid", &child.id().to_string()];
    assert!(Command::new("prlimit").args(lifted).status().unwrap().success());
    let told = log.next().unwrap();
    assert!(told.contains("INFO") && told.contains("state is written again"), "{told}");
    drop(input);
    assert_eq!(log.collect::<Vec<_>>(), [""; 0]);
    assert!(child.wait().unwrap().success());
    let Opened { store, found } = Store::open(options(path), SCHEMA).unwrap();
    assert_eq!(found, Found::Warm);
    let kept: Vec<_> = store.samples().map(Result::unwrap).collect();
    assert!(kept.len() as u64 > SAMPLES, "{}", kept.len());
    assert!(samples(0..SAMPLES).eq(kept.into_iter().take(SAMPLES as usize)));
    assert_eq!(store.blob("model").unwrap(), Some(vec![7; 20_000]));
}

#[test]
fn another_process_is_told_that_the_store_is_in_use() {
    let _alone = ALONE.lock();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    let store = Store::open(options(path.clone()), SCHEMA).unwrap().store;
    store.append(samples(0..100)).unwrap();
    let mut child = child("child_writes_until_it_cannot", "", &path);
    let lines: Vec<_> = said(&mut child).collect();
    child.wait().unwrap();
    let expected = format!("state in `{}` is in use by another process", path.display());
    assert_eq!(lines, [expected]);
    assert_eq!(store.samples().count(), 100);
}
