//! The store: a ring of samples and named blobs, bounded in number and in bytes on disk.

use std::{fmt, ops::Bound, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{
    blobs,
    books::{self, Books},
    chunk::{Chunk, MAX_SAMPLE_BYTES},
    disk::{Disk, Trees},
    error::Error,
    home::{Found, Home},
    options::Options,
    samples::Samples,
};

/// Chunks written, or copied, at once: half a megabyte.
const CHUNKS_AT_ONCE: usize = 64;

/// What [`Store::open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What it was opened on.
    pub found: Found,
}

/// Samples and blobs on disk. Clones share one store; the directory is free once all are dropped.
///
/// Calls block on the disk and on each other; [`crate::Writer`] keeps them off the request path.
/// After an error the store tries anew at the next call, with what reached the disk before.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    options: Options,
    /// Whether a database that fails may be opened again, and moved aside.
    may_mend: bool,
    state: Mutex<State>,
}

struct State {
    disk: Disk,
    books: Books,
    home: Home,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in `options.path`, making it if nothing is there.
    ///
    /// One written under another `schema_version`, or that cannot be read, is renamed to
    /// `<path>.schema-<version>-<n>` or `<path>.corrupt-<n>` (inside `<path>` where the directory
    /// itself cannot be renamed) and a fresh one is opened. The newest two of those stay.
    pub fn open(options: Options, schema_version: u32) -> Result<Opened, Error> {
        let options = options.bounded();
        let home = Home::claim(&options, schema_version)?;
        let disk = Disk::closed(home.path());
        let mut state = State { disk, books: Books::default(), home };
        let found = state.open(&options)?;
        state.home.prune_aside();
        let state = Mutex::new(state);
        Ok(Opened { store: Self(Arc::new(Shared { options, may_mend: true, state })), found })
    }

    /// Opens the store that is in `path` to read from it, and leaves everything there as it is. An
    /// error if there is none, or it cannot be read.
    pub fn open_existing(path: &Path, schema_version: u32) -> Result<Self, Error> {
        let (home, disk, books) = Home::existing(path, schema_version)?;
        let options = Options { path: path.to_owned(), ..Options::default() };
        let state = Mutex::new(State { disk, books, home });
        Ok(Self(Arc::new(Shared { options, may_mend: false, state })))
    }

    /// Makes `bytes` the blob `name`, wholly or not at all.
    pub fn put_blob(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.ready()?;
        let limit = state.books.room_for(name, &self.0.options);
        let size = bytes.len() as u64;
        if size > limit {
            return Err(Error::TooLarge { name: name.to_owned(), bytes: size, limit });
        }
        state.disk.run(|trees| blobs::write(trees, name, bytes))?;
        state.books.put(name.to_owned(), size);
        state.trim(&self.0.options)
    }

    /// The blob `name`, exactly as it was put.
    pub fn blob(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.ready()?.disk.run(|trees| blobs::read(trees, name))? {
            blobs::Found::Missing => Ok(None),
            blobs::Found::Is(bytes) => Ok(Some(bytes)),
            blobs::Found::Damaged => Err(Error::Damaged { name: name.to_owned() }),
        }
    }

    /// Names of all blobs, sorted.
    pub fn blobs(&self) -> Result<Vec<String>, Error> {
        Ok(self.ready()?.books.names())
    }

    /// Adds `samples`, each of at most 64 KiB, and removes the oldest beyond the limits. Gives the
    /// sequence number of the next sample, counted from 0 when the store was made.
    pub fn append(&self, samples: impl IntoIterator<Item = Vec<u8>>) -> Result<u64, Error> {
        // Packed before the lock is taken: the iterator is the caller's, and may read this store.
        let chunks = pack(samples, books::samples_a_chunk(&self.0.options))?;
        let mut state = self.ready()?;
        for some in chunks.chunks(CHUNKS_AT_ONCE) {
            state.add(some)?;
            state.prune(&self.0.options)?;
        }
        state.trim(&self.0.options)?;
        Ok(state.books.next())
    }

    /// The samples, oldest first. A damaged run of them is one error, and the walk goes on behind
    /// it; any other error ends it.
    pub fn samples(&self) -> impl Iterator<Item = Result<Vec<u8>, Error>> + use<> {
        let store = self.clone();
        Samples::new(move |from: u64| {
            store.ready()?.disk.run(|trees| {
                let mut entries = trees.samples.range(from.to_be_bytes()..);
                entries.find_map(|entry| chunk_entry(entry).transpose()).transpose()
            })
        })
    }

    /// How many samples there are, and the bytes that they take.
    pub fn sample_size(&self) -> Result<(u64, u64), Error> {
        Ok(self.ready()?.books.samples())
    }

    /// Brings everything to the device.
    pub fn flush(&self) -> Result<(), Error> {
        self.ready()?.disk.flush()
    }

    /// Bytes of the store in files. Stores moved aside are not counted.
    pub fn size_on_disk(&self) -> Result<u64, Error> {
        self.0.state.lock().home.size()
    }

    /// How often to flush.
    pub(crate) fn flush_every(&self) -> Duration {
        Duration::from_millis(self.0.options.flush_ms)
    }

