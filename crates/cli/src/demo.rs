//! stub
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) async fn run(_: Args, _: tokio_util::sync::CancellationToken) -> anyhow::Result<()> { Ok(()) }
