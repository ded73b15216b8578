//! Keeps what was learned, and the rows it was learned from, over restarts: `--state DIR`.
//!
//! The models are the state of the learner as it is; the rows are what it is taught again from where the
//! models cannot be taken over, since they are of another version or damaged.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use prometheus::IntCounter;
use router::{Recorded, Recorder, Router};
use serde::{Deserialize, Serialize};
use state::{Found, Options, Store, Writer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::Clock;

use crate::{
    record,
    rows::{self, Kept},
};

/// Name of the learner's models in the store.
const MODELS: &str = "models";
/// Version of the form in which models are kept.
const FORMAT: u32 = 1;
/// Time between two saves.
const EVERY: Duration = Duration::from_secs(30);
/// Newest rows that a learner is taught again: more than any of its models remembers, in seconds.
const TAUGHT_ROWS: usize = 20_000;
/// Disk beside the rows, in MiB, for models.
const MODELS_MB: u64 = 32;

/// Flags of what is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Keep what is learned in this folder, and start from it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Recorded rows to keep there, to learn from again after an upgrade; 0 keeps none. The folder takes up
    /// to four times as much, and 128 MiB for models
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(..=65_536),
        requires = "state"
    )]
    state_samples_mb: u64,
}

/// Saves what is learned now and then.
#[derive(Debug)]
pub(crate) struct Keeper {
    router: Arc<Router>,
    writer: Arc<Writer>,
    samples: Option<Arc<Samples>>,
    saver: JoinHandle<()>,
}

impl Keep {
    /// Takes over what the folder holds and starts to save to it; `None` without the flag. A folder that
    /// cannot be used is an error; models that cannot be taken over are learned anew from the rows.
    pub(crate) fn start(
        &self,
        router: &Arc<Router>,
        clock: &dyn Clock,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Keeper>> {
        let Some(path) = &self.state else { return Ok(None) };
        let cannot = || format!("cannot keep what is learned in {}", path.display());
        let opened = Store::open(self.options(path.clone()), rows::STATE_SCHEMA);
        let opened = opened.with_context(cannot)?;
        if matches!(opened.found, Found::Warm) {
            restore(router, &opened.store);
        }
        let keeps_rows = self.state_samples_mb > 0;
        if keeps_rows && let Err(error) = rows::name_columns(&opened.store) {
            warn!(target: "slackline", error = &error as Source<'_>, "names of columns are not kept");
        }
        let writer = Arc::new(Writer::start(opened.store)?);
        let samples = keeps_rows.then(|| Samples::new(router, &writer, clock)).transpose()?;
        let samples = samples.map(Arc::new);
        let saver =
            save_often((Arc::clone(router), Arc::clone(&writer)), samples.clone(), stop.clone());
        let saver = tokio::spawn(saver);
        Ok(Some(Keeper { router: Arc::clone(router), writer, samples, saver }))
    }

    fn options(&self, path: PathBuf) -> Options {
        Options {
            path,
            max_samples: u64::MAX,
            max_sample_bytes: self.state_samples_mb << 20,
            // A quarter of it is for values, as the store says.
            max_bytes: 4 * ((self.state_samples_mb + MODELS_MB) << 20),
            ..Options::default()
        }
    }
}

impl Keeper {
    /// Who keeps the rows, if any are kept.
    pub(crate) fn recorder(&self) -> Option<Arc<dyn Recorder>> {
        self.samples.clone().map(|samples| samples as Arc<dyn Recorder>)
    }

    /// Saves once more; returns when all is on disk.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let lost = "what was learned was not saved to the end";
        self.saver.await.context(lost)?;
        let stopped = tokio::task::spawn_blocking(move || {
            save(&self.router, &self.writer);
            self.writer.stop();
        });
        stopped.await.context(lost)
    }
}

/// Hands rows to the writer of the store.
#[derive(Debug)]
struct Samples {
    writer: Arc<Writer>,
    /// Unix time at which the router's clock started.
    start_ms: f64,
    columns: String,
    dropped: IntCounter,
}

impl Samples {
    fn new(router: &Router, writer: &Arc<Writer>, clock: &dyn Clock) -> anyhow::Result<Self> {
        let dropped = IntCounter::new(
            "slackline_cli_dropped_samples_total",
            "Rows that are not kept in the state folder: the writer was behind or the disk refused them.",
        )?;
        router.registry().register(Box::new(dropped.clone()))?;
        let start_ms = record::start_ms(clock);
        let columns = rows::number(&rows::columns());
        Ok(Self { writer: Arc::clone(writer), start_ms, columns, dropped })
    }

