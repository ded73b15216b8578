//! What both fronts stand on: a router whose pool follows discovery and whose endpoints are scraped.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use datalayer::{Pool, Scraper};
use discovery::{Discovery, FileOptions};
use router::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;
use types::Clock;

use crate::{args::Policy, config::Config, priors};

/// Flags that go before what the configuration says.
#[derive(Debug, clap::Args)]
pub(crate) struct Overrides {
    /// Take the endpoints from this file (llm-d's file-discovery schema) and follow its changes
    #[arg(long, value_name = "FILE")]
    endpoints_file: Option<PathBuf>,
    /// What decides
    #[arg(long, value_enum)]
    policy: Option<Policy>,
}

impl Overrides {
    /// The configuration at `path`, if any, under these flags. Without endpoints there is nothing to
    /// serve, so nothing that names them is an error.
    pub(crate) fn over(self, path: Option<&Path>, flag: &str) -> anyhow::Result<Config> {
        let mut config = match path {
            Some(path) => Config::load(path)?,
            None if self.endpoints_file.is_some() => Config::default(),
            None => anyhow::bail!(
                "nothing says where the endpoints are: name a configuration with {flag} or a file \
                 of endpoints with --endpoints-file"
            ),
        };
        if let Some(path) = self.endpoints_file {
            config.endpoints = discovery::Options::File(FileOptions { path, watch: true });
        }
        if let Some(policy) = self.policy {
            config.router.schedule.policy = policy.into();
        }
        config.router.priors = priors::load(&config.router.learner.priors)?;
        Ok(config)
    }
}

/// A router at work.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) router: Arc<Router>,
    discovery: Discovery,
    scraper: Scraper,
    follower: JoinHandle<()>,
}

impl Backend {
    /// Starts discovery, which has its first set on return, and scraping; both end with `stop`.
    pub(crate) fn start(
        config: &Config,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let discovery = discovery::start(&config.endpoints, stop)?;
        let mut sets = discovery.sets();
        let first = sets.borrow_and_update().endpoints.clone();
        let pool = Arc::new(Pool::new(first));
        let router = Arc::new(Router::new(config.router.clone(), Arc::clone(&pool))?);
        let scraper = Scraper::start(config.scrape.clone(), pool, clock, stop)
            .context("cannot start to scrape")?;
        let followed = Arc::clone(&router);
        let follower = tokio::spawn(async move {
            while sets.changed().await.is_ok() {
                let set = Arc::clone(&sets.borrow_and_update());
                followed.replace_endpoints(set.endpoints.iter().cloned());
                info!(target: "slackline", endpoints = set.endpoints.len(), "pool has changed");
            }
        });
        Ok(Self { router, discovery, scraper, follower })
    }

    /// How many endpoints there are.
    pub(crate) fn endpoints(&self) -> usize {
        self.router.pool().endpoints().len()
    }

    /// Returns when all has ended.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.scraper.stop().await;
        self.discovery.stop().await;
        self.follower.await.context("the pool was not followed to the end")
    }
}
