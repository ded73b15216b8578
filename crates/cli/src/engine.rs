//! `slackline engine`: simulated model servers.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::UNIX_EPOCH,
};

use anyhow::Context as _;
use clap::{ArgAction, value_parser};
use sim::{BLOCK_TOKENS, Profile, ServerOptions};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;
use types::{Clock, SystemClock};

use crate::{args, output};

/// Serve a simulated model server, with the step times of a real GPU
///
/// Speaks the part of vLLM's API that routers and clients use: `/v1/chat/completions`,
/// `/v1/completions`, `/v1/models`, `/health`, `/metrics`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Accelerator class, such as H100; see --list
    #[arg(long, required_unless_present = "list")]
    gpu: Option<String>,
    /// Model whose step times are used; see --list
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    /// Format of the weights, such as bf16 [default: the first that is known]
    #[arg(long)]
    weights: Option<String>,
    /// Tensor parallelism [default: the first that is known]
    #[arg(long)]
    tp: Option<u32>,
    /// Show every known profile, and serve nothing
    #[arg(long)]
    list: bool,
    /// Model name served [default: the model]
    #[arg(long)]
    name: Option<String>,
    /// Port; 0 takes any that is free
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,
    /// Serve this many, on consecutive ports
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    count: u16,
    /// Run this many times faster than life
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = args::positive)]
    time_scale: f64,
    #[command(flatten)]
    limits: Limits,
}

/// Limits and switches, by the names that vLLM gives them where it has them.
#[derive(Debug, clap::Args)]
struct Limits {
    /// Sequences that may run at once [default: vLLM's for the card]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_num_seqs: Option<u32>,
    /// Tokens that one step may compute [default: vLLM's for the card]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_num_batched_tokens: Option<u32>,
    /// KV-cache blocks of 16 tokens [default: what fits the card]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    kv_blocks: Option<u32>,
    /// Longest prompt and output together, tokens
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_model_len: Option<u32>,
    /// Whether a step is scheduled while the one before it runs [default: true]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    async_scheduling: Option<bool>,
    /// Make every step this many times as long
    #[arg(long, value_name = "FACTOR", value_parser = args::positive)]
    slowdown: Option<f64>,
    /// Seed of the noise in step times
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Limits {
    fn options(&self, profile: &Profile) -> sim::Options {
        let usual = sim::Options::new(profile);
        sim::Options {
            max_num_batched_tokens: self
                .max_num_batched_tokens
                .unwrap_or(usual.max_num_batched_tokens),
            max_num_seqs: self.max_num_seqs.unwrap_or(usual.max_num_seqs),
            kv_blocks: self.kv_blocks,
            max_model_len: self.max_model_len.unwrap_or(usual.max_model_len),
            async_scheduling: self.async_scheduling.unwrap_or(usual.async_scheduling),
            slowdown: self.slowdown.unwrap_or(usual.slowdown),
            seed: self.seed,
        }
    }
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(gpu) = args.gpu.as_deref().filter(|_| !args.list) else {
        return output::line(list().trim_end());
    };
    let profile = Profile::find(gpu, &args.model, args.weights.as_deref(), args.tp)?;
    let listeners = listen(&args).await?;
    let mut engine = args.limits.options(&profile);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    // Answers carry the date they were made at.
    let clock_start_unix_s = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let mut servers = JoinSet::new();
    for (index, listener) in listeners.into_iter().enumerate() {
        let options = ServerOptions {
            model: args.name.clone().unwrap_or_else(|| args.model.clone()),
            engine: engine.clone(),
            time_scale: args.time_scale,
            pod_name: format!("sim-{index}"),
            clock_start_unix_s,
            ..ServerOptions::new(profile.clone())
        };
        // Engines that were alike to the last step would be in step.
        engine.seed = engine.seed.wrapping_add(1);
        let address = listener.local_addr()?;
        info!(target: "slackline", %address, gpu = profile.gpu, model = options.model, "engine is listening");
        servers.spawn(sim::serve(listener, options, Arc::clone(&clock), stop.clone()));
    }
    while let Some(ended) = servers.join_next().await {
        ended.context("an engine ended badly")?.context("an engine cannot serve")?;
    }
    Ok(())
}

/// Takes all ports before the first engine serves.
async fn listen(args: &Args) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for offset in 0..args.count {
        let port = if args.port == 0 {
            0
        } else {
            args.port.checked_add(offset).with_context(|| {
                format!("{} ports from {} on are more than there are", args.count, args.port)
            })?
        };
        listeners.push(args::listen((args.bind, port).into()).await?);
    }
    Ok(listeners)
}

/// Every known profile, one a line.
fn list() -> String {
    let header = ["GPU", "MODEL", "WEIGHTS", "TP", "KV TOKENS", "STEP TIMES"].map(str::to_owned);
    let row = |profile: Profile| {
        let kv_tokens = u64::from(profile.kv_blocks) * u64::from(BLOCK_TOKENS);
        let basis = if profile.estimated { "estimated" } else { "measured" };
        [
            profile.gpu,
            profile.model,
            profile.weights,
            profile.tp.to_string(),
            kv_tokens.to_string(),
            basis.to_owned(),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(Profile::all().into_iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
