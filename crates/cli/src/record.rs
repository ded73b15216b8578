//! Writes the rows of decided requests to a file, on a thread of its own.
//!
//! The request path hands a row over or, where the thread is behind, drops and counts it. What a full
//! disk refuses is counted too, and never leaves half a line.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context as _, bail};
use features::SCHEMA_VERSION;
use prometheus::{IntCounter, Registry};
use router::{Recorded, Recorder, Router};
use tracing::{info, warn};
use types::{Clock, Time};

use crate::rows::{self, Sessions};

/// Rows that may wait for the thread.
const WAITING_ROWS: usize = 8_192;
/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 16;
/// Longest time that a row is not written while no other comes.
const QUIET: Duration = Duration::from_secs(1);
/// Longest line that is looked at in a file that is there already.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Flags of every front.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordFlags {
    /// Append one row per request (features, latencies, outcome; no prompt) to this file, for
    /// `slackline evaluate`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record with each row the endpoints that it might have gone to, with their features and
    /// predictions, for `slackline simulate replay`: about half a kilobyte an endpoint, 64 a row at most
    #[arg(long, requires = "record")]
    record_candidates: bool,
}

impl RecordFlags {
    /// Starts to write to the file, if one is named, what its recorder is told of `router`.
    pub(crate) fn start(
        self,
        router: &Router,
        clock: &dyn Clock,
    ) -> anyhow::Result<Option<Recording>> {
        let Some(path) = self.record else { return Ok(None) };
        Recording::start(&path, router, clock, self.record_candidates).map(Some)
    }
}

/// A file of rows that is being written.
#[derive(Debug)]
pub(crate) struct Recording {
    sender: SyncSender<Message>,
    recorder: Arc<Sender>,
    thread: JoinHandle<()>,
    counts: Counts,
    path: PathBuf,
}

#[derive(Debug)]
enum Message {
    Row(Box<Recorded>),
    Stop,
}

#[derive(Clone, Debug)]
struct Counts {
    written: IntCounter,
    dropped: IntCounter,
}

impl Counts {
    fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        Ok(Self {
            written: counter(
                "slackline_cli_recorded_rows_total",
                "Rows written to the file that --record names.",
            )?,
            dropped: counter(
                "slackline_cli_dropped_rows_total",
                "Rows that were not recorded: the writer was behind or the disk refused them.",
            )?,
        })
    }
}

/// Hands rows to the thread.
#[derive(Debug)]
struct Sender {
    queue: SyncSender<Message>,
    dropped: IntCounter,
    with_candidates: bool,
}

impl Recorder for Sender {
    fn record(&self, row: &Recorded) {
        if self.queue.try_send(Message::Row(Box::new(row.clone()))).is_err() {
            self.dropped.inc();
        }
    }

    fn wants_candidates(&self) -> bool {
        self.with_candidates
    }
}

impl Recording {
    fn start(
        path: &Path,
        router: &Router,
        clock: &dyn Clock,
        with_candidates: bool,
    ) -> anyhow::Result<Self> {
        let file = open(path)?;
        let counts = Counts::register(router.registry())?;
        let (sender, receiver) = sync_channel(WAITING_ROWS);
        let start_ms = start_ms(clock);
        let writer = Writer {
            start_ms,
            sessions: Sessions::starting_from(start_ms.max(0.0) as u64),
            counts: counts.clone(),
            path: path.to_owned(),
            sound: file.metadata()?.len(),
            file,
            buffer: Vec::with_capacity(2 * CHUNK_BYTES),
            pending: 0,
            refused: false,
        };
        let thread = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || writer.run(&receiver))
            .context("cannot start the thread that records")?;
        let dropped = counts.dropped.clone();
        let recorder = Arc::new(Sender { queue: sender.clone(), dropped, with_candidates });
        Ok(Self { sender, recorder, thread, counts, path: path.to_owned() })
    }

    /// Who takes the rows.
    pub(crate) fn recorder(&self) -> Arc<dyn Recorder> {
        Arc::clone(&self.recorder) as Arc<dyn Recorder>
    }

    /// Writes what has come so far, and returns when it is in the file.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let Self { sender, thread, counts, path, .. } = self;
        let ended = tokio::task::spawn_blocking(move || {
            // A thread that is gone has nothing left to write.
            let _ = sender.send(Message::Stop);
            thread.join().is_ok()
        });
        if !ended.await.unwrap_or(false) {
            bail!("the thread that records has failed");
        }
        let (rows, dropped) = (counts.written.get(), counts.dropped.get());
        info!(target: "slackline", file = %path.display(), rows, dropped, "rows recorded");
        Ok(())
    }
}

