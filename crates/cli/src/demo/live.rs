//! The live part: engines, gateway and load, all over HTTP in this process.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::Context as _;
use datalayer::{Pool, Scraper};
use predict::PriorSource;
use router::Router;
use sim::{LoadOptions, LoadReport, Member, PolicyReport, Progress, Report, Trace, run_load};
use tokio_util::sync::CancellationToken;
use types::{Clock, SystemClock};

use super::{MODEL, fleet::Served, slo, view::View};
use crate::{args, output, priors, status::Watch};

/// How long a caller waits, in time of the trace: the longest answer in it, 2,000 tokens, within its
/// objectives takes less. It bounds how long the live part goes on after the last request is sent.
const PATIENCE: Duration = Duration::from_mins(2);

/// What is played live.
#[derive(Debug)]
pub(super) struct Plan {
    /// Part of the trace, in its own time.
    pub(super) span: Duration,
    /// Times real time.
    pub(super) time_scale: f64,
    /// Seed of the router and of the prompts.
    pub(super) seed: u64,
}

/// Plays the live part until its last request has ended, or until `stop`; all that it started has
/// ended on return.
pub(super) async fn run(
    fleet: &[Member],
    trace: &Trace,
    plan: &Plan,
    stop: CancellationToken,
) -> anyhow::Result<PolicyReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let served = Served::start(fleet, plan.time_scale, &clock).await?;
    let pool = Arc::new(Pool::new(served.endpoints.iter().cloned()));
    let priors = priors::load(&PriorSource::Builtin)?;
    let options = router::Options { seed: plan.seed, priors, ..router::Options::default() };
    let router = Arc::new(Router::new(options, Arc::clone(&pool))?);
    // Scrapes keep their interval: at four times the pace, pages are four times as stale.
    let quiet = CancellationToken::new();
    let scrape = datalayer::Options::default();
    let scraper = Scraper::start(scrape, pool, Arc::clone(&clock), &quiet)
        .context("cannot start to scrape")?;
    let listener = args::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let target = format!("http://{}", listener.local_addr()?);
    output::line(format_args!(
        "Live: the first {:.0} s of it at {} times the pace, through the gateway at {target}.\n",
        plan.span.as_secs_f64().min(trace.span().as_secs_f64()),
        plan.time_scale
    ))?;
    let closing = CancellationToken::new();
    let gateway = tokio::spawn(gateway::serve(
        listener,
        gateway::Options::default(),
        Arc::clone(&router),
        Arc::clone(&clock),
        closing.clone(),
    ));
    let loaded = replay(trace, plan, target, (&router, &clock), stop).await;
    closing.cancel();
    gateway.await.context("the gateway ended badly")??;
    scraper.stop().await;
    served.stop().await?;
    let loaded = loaded?;
    let report = PolicyReport { name: "live (learned)".to_owned(), ..loaded.policy };
    output::line(Report { policies: vec![report.clone()], ..Report::default() })?;
    Ok(report)
}

/// Sends the trace to `target`, and shows how it goes.
async fn replay(
    trace: &Trace,
    plan: &Plan,
    target: String,
    (router, clock): (&Arc<Router>, &Arc<dyn Clock>),
    stop: CancellationToken,
) -> anyhow::Result<LoadReport> {
    let options = LoadOptions {
        time_scale: plan.time_scale,
        slo: slo(),
        duration: Some(plan.span),
        timeout: PATIENCE,
        seed: plan.seed,
        ..LoadOptions::new(target, MODEL)
    };
    let progress = Arc::<Progress>::default();
    let watch = Watch {
        progress: Arc::clone(&progress),
        clock: Arc::clone(clock),
        time_scale: plan.time_scale,
    };
    let mut view = View::new(Arc::clone(router), Arc::clone(&progress));
    let shown = watch.show(|status, is_due| view.draw(status, is_due));
    let loaded = tokio::select! {
        loaded = run_load(trace, options, Arc::clone(clock), progress, stop) => loaded,
        never = shown => match never {},
    };
    view.clear();
    Ok(loaded?)
}
