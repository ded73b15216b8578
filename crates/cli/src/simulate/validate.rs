//! `slackline simulate validate`: how far the simulated engines are off real ones.

use std::{num::NonZero, path::PathBuf, thread};

use anyhow::Context as _;

use crate::output;

/// Hold simulated engines against measured ones
///
/// Replays the measured operating points that come with the program in virtual time, and shows errors of TTFT
/// and ITL by GPU and model, which rows were fitted or held out, and which are not replayed and why.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Operating points played at one time [default: one for each core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Write the errors, and every point compared, to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Prints the errors and writes them where asked.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = args.jobs.map_or_else(cores, NonZero::get);
    let found = sim::validate(jobs).context("cannot replay the measured points")?;
    output::line(found.to_string().trim_end())?;
    if let Some(path) = &args.json {
        output::json(path, &found)?;
    }
    Ok(())
}