/// Unix time at which `clock` started, in milliseconds.
pub(crate) fn start_ms(clock: &dyn Clock) -> f64 {
    let unix_ms = UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64() * 1e3);
    unix_ms - clock.now().since(Time::ZERO).as_secs_f64() * 1e3
}

/// Opens a file of rows to append to. One that holds something else is refused; half a line at its end,
/// left by a crash, is cut off.
fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot record to `{}`", path.display());
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).open(path).with_context(cannot)?;
    let length = file.metadata().with_context(cannot)?.len();
    if length == 0 {
        return Ok(file);
    }
    let mut first = Vec::new();
    let mut start = BufReader::new(&file).take(MAX_LINE_BYTES);
    start.read_until(b'\n', &mut first).with_context(cannot)?;
    match rows::version(&first) {
        Some(SCHEMA_VERSION) => {}
        Some(other) => bail!(
            "{}: the file holds rows of version {other}, and this program writes {SCHEMA_VERSION}",
            cannot()
        ),
        None => bail!("{}: the file is there and holds no recorded rows", cannot()),
    }
    let sound = last_line_end(&mut file, length).with_context(cannot)?;
    if sound < length {
        file.set_len(sound).with_context(cannot)?;
        warn!(target: "slackline", file = %path.display(), bytes = length - sound, "half a row at the end is cut off");
    }
    Ok(file)
}

/// Where the last whole line of `file` ends.
fn last_line_end(file: &mut File, length: u64) -> io::Result<u64> {
    let from = length.saturating_sub(MAX_LINE_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n');
    Ok(end.map_or(length, |at| from + at as u64 + 1))
}

/// What the thread works on.
#[derive(Debug)]
struct Writer {
    file: File,
    path: PathBuf,
    /// Unix time at which the router's clock started.
    start_ms: f64,
    sessions: Sessions,
    counts: Counts,
    buffer: Vec<u8>,
    /// Rows in the buffer.
    pending: u64,
    /// Length of the file up to the last whole line.
    sound: u64,
    /// Whether the last write failed.
    refused: bool,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            match receiver.recv_timeout(QUIET) {
                Ok(Message::Row(row)) => {
                    match rows::write_whole(
                        &mut self.buffer,
                        &row,
                        self.start_ms,
                        &mut self.sessions,
                    ) {
                        Ok(()) => self.pending += 1,
                        Err(_) => self.counts.dropped.inc(),
                    }
                    if self.buffer.len() >= CHUNK_BYTES {
                        self.flush();
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return;
                }
            }
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        match self.file.write_all(&self.buffer) {
            Ok(()) => {
                if self.refused {
                    info!(target: "slackline", file = %self.path.display(), "rows are recorded again");
                }
                self.sound += self.buffer.len() as u64;
                self.counts.written.inc_by(self.pending);
                self.refused = false;
            }
            Err(error) => {
                self.counts.dropped.inc_by(self.pending);
                // A tail that cannot be cut off is one bad line, which a reader names.
                let _ = self.file.set_len(self.sound);
                if !self.refused {
                    let file = self.path.display();
                    warn!(target: "slackline", %file, %error, "rows cannot be recorded");
                }
                self.refused = true;
            }
        }
        self.buffer.clear();
        self.pending = 0;
    }
}
