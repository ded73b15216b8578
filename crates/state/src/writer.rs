//! Writes to the store from a thread of its own, so that the request path never waits for a disk.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;

use crate::{chunk::MAX_SAMPLE_BYTES, error::Error, store::Store};

/// Samples written at once; fewer wait for the next flush.
const BATCH: usize = 1_000;
/// Samples that wait at most; more are dropped.
const WAITING: usize = 8 * BATCH;
/// Flushes left out after a failure: opening a failed database reads all of it.
const BACK_OFF: u32 = 10;

/// Takes samples and blobs without waiting, and writes them once 1,000 samples are there or
/// [`crate::Options::flush_ms`] have passed.
///
/// What the store cannot take is dropped and counted; a warning says when that begins, and it tries
/// again every ten times [`crate::Options::flush_ms`]. Dropping the writer stops it.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    samples: SyncSender<Vec<u8>>,
    /// A message hurries the thread; hanging up ends it.
    wake: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The newest bytes of each blob that are not yet written.
    blobs: Mutex<BTreeMap<String, Vec<u8>>>,
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl Writer {
    /// Starts the thread, which holds `store` until it is stopped.
    pub fn start(store: Store) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let (samples, inbox) = mpsc::sync_channel(WAITING);
        let (wake, woken) = mpsc::sync_channel(1);
        let work = Work { store, inbox, shared: Arc::clone(&shared), is_failing: false };
        let thread = thread::Builder::new().name("state-writer".to_owned());
        let thread = thread.spawn(move || work.run(&woken)).map_err(Error::Thread)?;
        let (wake, thread) = (Mutex::new(Some(wake)), Mutex::new(Some(thread)));
        Ok(Self { shared, samples, wake, thread })
    }

    /// Hands over `sample`; false if it was dropped, because the disk does not keep up, the writer
    /// is stopped, or it is larger than the store takes.
    pub fn try_append(&self, sample: Vec<u8>) -> bool {
        // Not left to the store, which would refuse its neighbours with it.
        if sample.len() > MAX_SAMPLE_BYTES {
            self.shared.dropped.fetch_add(1, Relaxed);
            return false;
        }
        // Counted first, so that the thread never takes off more than was put on.
        let waiting = self.shared.waiting.fetch_add(1, Relaxed) + 1;
        if self.samples.try_send(sample).is_err() {
            self.shared.waiting.fetch_sub(1, Relaxed);
            self.shared.dropped.fetch_add(1, Relaxed);
            return false;
        }
        if waiting == BATCH {
            self.hurry();
        }
        true
    }

    /// Hands over the blob `name`. One that is not yet written is replaced, so that there is never
    /// more than one of a name waiting.
    pub fn put_blob(&self, name: impl Into<String>, bytes: Vec<u8>) {
        self.shared.blobs.lock().insert(name.into(), bytes);
    }

    /// Samples that were not written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Writes and flushes what waits, and ends the thread. Blocks until done; again does nothing.
    pub fn stop(&self) {
        drop(self.wake.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // The thread does not panic: the store turns panics of its database into errors.
            let _ = thread.join();
        }
    }

    fn hurry(&self) {
        if let Some(wake) = &*self.wake.lock() {
            // A message that is already there does as well.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread holds.
struct Work {
    store: Store,
    inbox: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    is_failing: bool,
}

impl Work {
    fn run(mut self, woken: &Receiver<()>) {
        loop {
            let flushes = if self.is_failing { BACK_OFF } else { 1 };
            let told = woken.recv_timeout(self.store.flush_every() * flushes);
            self.write();
            if told == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    fn write(&mut self) {
        let appended = self.append();
        let put = self.put_blobs();
        let is_idle = matches!((&appended, &put), (Ok(false), Ok(false)));
        let flushed = if is_idle { Ok(()) } else { self.store.flush() };
        match appended.and(put).and(flushed) {
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "state cannot be written, samples are dropped"
                );
            }
            Ok(()) if self.is_failing && !is_idle => {
                self.is_failing = false;
                tracing::info!("state is written again");
            }
            _ => {}
        }
    }

    /// Writes the samples that wait, no more at once than may wait; whether there were any. Those that
    /// fail are dropped, and the others wait on.
    fn append(&self) -> Result<bool, Error> {
        for round in 0..WAITING / BATCH {
            let samples: Vec<_> = self.inbox.try_iter().take(BATCH).collect();
            let count = samples.len();
            if count == 0 {
                return Ok(round > 0);
            }
            self.shared.waiting.fetch_sub(count, Relaxed);
            if let Err(error) = self.store.append(samples) {
                self.shared.dropped.fetch_add(count as u64, Relaxed);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Writes the blobs that wait; whether there were any. Those that fail wait on, unless they
    /// never fit.
    fn put_blobs(&self) -> Result<bool, Error> {
        let blobs = mem::take(&mut *self.shared.blobs.lock());
        let mut result = Ok(!blobs.is_empty());
        for (name, bytes) in blobs {
            let put = self.store.put_blob(&name, &bytes);
            if put.as_ref().is_err_and(|error| !matches!(error, Error::TooLarge { .. })) {
                self.shared.blobs.lock().entry(name).or_insert(bytes);
            }
            result = result.and_then(|some| put.map(|()| some));
        }
        result
    }
}
