//! One sled database. Its panics become errors: sled asserts on pages it cannot make sense of, and
//! a rotten file must not take the process down.

use std::{
    any::Any,
    fmt,
    fs::{self, File},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::error::{Error, Fault};

/// Bytes of sled's page cache. Small: samples are read once, at start.
const CACHE_BYTES: u64 = 16 << 20;
/// Key and value that every database of ours holds. sled opens a file of garbage as an empty
/// database; this tells the two apart.
const MARK: (&[u8], &[u8]) = (b"slackline", b"state");

/// How long a database that was dropped may hold its lock: five seconds.
const LOCK_TRIES: u32 = 250;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What sled gives: the database, and one tree for each kind of value.
pub(crate) struct Trees {
    db: sled::Db,
    pub(crate) samples: sled::Tree,
    pub(crate) blobs: sled::Tree,
}

impl fmt::Debug for Trees {
    /// sled's own would print every value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trees").finish_non_exhaustive()
    }
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The caller's directory, for messages.
    home: PathBuf,
    /// sled's own file, to reach the device: sled's flush ends in the page cache.
    file: Option<File>,
    trees: Option<Trees>,
    broken: AtomicBool,
}

impl Disk {
    /// Makes a database in `folder`, which is not there yet.
    pub(crate) fn create(home: &Path, folder: &Path, flush_ms: u64) -> Result<Self, Error> {
        let disk = Self::start(home, folder, flush_ms)?;
        disk.run(|trees| trees.db.insert(MARK.0, MARK.1))?;
        disk.flush()?;
        Ok(disk)
    }

    /// Opens the database in `folder`. One that lost its content is [`Error::Broken`].
    pub(crate) fn open(home: &Path, folder: &Path, flush_ms: u64) -> Result<Self, Error> {
        let disk = Self::start(home, folder, flush_ms)?;
        if disk.run(|trees| trees.db.get(MARK.0))?.as_deref() == Some(MARK.1) {
            return Ok(disk);
        }
        Err(Error::fault(home, Fault::Empty))
    }

    /// A database that is not open; every use of it fails.
    pub(crate) fn closed(home: &Path) -> Self {
        Self { home: home.to_owned(), file: None, trees: None, broken: AtomicBool::new(true) }
    }

    fn start(home: &Path, folder: &Path, flush_ms: u64) -> Result<Self, Error> {
        remove_drafts(folder);
        let config = sled::Config::new()
            .path(folder)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(flush_ms));
        let trees = start(home, &config)?;
        let file = File::options().write(true).open(folder.join("db"));
        let file = file.map_err(|error| Error::io(home, error))?;
        let (file, trees) = (Some(file), Some(trees));
        Ok(Self { home: home.to_owned(), file, trees, broken: AtomicBool::new(false) })
    }

    /// Whether it failed. sled stops for good at its first failure.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Runs `work` on the trees.
    pub(crate) fn run<T>(&self, work: impl FnOnce(&Trees) -> sled::Result<T>) -> Result<T, Error> {
        let Some(trees) = self.trees.as_ref().filter(|_| !self.is_broken()) else {
            return Err(Error::fault(&self.home, Fault::Closed));
        };
        caught(|| work(trees)).map_err(|error| {
            self.broken.store(true, Relaxed);
            Error::fault(&self.home, error)
        })
    }

    /// Brings everything written so far to the device.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.run(|trees| trees.db.flush())?;
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_all().map_err(|error| Error::io(&self.home, error))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let trees = self.trees.take();
        // What sled cannot write on its way out was not flushed, so it was not promised.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(trees)));
    }
}

/// Opens what `config` says. The caller holds the directory, so a lock on the database is that of
/// one which this process, or the one before it, has just dropped: threads of sled's outlive it for
/// a moment.
fn start(home: &Path, config: &sled::Config) -> Result<Trees, Error> {
    let mut tries = LOCK_TRIES;
    loop {
        let trees = caught(|| {
            let db = config.open()?;
            let (samples, blobs) = (db.open_tree("samples")?, db.open_tree("blobs")?);
            Ok(Trees { db, samples, blobs })
        });
        match trees.map_err(|error| Error::fault(home, error)) {
            Err(Error::InUse { .. }) if tries > 0 => {
                tries -= 1;
                thread::sleep(LOCK_PAUSE);
            }
            trees => return trees,
        }
    }
}

/// Runs `work`; a panic is an error.
fn caught<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Fault::Sled),
        Err(panic) => Err(Fault::Panicked(said(panic.as_ref()))),
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

/// Removes snapshots of sled that were cut short, by a kill or a full disk. sled takes them for
/// finished ones and fails; without them it reads its log.
fn remove_drafts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "generating") {
            // One that stays fails the open, which tells.
            let _ = fs::remove_file(path);
        }
    }
}