    /// The state, its database opened again if it failed: sled stops for good at its first failure.
    fn ready(&self) -> Result<parking_lot::MutexGuard<'_, State>, Error> {
        let mut state = self.0.state.lock();
        if state.disk.is_broken() && self.0.may_mend {
            // sled lets go of its file first.
            state.disk = Disk::closed(state.home.path());
            state.open(&self.0.options)?;
        }
        Ok(state)
    }
}

impl State {
    /// Opens the database in place of the closed one.
    ///
    /// One that was there is copied, and the copy counted: after damage in the middle of its log
    /// sled opens with what stands before it, may skip entries in one walk and not in the next, and
    /// loses at the next start what it takes now.
    fn open(&mut self, options: &Options) -> Result<Found, Error> {
        let (disk, books, found) = self.home.open()?;
        (self.disk, self.books) = (disk, books);
        // The limits may be lower than those it was written under.
        self.prune(options)?;
        if found == Found::Warm {
            match self.rewrite() {
                Ok(()) => self.books = Books::read(&self.disk)?,
                // What is there can be read at least.
                Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Writes `chunks`, each with its number of samples, all or none.
    fn add(&mut self, chunks: &[(u64, Vec<u8>)]) -> Result<(), Error> {
        let mut batch = sled::Batch::default();
        let mut first = self.books.next();
        for (count, value) in chunks {
            batch.insert(&first.to_be_bytes(), value.as_slice());
            first += count;
        }
        self.disk.run(|trees| trees.samples.apply_batch(batch))?;
        for (count, value) in chunks {
            self.books.add(self.books.next(), *count, value.len());
        }
        Ok(())
    }

    /// Removes the oldest samples beyond the limits.
    fn prune(&mut self, options: &Options) -> Result<(), Error> {
        let keys = self.books.prune(options);
        if keys.is_empty() {
            return Ok(());
        }
        let mut batch = sled::Batch::default();
        for key in keys {
            batch.remove(&key.to_be_bytes());
        }
        self.disk.run(|trees| trees.samples.apply_batch(batch))
    }

    /// Brings the store below its limits.
    fn trim(&mut self, options: &Options) -> Result<(), Error> {
        self.prune(options)?;
        if self.home.size()? > books::rewrite_at(options) { self.rewrite() } else { Ok(()) }
    }

    /// Copies what is live into a new database and makes that the current one. sled reuses the
    /// space of what was removed, but not all of it, and its file hardly ever shrinks.
    fn rewrite(&mut self) -> Result<(), Error> {
        let (number, copy) = self.home.make()?;
        let done = copy_tree(&self.disk, &copy, |trees| &trees.blobs)
            .and_then(|()| copy_tree(&self.disk, &copy, |trees| &trees.samples))
            .and_then(|()| copy.flush())
            .and_then(|()| self.home.commit(number));
        if let Err(error) = done {
            drop(copy);
            self.home.discard(number);
            return Err(error);
        }
        self.disk = copy;
        self.home.keep_only(number).map_err(|error| Error::io(self.home.path(), error))
    }
}

/// Copies the tree that `pick` gives, values as they are: damage stays noticeable.
fn copy_tree(from: &Disk, to: &Disk, pick: fn(&Trees) -> &sled::Tree) -> Result<(), Error> {
    let mut last: Option<sled::IVec> = None;
    loop {
        let entries = from.run(|trees| {
            let tree = pick(trees);
            let start = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let entries = tree.range::<&sled::IVec, _>((start, Bound::Unbounded));
            entries.take(CHUNKS_AT_ONCE).collect::<sled::Result<Vec<_>>>()
        })?;
        let Some((key, _)) = entries.last() else { return Ok(()) };
        last = Some(key.clone());
        let mut batch = sled::Batch::default();
        for (key, value) in entries {
            batch.insert(key, value);
        }
        to.run(|trees| pick(trees).apply_batch(batch))?;
    }
}

/// A chunk as the walk wants it; none for a key that is not ours.
fn chunk_entry(
    entry: sled::Result<(sled::IVec, sled::IVec)>,
) -> sled::Result<Option<(u64, Vec<u8>)>> {
    let (key, value) = entry?;
    let key = key.as_ref().try_into().ok().map(u64::from_be_bytes);
    Ok(key.map(|key| (key, value.to_vec())))
}

/// `samples` in chunks of at most `most`, each with its number of samples.
fn pack(
    samples: impl IntoIterator<Item = Vec<u8>>,
    most: u64,
) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let mut chunks = Vec::new();
    let mut chunk = Chunk::new();
    let mut close = |chunk: Chunk| {
        if chunk.count() > 0 {
            chunks.push((chunk.count(), chunk.finish()));
        }
    };
    for sample in samples {
        if sample.len() > MAX_SAMPLE_BYTES {
            let (name, bytes) = ("sample".to_owned(), sample.len() as u64);
            return Err(Error::TooLarge { name, bytes, limit: MAX_SAMPLE_BYTES as u64 });
        }
        if chunk.count() >= most || chunk.is_full_for(sample.len()) {
            close(std::mem::replace(&mut chunk, Chunk::new()));
        }
        chunk.push(&sample);
    }
    close(chunk);
    Ok(chunks)
}
