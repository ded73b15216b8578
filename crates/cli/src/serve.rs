//! `slackline serve`: the OpenAI-compatible gateway.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Clock, SystemClock};

use crate::{
    args,
    backend::{Backend, Overrides},
    fan_out, keep, record,
};

/// Read where no flag names another and it exists.
const DEFAULT_CONFIG: &str = "slackline.yaml";

/// Serve an OpenAI-compatible gateway that routes to model servers
///
/// Serves `/v1/chat/completions`, `/v1/completions`, `/v1/models`, `/health` and `/metrics`. Ctrl-C or
/// SIGTERM lets answers under way finish; a second one does not.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration [default: slackline.yaml, where it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    record: record::RecordFlags,
    #[command(flatten)]
    keep: keep::Keep,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let found = Path::new(DEFAULT_CONFIG);
    let path = args.config.or_else(|| found.is_file().then(|| found.to_owned()));
    let config = args.overrides.over(path.as_deref(), "--config")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let backend = Backend::start(&config, Arc::clone(&clock), &stop)?;
    let recording = args.record.start(&backend.router, &*clock)?;
    let keeper = args.keep.start(&backend.router, &*clock, &stop)?;
    let recorders = [
        recording.as_ref().map(record::Recording::recorder),
        keeper.as_ref().and_then(keep::Keeper::recorder),
    ];
    fan_out::record_to(&backend.router, recorders);
    let listener = args::listen(args.listen.unwrap_or(config.listen)).await?;
    let (address, endpoints) = (listener.local_addr()?, backend.endpoints());
    info!(target: "slackline", %address, endpoints, "gateway is listening");
    if endpoints == 0 {
        warn!(target: "slackline", "no endpoints: every request is answered with 503");
    }
    gateway::serve(listener, config.gateway, Arc::clone(&backend.router), clock, stop.clone())
        .await?;
    stop.cancel();
    backend.stop().await?;
    if let Some(keeper) = keeper {
        keeper.stop().await?;
    }
    if let Some(recording) = recording {
        recording.stop().await?;
    }
    info!(target: "slackline", "gateway has stopped");
    Ok(())
}
