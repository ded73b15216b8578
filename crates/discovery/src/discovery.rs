//! Starts discovery and keeps its set up to date.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinHandle, time};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    EndpointSet, Error, FileOptions, Options, Parsed, Severity, source::Source, watch::Watch,
};

/// How long a file must be left alone before it is read: who writes in place writes in pieces.
const QUIET: Duration = Duration::from_millis(50);
/// How long a file that never comes to rest waits to be read.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a file is read that cannot be watched.
const POLL: Duration = Duration::from_secs(2);

/// Discovery at work. It stops when this is dropped.
#[derive(Debug)]
pub struct Discovery {
    sets: watch::Receiver<Arc<EndpointSet>>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Discovery {
    /// The present set, and each that follows. Closed once discovery has stopped.
    pub fn sets(&self) -> watch::Receiver<Arc<EndpointSet>> {
        self.sets.clone()
    }

    /// Whether there is an endpoint to send a request to.
    pub fn ready(&self) -> bool {
        !self.sets.borrow().endpoints.is_empty()
    }

    /// Stops, and returns when all has ended.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "discovery ended badly");
        }
    }
}

/// Starts the kind of discovery that `options` name; the first set is there on return. Ends with
/// `cancel`, or when the [`Discovery`] is dropped. Called inside a tokio runtime.
///
/// A file that is not readable or not usable is an error here. Later it is logged, and the set
/// stays.
pub fn start(options: &Options, cancel: &CancellationToken) -> Result<Discovery, Error> {
    let cancel = cancel.child_token();
    let stop = cancel.clone().drop_guard();
    match options {
        Options::Static(entries) => {
            let set = EndpointSet::new(entries.iter().map(|entry| entry.endpoint().clone()));
            let doubles = entries.len() - set.endpoints.len();
            if doubles > 0 {
                tracing::warn!(doubles, "static endpoints share a name: the last one counts");
            }
            let (sender, sets) = watch::channel(Arc::new(set));
            let task = tokio::spawn(hold(sender, cancel));
            Ok(Discovery { sets, task, stop })
        }
        Options::File(file) => start_file(file, cancel, stop),
    }
}

fn start_file(
    options: &FileOptions,
    cancel: CancellationToken,
    stop: DropGuard,
) -> Result<Discovery, Error> {
    // Watched before it is read, so no change falls in between.
    let watch = options.watch.then(|| {
        let mut watch = Watch::start(&options.path);
        let watched = watch.renew();
        (watch, watched)
    });
    let mut source = Source::new(options.path.clone());
    let parsed = source.changed().transpose()?.unwrap_or_default();
    log_problems(&parsed);
    let (sender, sets) = watch::channel(Arc::new(parsed.set));
    let task = match watch {
        None => tokio::spawn(hold(sender, cancel)),
        Some((watch, watched)) => {
            tokio::spawn(follow(Followed { source, watch, watched }, sender, cancel))
        }
    };
    Ok(Discovery { sets, task, stop })
}

/// Keeps a set that never changes.
async fn hold(sender: watch::Sender<Arc<EndpointSet>>, cancel: CancellationToken) {
    cancel.cancelled().await;
    drop(sender);
}

/// A file that is followed.
struct Followed {
    source: Source,
    watch: Watch,
    watched: bool,
}

impl Followed {
    fn read_again(&mut self) -> Option<Result<Parsed, Error>> {
        self.watched = self.watch.renew();
        self.source.changed()
    }
}

/// Reads the file after every touch and publishes what it says.
async fn follow(
    mut file: Followed,
    sender: watch::Sender<Arc<EndpointSet>>,
    cancel: CancellationToken,
) {
    let touched = file.watch.touched();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = touched.notified() => {}
            () = time::sleep(POLL), if !file.watched => {}
        }
        let quiet = async { while time::timeout(QUIET, touched.notified()).await.is_ok() {} };
        // It is read all the same if it never comes to rest.
        let _rest = time::timeout(PATIENCE, quiet).await;
        let read = tokio::task::spawn_blocking(move || {
            let result = file.read_again();
            (file, result)
        });
        let Ok((back, result)) = read.await else { return };
        file = back;
        match result {
            None => {}
            Some(Ok(parsed)) => publish(&file.source, &sender, parsed),
            Some(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "endpoints stay as they are");
            }
        }
    }
}

fn publish(source: &Source, sender: &watch::Sender<Arc<EndpointSet>>, parsed: Parsed) {
    log_problems(&parsed);
    let endpoints = parsed.set.endpoints.len();
    let changed = sender.send_if_modified(|set| {
        let changed = **set != parsed.set;
        if changed {
            *set = Arc::new(parsed.set);
        }
        changed
    });
    if changed {
        tracing::info!(path = %source.path().display(), endpoints, "endpoints have changed");
    }
}

fn log_problems(parsed: &Parsed) {
    for problem in &parsed.problems {
        match problem.severity {
            Severity::Error => tracing::error!(%problem, "endpoint is skipped"),
            Severity::Warning => tracing::warn!(%problem, "endpoints file has a mistake"),
        }
    }
}
