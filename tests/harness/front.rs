//! A router with its scraper, and each of the two fronts before it, in this process.

use std::{ops::Deref, sync::Arc};

use datalayer::{Pool, Scraper};
use epp::Listeners;
use router::Router;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::{Clock, Endpoint, SystemClock, Time};

use crate::wait::until;

/// A router over a pool, whose endpoints are scraped. All of it ends when this is dropped.
#[derive(Debug)]
pub struct Front {
    /// The router.
    pub router: Arc<Router>,
    clock: Arc<dyn Clock>,
    cancel: CancellationToken,
    _scraper: Option<Scraper>,
    _stop: DropGuard,
}

impl Front {
    /// A router with the defaults over `endpoints`.
    pub fn start(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self::start_with(router::Options::default(), endpoints)
    }

    /// A router over `endpoints`, tuned by `options`.
    ///
    /// # Panics
    /// If the options do not fit.
    pub fn start_with(
        options: router::Options,
        endpoints: impl IntoIterator<Item = Endpoint>,
    ) -> Self {
        let scraped = Some(datalayer::Options::default());
        Self::build(options, endpoints, Arc::new(SystemClock::start()), scraped)
    }

    /// A router over `endpoints` that nobody scrapes, on `clock`: snapshots are the test's to give.
    ///
    /// # Panics
    /// If the options do not fit.
    pub fn unscraped(
        options: router::Options,
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::build(options, endpoints, clock, None)
    }

    fn build(
        options: router::Options,
        endpoints: impl IntoIterator<Item = Endpoint>,
        clock: Arc<dyn Clock>,
        scraped: Option<datalayer::Options>,
    ) -> Self {
        let pool = Arc::new(Pool::new(endpoints));
        let router = Arc::new(Router::new(options, Arc::clone(&pool)).unwrap());
        let cancel = CancellationToken::new();
        let scraper = scraped
            .map(|options| Scraper::start(options, pool, Arc::clone(&clock), &cancel).unwrap());
        let stop = cancel.clone().drop_guard();
        Self { router, clock, cancel, _scraper: scraper, _stop: stop }
    }

    /// The present instant of its clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits until every endpoint has been scraped once more and nothing is in flight.
    pub async fn settled(&self) {
        idle(&self.router).await;
        let since = self.now();
        until("a fresh page of every endpoint", async || {
            let endpoints = self.router.pool().endpoints();
            let is_fresh = |at: Option<Time>| at.is_some_and(|at| at > since);
            endpoints.iter().all(|endpoint| is_fresh(endpoint.snapshot().scraped_at)).then_some(())
        })
        .await;
    }

    /// Follows `discovery`: each set that it gives becomes the pool.
    pub fn follow(&self, discovery: &discovery::Discovery) {
        let mut sets = discovery.sets();
        let router = Arc::clone(&self.router);
        let cancel = self.cancel.clone();
        router.replace_endpoints(sets.borrow_and_update().endpoints.clone());
        tokio::spawn(async move {
            while let Some(Ok(())) = cancel.run_until_cancelled(sets.changed()).await {
                router.replace_endpoints(sets.borrow_and_update().endpoints.clone());
            }
        });
    }
}

/// Requests in flight on all endpoints of the pool.
pub fn in_flight(router: &Router) -> u32 {
    router.pool().endpoints().iter().map(|endpoint| endpoint.in_flight()).sum()
}

/// Waits until nothing is in flight.
pub async fn idle(router: &Router) {
    until("nothing in flight", async || (in_flight(router) == 0).then_some(())).await;
}

/// The gateway before a router.
#[derive(Debug)]
pub struct Gateway {
    /// `host:port`.
    pub address: String,
    front: Front,
}

impl Gateway {
    /// The gateway with its defaults before `front`.
    pub async fn start(front: Front) -> Self {
        Self::start_with(gateway::Options::default(), front).await
    }

    /// The gateway before `front`, tuned by `options`.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start_with(options: gateway::Options, front: Front) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (router, clock) = (Arc::clone(&front.router), Arc::clone(&front.clock));
        let serving = gateway::serve(listener, options, router, clock, front.cancel.clone());
        tokio::spawn(async move { serving.await.unwrap() });
        Self { address, front }
    }
}

impl Deref for Gateway {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

/// The `ext_proc` front before a router.
#[derive(Debug)]
pub struct Epp {
    /// Port of `ext_proc` on the loopback address.
    pub port: u16,
    front: Front,
}

impl Epp {
    /// The `ext_proc` front with its defaults before `front`.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start(front: Front) -> Self {
        let ext_proc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = ext_proc.local_addr().unwrap().port();
        let (router, clock) = (Arc::clone(&front.router), Arc::clone(&front.clock));
        let listeners = Listeners { ext_proc, health: None };
        let options = epp::Options::default();
        let serving = epp::serve(listeners, options, router, clock, front.cancel.clone());
        tokio::spawn(async move { serving.await.unwrap() });
        Self { port, front }
    }
}

impl Deref for Epp {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}
