//! Keeps what was learned over restarts: `--state DIR`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use router::Router;
use state::{Found, Options, Store, Writer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Version of what is kept; a store of another is moved aside.
const SCHEMA: u32 = 1;
/// Name of the learner's models in the store.
const MODELS: &str = "models";
/// Time between two saves.
const EVERY: Duration = Duration::from_secs(30);

/// Flags of what is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Keep what is learned in this folder, and start from it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Saves what is learned now and then.
#[derive(Debug)]
pub(crate) struct Keeper {
    router: Arc<Router>,
    writer: Arc<Writer>,
    saver: JoinHandle<()>,
}

impl Keep {
    /// Takes over what the folder holds and starts to save to it; `None` without the flag. A folder that
    /// cannot be used is an error; models that cannot be taken over are left alone and learned anew.
    pub(crate) fn start(
        &self,
        router: &Arc<Router>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Keeper>> {
        let Some(path) = &self.state else { return Ok(None) };
        let options = Options { path: path.clone(), ..Options::default() };
        let opened = Store::open(options, SCHEMA)
            .with_context(|| format!("cannot keep what is learned in {}", path.display()))?;
        if matches!(opened.found, Found::Warm) {
            restore(router, &opened.store);
        }
        let writer = Arc::new(Writer::start(opened.store)?);
        let saver = tokio::spawn(save_often(Arc::clone(router), Arc::clone(&writer), stop.clone()));
        Ok(Some(Keeper { router: Arc::clone(router), writer, saver }))
    }
}

impl Keeper {
    /// Saves once more; returns when all is on disk.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.saver.await.context("what was learned was not saved to the end")?;
        tokio::task::spawn_blocking(move || {
            save(&self.router, &self.writer);
            self.writer.stop();
        })
        .await
        .context("what was learned was not saved to the end")
    }
}

fn restore(router: &Router, store: &Store) {
    let found = match store.blob(MODELS) {
        Ok(found) => found,
        Err(error) => return refuse(&error),
    };
    let Some(saved) = found else { return };
    match router.restore_models(&saved) {
        Ok(()) => {
            let classes = router.errors().len();
            info!(target: "slackline", classes, "goes on from what was learned before");
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &(dyn std::error::Error + 'static)) {
    warn!(
        target: "slackline",
        error,
        "what was learned before cannot be taken over; learning starts anew"
    );
}

async fn save_often(router: Arc<Router>, writer: Arc<Writer>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.tick().await;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let (router, writer) = (Arc::clone(&router), Arc::clone(&writer));
        // Models of many classes take a while to write down.
        if tokio::task::spawn_blocking(move || save(&router, &writer)).await.is_err() {
            warn!(target: "slackline", "what was learned was not saved");
        }
    }
}

fn save(router: &Router, writer: &Writer) {
    match router.save_models() {
        Ok(models) => writer.put_blob(MODELS, models),
        Err(error) => warn!(
            target: "slackline",
            error = &error as &dyn std::error::Error,
            "what was learned cannot be saved"
        ),
    }
}
