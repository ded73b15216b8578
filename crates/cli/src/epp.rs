//! `slackline epp`: the endpoint picker behind Envoy or another `ext_proc` proxy.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::Arc,
};

use anyhow::bail;
use axum::http::header;
use clap::ArgAction;
use epp::Listeners;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use router::Router;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Clock, SystemClock};

use crate::{
    args,
    backend::{Backend, Overrides},
    fan_out, keep, record,
};

/// Serve as endpoint picker (EPP) behind Envoy, over `ext_proc`
///
/// Flags have the names that they have in an llm-d EPP. This version serves plaintext HTTP/2 only, so
/// run it beside the proxy or inside a mesh; an llm-d EPP serves TLS unless it is told
/// `--secure-serving=false`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration (slackline.yaml)
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Port of `ext_proc`, with gRPC health
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port of gRPC health alone
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Port of the Prometheus page at /metrics
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Address that all of them are on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TLS on the gRPC ports; only `false` is served so far
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    secure_serving: Option<bool>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    record: record::RecordFlags,
    #[command(flatten)]
    keep: keep::Keep,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    match args.secure_serving {
        Some(true) => {
            bail!("TLS on the gRPC ports is not served yet: pass --secure-serving=false")
        }
        Some(false) => {}
        None => warn!(target: "slackline", "serving gRPC in plaintext: TLS is not there yet"),
    }
    let config = args.overrides.over(args.config_file.as_deref(), "--config-file")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let backend = Backend::start(&config, Arc::clone(&clock), &stop)?;
    let recording = args.record.start(&backend.router, &*clock)?;
    let keeper = args.keep.start(&backend.router, &*clock, &stop)?;
    let recorders = [
        recording.as_ref().map(record::Recording::recorder),
        keeper.as_ref().and_then(keep::Keeper::recorder),
    ];
    fan_out::record_to(&backend.router, recorders);
    let ext_proc = args::listen((args.bind, args.grpc_port).into()).await?;
    let health = args::listen((args.bind, args.grpc_health_port).into()).await?;
    let metrics = args::listen((args.bind, args.metrics_port).into()).await?;
    info!(
        target: "slackline",
        grpc = %ext_proc.local_addr()?,
        health = %health.local_addr()?,
        metrics = %metrics.local_addr()?,
        endpoints = backend.endpoints(),
        "endpoint picker is listening"
    );
    let drained = CancellationToken::new();
    let pages = axum::serve(metrics, pages(Arc::clone(&backend.router)))
        .with_graceful_shutdown(drained.clone().cancelled_owned());
    // Scrapers keep their connections, and must not hold up the end.
    let pages = tokio::spawn(drained.clone().run_until_cancelled_owned(pages.into_future()));
    let listeners = Listeners { ext_proc, health: Some(health) };
    let router = Arc::clone(&backend.router);
    let served = epp::serve(listeners, config.epp, router, clock, stop.clone()).await;
    stop.cancel();
    drained.cancel();
    backend.stop().await?;
    if let Some(keeper) = keeper {
        keeper.stop().await?;
    }
    if let Some(recording) = recording {
        recording.stop().await?;
    }
    let _ended = pages.await;
    served?;
    info!(target: "slackline", "endpoint picker has stopped");
    Ok(())
}

/// The pages on the metrics port.
fn pages(router: Arc<Router>) -> axum::Router {
    axum::Router::new().route(
        "/metrics",
        axum::routing::get(async move || {
            ([(header::CONTENT_TYPE, TEXT_FORMAT)], page(router.registry()))
        }),
    )
}

fn page(registry: &Registry) -> String {
    // Only a family without metrics cannot be encoded, and a registry gathers none.
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap_or_default()
}
