//! Simulated engines over HTTP, in this process.

use std::{collections::BTreeMap, sync::Arc};

use sim::{Profile, ServerOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::{Endpoint, EndpointId, SystemClock};

use crate::{client::get, wait::until};

/// Model that every engine serves.
const MODEL: &str = "llama-3.1-8b";
/// Engines run this much faster than life, so that a test waits for sockets and not for steps.
const TIME_SCALE: f64 = 50.0;

/// One simulated engine on a free port. Dropping it kills it.
#[derive(Debug)]
pub struct Engine {
    /// `host:port`.
    pub address: String,
    endpoint: Endpoint,
    shutdown: CancellationToken,
}

impl Engine {
    /// An engine of class `gpu`, called `name`, fast and with the defaults of its class.
    pub async fn start(gpu: &str, name: &str) -> Self {
        Self::start_with(gpu, name, |_| {}).await
    }

    /// As [`Self::start`], with what `change` sets.
    ///
    /// # Panics
    /// If there is no such class.
    pub async fn start_with(
        gpu: &str,
        name: &str,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        let profile = Profile::named(gpu, MODEL).unwrap();
        let gpu = profile.gpu.clone();
        let mut options = ServerOptions::new(profile);
        options.time_scale = TIME_SCALE;
        name.clone_into(&mut options.pod_name);
        change(&mut options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shutdown = CancellationToken::new();
        let clock = Arc::new(SystemClock::start());
        tokio::spawn(sim::serve(listener, options, clock, shutdown.clone()));
        let endpoint = Endpoint {
            id: EndpointId::new("default", name),
            address: address.parse().unwrap(),
            labels: BTreeMap::from([("llm-d.ai/accelerator".to_owned(), gpu)]),
        };
        Self { address, endpoint, shutdown }
    }

    /// As the router knows it.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Kills it: streams break off, and its port is closed.
    pub fn kill(&self) {
        self.shutdown.cancel();
    }

    /// The sample `name` of its metrics page.
    ///
    /// # Panics
    /// If there is none.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = get(&self.address, "/metrics").await;
        let start = format!("vllm:{name}{{");
        let line = page.text().lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no sample `{name}`"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Requests that it runs or holds in its queue.
    pub async fn requests(&self) -> f64 {
        self.metric("num_requests_running").await + self.metric("num_requests_waiting").await
    }

    /// Waits until it has exactly `count` requests.
    pub async fn until_requests(&self, count: u32) {
        until(&format!("{count} requests on {}", self.endpoint.id), async || {
            ((self.requests().await - f64::from(count)).abs() < 0.5).then_some(())
        })
        .await;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// One engine of each class in `gpus`, called `e0`, `e1` and so on.
pub async fn fleet(gpus: &[&str]) -> Vec<Engine> {
    let mut engines = Vec::with_capacity(gpus.len());
    for (number, gpu) in gpus.iter().enumerate() {
        engines.push(Engine::start(gpu, &format!("e{number}")).await);
    }
    engines
}
