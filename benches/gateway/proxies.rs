//! The proxies that are measured, each a process of its own.

use std::{
    env,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use benches::{Child, used_by};
use datalayer::{Pool, Scraper};
use router::Router;
use serde_json::json;
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_util::sync::CancellationToken;
use types::{Clock, Endpoint, EndpointId, SystemClock};

/// Environment variable with the program `sglang-router`.
pub(crate) const PEER: &str = "SLACKLINE_SGLANG_ROUTER";
/// Environment variable with a program `slackline`.
pub(crate) const BIN: &str = "SLACKLINE_BIN";

/// One proxy, or none at all.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// CPU seconds per second without requests.
    pub(crate) idle: f64,
    process: Option<Child>,
}

impl Proxy {
    /// The stub servers themselves.
    pub(crate) fn none(address: SocketAddr) -> Self {
        Self { name: "direct", address, idle: 0.0, process: None }
    }

    /// A relay that copies bytes and reads none: the least that any proxy costs.
    pub(crate) fn bytes(stubs: &[String]) -> Self {
        let (process, address) = Child::of_self("bytes", stubs);
        let address = address.parse().unwrap();
        Self { name: "byte relay", address, idle: 0.0, process: Some(process) }
    }

    /// Our gateway: the program named by [`BIN`], or what this benchmark was built with.
    pub(crate) fn ours(stubs: &[String]) -> Self {
        let Some(program) = env::var_os(BIN) else {
            let (process, address) = Child::of_self("gateway", stubs);
            let address = address.parse().unwrap();
            return Self { name: "ours", address, idle: 0.0, process: Some(process) };
        };
        let endpoint = |(at, stub): (usize, &String)| {
            let (host, port) = stub.split_once(':').unwrap();
            json!({ "name": format!("stub-{at}"), "address": host, "port": port })
        };
        let endpoints: Vec<_> = stubs.iter().enumerate().map(endpoint).collect();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endpoints.json");
        std::fs::write(&file, json!({ "endpoints": endpoints }).to_string()).unwrap();
        let address = free_address();
        let mut command = Command::new(program);
        command.args(["serve", "--listen", &address.to_string(), "--endpoints-file"]).arg(file);
        Self { name: "ours", address, idle: 0.0, process: Some(Child::of(&mut command)) }
    }

    /// sglang-router, if [`PEER`] names it.
    pub(crate) fn peer(stubs: &[String]) -> Option<Self> {
        let program = env::var_os(PEER)?;
        let (address, metrics) = (free_address(), free_address());
        let mut command = Command::new(program);
        command
            .args(["launch", "--policy", "cache_aware", "--log-level", "error"])
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--prometheus-port", &metrics.port().to_string(), "--worker-urls"])
            .args(stubs.iter().map(|stub| format!("http://{stub}")));
        let process = Some(Child::of(&mut command));
        Some(Self { name: "sglang-router", address, idle: 0.0, process })
    }

    /// Its process id, if it is a process of its own.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::pid)
    }

    /// CPU seconds used so far; 0 where there is no proxy.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.pid().map_or(0.0, used_by)
    }

    /// Reads what it uses without requests over `span`.
    pub(crate) async fn read_idle(&mut self, span: Duration) {
        let before = self.cpu_s();
        tokio::time::sleep(span).await;
        self.idle = (self.cpu_s() - before) / span.as_secs_f64();
    }

    /// What it uses without requests, in percent of one core.
    pub(crate) fn idle_percent(&self) -> String {
        format!("{:.1}", self.idle * 100.0)
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Copies bytes between callers and `stubs`, turn by turn, until killed; prints its address.
#[expect(clippy::print_stdout, reason = "the process that started this reads it")]
pub(crate) async fn serve_bytes(stubs: Vec<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stub in stubs.into_iter().cycle() {
        let (mut caller, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(stub).await.unwrap();
            caller.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            // Either side may go away.
            drop(copy_bidirectional(&mut caller, &mut server).await);
        });
    }
}

/// The gateway before `stubs`, with scraping, until killed; prints its address.
#[expect(clippy::print_stdout, reason = "the process that started this reads it")]
pub(crate) async fn serve_gateway(stubs: &[String]) {
    let pool = Arc::new(Pool::new(stubs.iter().enumerate().map(|(at, stub)| Endpoint {
        id: EndpointId::new("default", &format!("stub-{at}")),
        address: stub.parse().unwrap(),
        labels: [].into(),
    })));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let router = Router::new(router::Options::default(), Arc::clone(&pool)).unwrap();
    let stop = CancellationToken::new();
    let scraping = datalayer::Options::default();
    let _scraper = Scraper::start(scraping, pool, Arc::clone(&clock), &stop).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    gateway::serve(listener, gateway::Options::default(), Arc::new(router), clock, stop)
        .await
        .unwrap();
}
