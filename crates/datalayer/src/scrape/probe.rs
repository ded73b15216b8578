//! Scrapes one endpoint: connects, asks, publishes, and says when it turns dead and when it is back.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, header, uri::PathAndQuery};
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio::time;
use types::{Address, Clock};

use super::{
    Options, ScrapeStats,
    connection::{Connection, FetchError},
};
use crate::{
    EndpointState, Snapshot,
    page::{Engine, PageError, read_page},
};

/// Labels of an endpoint whose metrics are served elsewhere.
const ADDRESS_LABEL: &str = "metricsAddress";
const PORT_LABEL: &str = "metricsPort";

/// Paths that engines use: most of them, trtllm-serve, NIM.
const PATHS: [&str; 3] = ["/metrics", "/prometheus/metrics", "/v1/metrics"];

/// Failures in a row after which an endpoint counts as dead.
const DEAD_AFTER: u32 = 3;
/// Longest wait between tries on an endpoint that fails.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Buffers above this size are not kept.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// What all probes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) interval: Duration,
    timeout: Duration,
    path: Option<PathAndQuery>,
    clock: Arc<dyn Clock>,
    stats: Arc<ScrapeStats>,
    /// Buffers not in use: as many as there were scrapes at one time, not as there are endpoints.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Shared {
    pub(super) fn new(options: Options, clock: Arc<dyn Clock>, stats: Arc<ScrapeStats>) -> Self {
        Self {
            interval: Duration::from_millis(options.interval_ms.max(1)),
            timeout: Duration::from_millis(options.timeout_ms.max(1)),
            path: options.path,
            clock,
            stats,
            buffers: Mutex::default(),
        }
    }
}

/// One endpoint under scrape.
pub(super) struct Probe {
    state: Arc<EndpointState>,
    shared: Arc<Shared>,
    target: Address,
    engine: Option<Engine>,
    /// One request per path that may have the page.
    requests: Vec<Request<Empty<Bytes>>>,
    /// The path in use.
    request: usize,
    connection: Option<Connection>,
    failures: u32,
    warned_of_kv: bool,
}

impl Probe {
    pub(super) fn new(state: Arc<EndpointState>, shared: Arc<Shared>) -> Self {
        let target = target(&state);
        let engine = Engine::of(&state.endpoint);
        let paths: &[&str] = match (&shared.path, engine) {
            (Some(path), _) => &[path.as_str()],
            (None, Some(Engine::TrtllmServe)) => &PATHS[1..2],
            // NIM is labelled as vLLM.
            (None, None | Some(Engine::Vllm)) => &PATHS,
            (None, Some(_)) => &PATHS[..1],
        };
        let requests = paths.iter().map(|path| request(path, &target)).collect();
        Self {
            state,
            shared,
            target,
            engine,
            requests,
            request: 0,
            connection: None,
            failures: 0,
            warned_of_kv: false,
        }
    }

    /// Scrapes until aborted, first after `phase`.
    pub(super) async fn run(mut self, phase: Duration) {
        time::sleep(phase).await;
        let mut ticks = time::interval(self.shared.interval);
        // A late scrape does not shift the ones that follow, so phases stay spread.
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.scrape().await;
            if self.failures > 0 {
                let doubled = 1 << (self.failures - 1).min(16);
                time::sleep(self.shared.interval.saturating_mul(doubled).min(MAX_BACKOFF)).await;
            }
        }
    }

    async fn scrape(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut buffer = shared.buffers.lock().pop().unwrap_or_default();
        let fetched = time::timeout(shared.timeout, self.fetch(&mut buffer)).await;
        let result = match fetched {
            Ok(Ok(Some(page))) => self.read(&page),
            Ok(Ok(None)) => self.read(&buffer),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(FetchError::Timeout),
        };
        if buffer.capacity() <= KEPT_BUFFER_BYTES {
            shared.buffers.lock().push(buffer);
        }
        shared.stats.count(result.is_ok());
        match result {
            Ok(()) => self.succeeded(),
            Err(error) => self.failed(&error),
        }
    }

    /// Fetches the page, or else fills `buffer` with it; a kept-alive connection that turns out
    /// closed is opened anew, once.
    async fn fetch(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Bytes>, FetchError> {
        // Taken out, so that a connection is lost when its use is cut short.
        if let Some(connection) = self.connection.take() {
            match self.use_connection(connection, buffer).await {
                Err(FetchError::Closed) => {}
                result => return result,
            }
        }
        let connection = Connection::open(&self.target).await?;
        self.use_connection(connection, buffer).await
    }

    async fn use_connection(
        &mut self,
        mut connection: Connection,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Bytes>, FetchError> {
        let request = self.requests.get(self.request).cloned().unwrap_or_default();
        let fetched = connection.fetch(request, buffer).await?;
        if fetched.reusable {
            self.connection = Some(connection);
        }
        Ok(fetched.whole)
    }

    /// Publishes what `page` says. A page without data is an answer: all is unknown from now on.
    fn read(&mut self, page: &[u8]) -> Result<(), FetchError> {
        let scraped_at = Some(self.shared.clock.now());
        match read_page(self.engine, page) {
            Ok(page) => {
                self.state.publish(Snapshot { scraped_at, ..page.snapshot });
                if page.kv_suspect && !self.warned_of_kv {
                    self.warned_of_kv = true;
                    let endpoint = &self.state.endpoint.id;
                    tracing::warn!(%endpoint, "KV utilization is above 1 and counts as unknown");
                }
            }
            Err(PageError::NoSeries) => {
                self.state.publish(Snapshot { scraped_at, ..Snapshot::default() });
                self.try_next_path();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn try_next_path(&mut self) {
        self.request = (self.request + 1) % self.requests.len().max(1);
    }

    fn succeeded(&mut self) {
        if self.failures >= DEAD_AFTER {
            tracing::info!(endpoint = %self.state.endpoint.id, "metrics are back");
        }
        self.failures = 0;
    }

    fn failed(&mut self, error: &FetchError) {
        if let FetchError::Status(http::StatusCode::NOT_FOUND) = error {
            self.try_next_path();
        }
        self.failures = self.failures.saturating_add(1);
        let (endpoint, target) = (&self.state.endpoint.id, &self.target);
        if self.failures == DEAD_AFTER {
            tracing::warn!(%endpoint, %target, %error, "metrics are dead: the last ones stay");
        } else {
            tracing::debug!(%endpoint, %target, %error, "scrape failed");
        }
    }
}

/// Where the metrics of an endpoint are: at its own address, unless the labels `metricsAddress` and
/// `metricsPort` say otherwise.
fn target(state: &EndpointState) -> Address {
    let own = &state.endpoint.address;
    let label = |name| state.endpoint.labels.get(name).map(String::as_str);
    let host = label(ADDRESS_LABEL).unwrap_or(own.host());
    let port = label(PORT_LABEL).map_or(Some(own.port()), |port| port.parse().ok());
    port.and_then(|port| Address::new(host, port).ok()).unwrap_or_else(|| {
        let endpoint = &state.endpoint.id;
        tracing::warn!(%endpoint, "labels of the metrics address have no effect: not an address");
        own.clone()
    })
}

fn request(path: &str, target: &Address) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::try_from(target.to_string()) {
        headers.insert(header::HOST, host);
    }
    // OpenMetrics would rename samples, and unpacking costs more than it saves on a local network.
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/plain;version=0.0.4"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    request
}
