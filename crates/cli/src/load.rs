//! `slackline load`: replays a trace against any OpenAI endpoint.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use clap::ValueEnum;
use sim::{Bundled, LoadOptions, LoadReport, Progress, Report, Trace, TraceOptions, run_load};
use tokio_util::sync::CancellationToken;
use types::{Api, Clock, Millis, Slo, SystemClock};

use crate::{args, output, signals::Interrupted, status};

/// Replay a recorded trace against an OpenAI-compatible endpoint
///
/// Open loop: every request is sent when it is due, whatever became of those before it. Requests
/// that fail have missed their objective.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to send requests, such as `http://127.0.0.1:8080`
    #[arg(long, value_name = "URL")]
    target: String,
    /// A Mooncake (JSON lines) or Azure (CSV) file, gzipped or not, or a slice that comes with the
    /// program: mooncake, azure-conv, azure-code
    #[arg(long, value_name = "FILE|NAME", default_value = "mooncake")]
    trace: String,
    /// Model to ask for
    #[arg(long)]
    model: String,
    /// API to speak
    #[arg(long, value_enum, default_value_t = ApiName::Chat)]
    api: ApiName,
    /// Times the recorded rate
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = args::positive)]
    rate_scale: f64,
    /// Times real time, for simulated engines that run faster than life
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = args::positive)]
    time_scale: f64,
    /// Objective for the time to first token, sent with every request
    #[arg(long, value_name = "MS", value_parser = args::millis)]
    ttft_slo_ms: Option<Millis>,
    /// Objective for the mean time per later token, sent with every request
    #[arg(long, value_name = "MS", value_parser = args::millis)]
    itl_slo_ms: Option<Millis>,
    /// Send nothing that is due later than this into the trace, such as 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    duration: Option<Duration>,
    /// Send at most this many requests
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Cut longer prompts to this many tokens
    #[arg(long, value_name = "N")]
    max_prompt_tokens: Option<u32>,
    /// A request that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = args::duration)]
    timeout: Duration,
    /// Salt of the prompts: another seed shares no prefix with an earlier replay
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ApiName {
    Chat,
    Completions,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let read = TraceOptions { max_prompt_tokens: args.max_prompt_tokens, seed: args.seed };
    let trace = open(&args.trace, &read)?;
    let options = LoadOptions {
        api: match args.api {
            ApiName::Chat => Api::Chat,
            ApiName::Completions => Api::Completions,
        },
        rate_scale: args.rate_scale,
        time_scale: args.time_scale,
        slo: Slo { ttft: args.ttft_slo_ms, itl: args.itl_slo_ms },
        duration: args.duration,
        max_requests: args.requests,
        timeout: args.timeout,
        seed: args.seed,
        ..LoadOptions::new(args.target, args.model)
    };
    let loaded = replay(&trace, options, stop.clone()).await?;
    let failed: u64 = loaded.policy.errors.values().sum();
    let ended = loaded.policy.requests;
    output::line(summary(&loaded).trim_end())?;
    let report = Report { policies: vec![loaded.policy], model_error: BTreeMap::new() };
    if let Some(path) = &args.json {
        output::json(path, &report)?;
    }
    if stop.is_cancelled() {
        return Err(Interrupted.into());
    }
    if ended > 0 && failed == ended {
        bail!("none of {ended} requests succeeded");
    }
    Ok(())
}

/// The trace that `name` stands for: a bundled one, else a file.
fn open(name: &str, options: &TraceOptions) -> anyhow::Result<Trace> {
    let bundled = match name {
        "mooncake" => Some(Bundled::MooncakeConversation),
        "azure-conv" => Some(Bundled::AzureConversation),
        name => Bundled::of_name(name),
    };
    Ok(match bundled {
        Some(bundled) => Trace::bundled(bundled, options)?,
        None => Trace::open(Path::new(name), options)?,
    })
}

/// Runs the replay, and shows how far it is.
async fn replay(
    trace: &Trace,
    options: LoadOptions,
    stop: CancellationToken,
) -> anyhow::Result<LoadReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let progress = Arc::<Progress>::default();
    let watch = status::Watch {
        progress: Arc::clone(&progress),
        clock: Arc::clone(&clock),
        time_scale: options.time_scale,
    };
    let bar = io::stderr().is_terminal().then(status::bar);
    let shown = watch.show(|status, is_due| match &bar {
        Some(bar) => {
            status::advance(bar, status);
            bar.set_message(format!("{} sent, {status}", status.sent));
        }
        None if is_due => {
            let status::Status { done, sent, total, .. } = status;
            output::note(format_args!("{done} of {total} requests done, {sent} sent, {status}"));
        }
        None => {}
    });
    let loaded = tokio::select! {
        loaded = run_load(trace, options, clock, progress, stop) => loaded,
        never = shown => match never {},
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(loaded?)
}

fn summary(loaded: &LoadReport) -> String {
    let report = Report { policies: vec![loaded.policy.clone()], model_error: BTreeMap::new() };
    let policy = &loaded.policy;
    let mut text = report.table();
    let _ = write!(
        text,
        "{} ended; {:.2} per second offered, {:.0} tokens per second",
        counted(policy.requests, "request"),
        policy.offered_rps,
        policy.throughput_tokens_per_s
    );
    if let Some(lag_ms) = loaded.send_lag_ms.p99 {
        let _ = write!(text, "; sent late by {lag_ms:.1} ms at p99");
    }
    if loaded.unfinished > 0 {
        let _ = write!(text, "; stopped with {} not ended", counted(loaded.unfinished, "request"));
    }
    text
}

/// `1 request`, `2 requests`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
