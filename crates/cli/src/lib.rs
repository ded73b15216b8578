//! The commands of `slackline`, its configuration file, and what a terminal shows.
//!
//! The only room that reads flags, files and the environment. It composes the other rooms and holds
//! no policy of its own.

mod args;
mod backend;
mod check;
mod config;
mod demo;
mod engine;
mod epp;
mod evaluate;
mod fan_out;
mod keep;
mod load;
mod output;
mod priors;
mod record;
mod rows;
mod serve;
mod signals;
mod simulate;
mod status;
mod train;
mod yaml;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

pub use config::Config;
pub use yaml::ConfigError;

/// Variable that says what is logged, in the syntax of `tracing-subscriber`'s `EnvFilter`.
const LOG_VARIABLE: &str = "SLACKLINE_LOG";
/// What is logged where it is not set: trouble, and what servers say of themselves. What sled says of
/// a full disk, the store says in words.
const LOG_DEFAULT: &str = "warn,slackline=info,sled=off";

/// Routes LLM requests by latencies that it learns while it serves.
#[derive(Debug, Parser)]
#[command(name = "slackline", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "SLACKLINE_LOG sets what is logged, such as `debug` or `warn,gateway=debug`."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Serve(serve::Args),
    Epp(epp::Args),
    Engine(engine::Args),
    Load(load::Args),
    Simulate(simulate::Args),
    Check(check::Args),
    Evaluate(evaluate::Args),
    Train(train::Args),
}

/// Runs the command that the program was started with.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be written.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) if error.is::<signals::Interrupted>() => ExitCode::from(130),
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "slackline: {}", output::sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    start_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = signals::Signals::install(stop.clone())?;
        tokio::select! {
            result = start(command, stop) => result,
            interrupted = signals.insisted() => Err(interrupted.into()),
        }
    });
    // A simulation under way cannot be told to stop; it ends with the process.
    runtime.shutdown_background();
    result
}

async fn start(command: Command, stop: CancellationToken) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => Box::pin(demo::run(args, stop)).await,
        Command::Serve(args) => Box::pin(serve::run(args, stop)).await,
        Command::Epp(args) => Box::pin(epp::run(args, stop)).await,
        Command::Engine(args) => Box::pin(engine::run(args, stop)).await,
        Command::Load(args) => Box::pin(load::run(args, stop)).await,
        Command::Check(args) => check::run(&args),
        Command::Simulate(args) => Box::pin(simulate::run(args, stop)).await,
        Command::Evaluate(args) => Box::pin(evaluate::run(args, stop)).await,
        Command::Train(args) => Box::pin(train::run(args, stop)).await,
    }
}

fn start_logging() -> anyhow::Result<()> {
    let filter = match EnvFilter::try_from_env(LOG_VARIABLE) {
        Ok(filter) => filter,
        Err(error) if is_unset(&error) => EnvFilter::new(LOG_DEFAULT),
        Err(error) => return Err(error).context(LOG_VARIABLE),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}

fn is_unset(error: &tracing_subscriber::filter::FromEnvError) -> bool {
    use std::{env::VarError, error::Error as _};
    let source = error.source().and_then(|source| source.downcast_ref::<VarError>());
    matches!(source, Some(VarError::NotPresent))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
