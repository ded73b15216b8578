//! `slackline demo`: a simulated mixed fleet, a real trace, and what routing it by learned latencies
//! is worth.
//!
//! First live: engines, gateway and load over HTTP in this process. Then the same fleet, trace and
//! seed in virtual time, under four policies. Nothing here is tuned to the trace.

mod compare;
mod fleet;
mod live;
mod view;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use predict::ClassError;
use serde::Serialize;
use sim::{Bundled, PolicyReport, Report, Trace, TraceOptions};
use tokio_util::sync::CancellationToken;
use types::{Millis, Slo};

use crate::{args, output, signals::Interrupted};

/// Model that every engine serves.
const MODEL: &str = "llama-3.1-8b";
/// Objectives of every request, in milliseconds of the trace: to the first token, and from token to
/// token.
const SLO_MS: (f32, f32) = (3_000.0, 50.0);

/// Watch learned routing at work on a simulated fleet and a real trace
///
/// Six simulated engines of three GPU classes serve the Mooncake conversation trace, live through the
/// gateway and then in virtual time under four policies. Nothing is downloaded, and no file is
/// written but the one of --json.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Length of the live part, in seconds
    #[arg(long, value_name = "N", default_value_t = 45.0, value_parser = args::positive)]
    seconds: f64,
    /// Pace of the live part, times life
    #[arg(long, value_name = "FACTOR", default_value_t = 4.0, value_parser = args::positive)]
    time_scale: f64,
    /// Times the recorded rate
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = args::positive)]
    rate_scale: f64,
    /// Seed of arrivals, step times and ties
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only the comparison in virtual time
    #[arg(long)]
    no_live: bool,
    /// Compare on the first N requests only
    #[arg(long, value_name = "N", hide = true)]
    requests: Option<usize>,
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the demo came to, for machines.
#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    report: Report,
    /// The live part, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<PolicyReport>,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let read = TraceOptions { max_prompt_tokens: None, seed: args.seed };
    let trace = Trace::bundled(Bundled::MooncakeConversation, &read)?.scaled(args.rate_scale);
    let fleet = fleet::members(args.seed)?;
    output::line(introduction(&fleet, &trace))?;
    let live = if args.no_live {
        None
    } else {
        let plan = live::Plan {
            span: Duration::from_secs_f64(args.seconds * args.time_scale),
            time_scale: args.time_scale,
            seed: args.seed,
        };
        Some(Box::pin(live::run(&fleet, &trace, &plan, stop.clone())).await?)
    };
    if stop.is_cancelled() {
        return Err(Interrupted.into());
    }
    let trace = trace.take(args.requests.unwrap_or(usize::MAX));
    let compared = stop.run_until_cancelled(compare::run(fleet, trace, args.seed)).await;
    let report = compared.ok_or(Interrupted)??;
    output::line(compare::told(&report).trim_end())?;
    match &args.json {
        Some(path) => output::json(path, &Figures { report, live }),
        None => Ok(()),
    }
}

/// What every caller is promised.
fn slo() -> Slo {
    Slo { ttft: Millis::new(SLO_MS.0), itl: Millis::new(SLO_MS.1) }
}

fn introduction(fleet: &[sim::Member], trace: &Trace) -> String {
    let classes: Vec<_> = fleet
        .chunk_by(|a, b| a.profile.gpu == b.profile.gpu)
        .map(|class| format!("{} {}", class.len(), class[0].profile.gpu))
        .collect();
    format!(
        "Fleet: {} simulated engines ({}), all serving {MODEL}.\n\
         Trace: {} requests of the Mooncake conversation trace, {:.0} minutes; objective of each: \
         first token within {} ms, then one every {} ms.",
        fleet.len(),
        classes.join(", "),
        trace.arrivals.len(),
        trace.span().as_secs_f64() / 60.0,
        SLO_MS.0,
        SLO_MS.1,
    )
}

/// Median errors by accelerator class and target, such as `H100-SXM ttft_median_ape`.
fn model_error(errors: &[ClassError]) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    for error in errors {
        let class = accelerator(error);
        for (target, of) in [("ttft", &error.ttft), ("itl", &error.itl)] {
            if let Some(median) = of.median_error {
                figures.insert(format!("{class} {target}_median_ape"), f64::from(median));
            }
        }
    }
    figures
}

/// The accelerator in `model/accelerator/role`; a model's name may have a slash.
fn accelerator(error: &ClassError) -> &str {
    error.class.rsplit('/').nth(1).unwrap_or(&error.class)
}