    /// Counts what the writer has dropped since the last call.
    fn count(&self) {
        self.dropped.inc_by(self.writer.dropped().saturating_sub(self.dropped.get()));
    }
}

impl Recorder for Samples {
    fn record(&self, row: &Recorded) {
        let sample = rows::sample(row, self.start_ms, &self.columns);
        if sample.is_some_and(|sample| !self.writer.try_append(sample)) {
            self.count();
        }
    }
}

type Source<'a> = &'a (dyn std::error::Error + 'static);

/// What stands before the models: one line.
#[derive(Debug, Deserialize, Serialize)]
struct Head {
    format: u32,
    columns: Vec<String>,
}

/// Why kept models cannot be taken over.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Store(#[from] state::Error),
    #[error("the kept models do not say what they are")]
    Head,
    #[error("the kept models are of format {0}, and this program reads {FORMAT}")]
    Format(u32),
    #[error(transparent)]
    Models(#[from] predict::LoadError),
    #[error("there are no kept models")]
    Missing,
}

/// Takes over the models, or is taught again from the rows; says which.
fn restore(router: &Router, store: &Store) {
    let Err(why) = restore_models(router, store) else {
        let classes = router.errors().len();
        info!(target: "slackline", classes, "goes on from what was learned before");
        return;
    };
    let kept = match rows::read_store("state", store, TAUGHT_ROWS) {
        Ok(kept) => kept,
        Err(error) => {
            warn!(target: "slackline", error = &error as Source<'_>, "kept rows cannot be read");
            Kept::default()
        }
    };
    let Kept { mut rows, other_columns, differences, unreadable } = kept;
    place(&mut rows, router);
    if !rows.labelled.is_empty() {
        router.teach(&rows.labelled);
    }
    if matches!(why, Refused::Missing) && rows.labelled.is_empty() && other_columns == 0 {
        return;
    }
    let end = if rows.labelled.is_empty() { "starts anew" } else { "was repeated from kept rows" };
    warn!(
        target: "slackline",
        error = &why as Source<'_>,
        rows = rows.labelled.len(),
        other_columns,
        differences = differences.join(", "),
        unreadable,
        classes = router.errors().len(),
        "what was learned before cannot be taken over; learning {end}"
    );
}

fn restore_models(router: &Router, store: &Store) -> Result<(), Refused> {
    let blob = store.blob(MODELS)?.ok_or(Refused::Missing)?;
    let end = blob.iter().position(|byte| *byte == b'\n').ok_or(Refused::Head)?;
    let head: Head = serde_json::from_slice(&blob[..end]).map_err(|_| Refused::Head)?;
    if head.format != FORMAT {
        return Err(Refused::Format(head.format));
    }
    Ok(router.restore_models(&blob[end + 1..])?)
}

/// Gives `rows` the slots that their endpoints have now. Endpoints that are gone have slots that are not
/// given to any.
fn place(rows: &mut rows::Rows, router: &Router) {
    let endpoints = router.pool().endpoints();
    let now: HashMap<_, _> =
        endpoints.iter().map(|endpoint| (endpoint.endpoint.id.as_str(), endpoint.slot)).collect();
    let slots: Vec<_> = (0..)
        .zip(&rows.endpoints)
        .map(|(gone, name)| now.get(name.as_str()).copied().unwrap_or(u32::MAX - gone))
        .collect();
    for row in &mut rows.labelled {
        row.slot = slots.get(row.slot as usize).copied().unwrap_or(u32::MAX);
    }
}

async fn save_often(
    (router, writer): (Arc<Router>, Arc<Writer>),
    samples: Option<Arc<Samples>>,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.tick().await;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let (router, writer) = (Arc::clone(&router), Arc::clone(&writer));
        // Models of many classes take a while to write down.
        if tokio::task::spawn_blocking(move || save(&router, &writer)).await.is_err() {
            warn!(target: "slackline", "what was learned was not saved");
        }
        if let Some(samples) = &samples {
            samples.count();
        }
    }
}

fn save(router: &Router, writer: &Writer) {
    let columns = rows::columns().into_iter().map(str::to_owned).collect();
    let head = serde_json::to_vec(&Head { format: FORMAT, columns });
    let saved = head.map_err(predict::LoadError::from).and_then(|mut blob| {
        blob.push(b'\n');
        blob.append(&mut router.save_models()?);
        Ok(blob)
    });
    match saved {
        Ok(blob) => writer.put_blob(MODELS, blob),
        Err(error) => {
            warn!(target: "slackline", error = &error as Source<'_>, "what was learned cannot be saved");
        }
    }
}
