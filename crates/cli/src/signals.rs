//! Ctrl-C and SIGTERM: the first asks to stop, the second does not ask.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The user did not wait for the end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// The signals that end the program.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    stop: CancellationToken,
}

impl Signals {
    /// Takes the signals over; the first cancels `stop`.
    pub(crate) fn install(stop: CancellationToken) -> anyhow::Result<Self> {
        let take = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            stop,
        })
    }

    /// Returns at the second signal.
    pub(crate) async fn insisted(mut self) -> Interrupted {
        self.next().await;
        self.stop.cancel();
        self.next().await;
        Interrupted
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
