//! Scraping over real sockets: what is asked, what is kept, and who waits for whom.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use datalayer::{EndpointState, Options, Pool, Scraper, Snapshot};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use types::{Endpoint, EndpointId, ManualClock, Time};

const LOADED: &str = include_str!("fixtures/vllm-0.32-loaded.txt");

/// What a server saw.
#[derive(Debug, PartialEq)]
enum Seen {
    Connection,
    /// A request: its head.
    Request(String),
    Close,
}

/// A server that gives each request, by its head, the bytes of an answer; none is never answered.
struct Server {
    port: u16,
    seen: UnboundedReceiver<Seen>,
    tasks: JoinSet<()>,
}

type Answer = fn(&str) -> Option<Vec<u8>>;

impl Server {
    async fn start(port: u16, answer: Answer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, seen) = unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer_all(stream, answer, sender.clone()));
            }
        });
        Self { port, seen, tasks }
    }

    async fn next(&mut self) -> Seen {
        within(self.seen.recv()).await.unwrap()
    }

    async fn next_request(&mut self) -> String {
        loop {
            if let Seen::Request(head) = self.next().await {
                return head;
            }
        }
    }

    /// Ends as a process does: listener and connections go.
    async fn end(mut self) -> u16 {
        self.tasks.shutdown().await;
        self.port
    }
}

async fn answer_all(mut stream: TcpStream, answer: Answer, seen: UnboundedSender<Seen>) {
    let _test_over = seen.send(Seen::Connection);
    let mut head = Vec::new();
    loop {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap_or(0);
        if read == 0 {
            break;
        }
        head.extend(&bytes[..read]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap().to_lowercase();
        let bytes = answer(&text);
        let _test_over = seen.send(Seen::Request(text));
        let Some(bytes) = bytes else { continue };
        if stream.write_all(&bytes).await.is_err() || bytes.starts_with(b"HTTP/1.0") {
            break;
        }
    }
    let _test_over = seen.send(Seen::Close);
}

fn ok(page: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len()).into_bytes()
}

const AS_LOADED: Answer = |_| Some(ok(LOADED));
const ONE_RUNNING: Answer = |_| Some(ok("vllm:num_requests_running 1\n"));

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap()
}

/// Waits for what no server sees.
async fn until(mut condition: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    within(async {
        while !condition() {
            ticks.tick().await;
        }
    })
    .await;
}

fn endpoint(name: &str, port: u16, labels: &[(&str, String)]) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", name),
        address: format!("127.0.0.1:{port}").parse().unwrap(),
        labels: labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
    }
}

struct Scraped {
    pool: Arc<Pool>,
    clock: Arc<ManualClock>,
    scraper: Scraper,
}

impl Scraped {
    fn start(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self::with(Options { interval_ms: 5, timeout_ms: 60_000, ..Options::default() }, endpoints)
    }

    fn with(options: Options, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let pool = Arc::new(Pool::new(endpoints));
        let clock = Arc::new(ManualClock::default());
        clock.advance_to(Time::from_nanos(7));
        let token = CancellationToken::new();
        let shared = Arc::clone(&clock);
        let scraper = Scraper::start(options, Arc::clone(&pool), shared, &token).unwrap();
        Self { pool, clock, scraper }
    }

    fn state(&self, at: usize) -> Arc<EndpointState> {
        Arc::clone(&self.pool.endpoints()[at])
    }

    fn running(&self, at: usize) -> Option<u32> {
        self.state(at).snapshot().running
    }
}

#[tokio::test]
async fn a_page_is_read_over_one_kept_alive_connection() {
    let mut server = Server::start(0, AS_LOADED).await;
    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    assert_eq!(server.next().await, Seen::Connection);
    for _ in 0..6 {
        let Seen::Request(head) = server.next().await else { panic!("one connection is enough") };
        assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: 127.0.0.1:{}\r\n", server.port)), "{head}");
        assert!(head.contains("\r\naccept: text/plain;version=0.0.4\r\n"), "{head}");
        assert!(head.contains("\r\naccept-encoding: identity\r\n"), "{head}");
    }
    let snapshot = scraped.state(0).snapshot();
    assert_eq!((snapshot.running, snapshot.waiting), (Some(16), Some(8)));
    assert_eq!(snapshot.scraped_at, Some(Time::from_nanos(7)));
    assert_eq!(scraped.scraper.stats().failed(), 0);
    assert!(scraped.scraper.stats().ok() >= 5);
    scraped.scraper.stop().await;
}

#[tokio::test]
async fn a_dead_port_leaves_the_endpoint_unknown() {
    let port = Server::start(0, AS_LOADED).await.end().await;
    let scraped = Scraped::start([endpoint("a", port, &[])]);
    let stats = scraped.scraper.stats();
    until(|| stats.failed() >= 4).await;
    assert_eq!(scraped.state(0).snapshot(), Snapshot::default());
    assert_eq!(stats.ok(), 0);
}

#[tokio::test]
async fn an_engine_that_restarts_keeps_its_last_snapshot_until_it_is_back() {
    let mut server = Server::start(0, AS_LOADED).await;
    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    for _ in 0..2 {
        server.next_request().await;
    }
    let port = server.end().await;
    let stats = scraped.scraper.stats();
    until(|| stats.failed() >= 3).await;
    let kept = scraped.state(0).snapshot();
    assert_eq!((kept.running, kept.scraped_at), (Some(16), Some(Time::from_nanos(7))));
    scraped.clock.advance_to(Time::from_nanos(9));
    let _server = Server::start(port, ONE_RUNNING).await;
    until(|| scraped.running(0) == Some(1)).await;
    assert_eq!(scraped.state(0).snapshot().scraped_at, Some(Time::from_nanos(9)));
}

#[tokio::test]
async fn one_slow_endpoint_delays_no_other() {
    let mut slow = Server::start(0, |_| None).await;
    let mut quick = Server::start(0, AS_LOADED).await;
    let scraped =
        Scraped::start([endpoint("slow", slow.port, &[]), endpoint("quick", quick.port, &[])]);
    slow.next_request().await;
    for _ in 0..10 {
        quick.next_request().await;
    }
    assert_eq!(scraped.running(1), Some(16));
    assert_eq!(scraped.state(0).snapshot(), Snapshot::default());
    assert_eq!(scraped.scraper.stats().failed(), 0, "the slow one is still being waited for");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up_and_asked_for_again() {
    let mut server = Server::start(0, |_| None).await;
    let options = Options { interval_ms: 5, timeout_ms: 20, ..Options::default() };
    let scraped = Scraped::with(options, [endpoint("a", server.port, &[])]);
    for _ in 0..2 {
        assert_eq!(server.next().await, Seen::Connection);
        server.next_request().await;
        assert_eq!(server.next().await, Seen::Close);
    }
    until(|| scraped.scraper.stats().failed() >= 2).await;
}

#[tokio::test]
async fn the_pool_is_followed() {
    let (mut first, mut second) =
        (Server::start(0, AS_LOADED).await, Server::start(0, ONE_RUNNING).await);
    let scraped = Scraped::start([endpoint("a", first.port, &[])]);
    first.next_request().await;
    // The endpoint moves and another joins.
    let moved = endpoint("a", second.port, &[]);
    scraped.pool.replace([endpoint("b", first.port, &[]), moved]);
    second.next_request().await;
    until(|| scraped.running(0) == Some(16) && scraped.running(1) == Some(1)).await;
    scraped.pool.replace([]);
    while first.next().await != Seen::Close {}
    while second.next().await != Seen::Close {}
}

#[tokio::test]
async fn stopping_closes_every_connection() {
    let mut server = Server::start(0, AS_LOADED).await;
    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    server.next_request().await;
    scraped.scraper.stop().await;
    while server.next().await != Seen::Close {}
}

#[tokio::test]
async fn labels_may_move_the_metrics_elsewhere() {
    let server = Server::start(0, AS_LOADED).await;
    let address = ("metricsAddress", "127.0.0.1".to_owned());
    let port = ("metricsPort", server.port.to_string());
    let mut elsewhere = endpoint("a", 1, &[address, port.clone()]);
    elsewhere.address = "no-such-host.invalid:1".parse().unwrap();
    let wrong = ("metricsPort", "http".to_owned());
    let scraped = Scraped::start([
        elsewhere,
        endpoint("b", 1, &[port]),
        endpoint("c", server.port, &[wrong]),
    ]);
    until(|| (0..3).all(|at| scraped.running(at) == Some(16))).await;
}

#[tokio::test]
async fn the_path_follows_the_engine_or_is_found() {
    let answer: Answer = |head| {
        let trtllm = "trtllm_num_requests_running 3\n";
        Some(if head.starts_with("get /prometheus/metrics ") { ok(trtllm) } else { ok("[]") })
    };
    let mut server = Server::start(0, answer).await;
    let label = |engine: &str| [("llm-d.ai/engine-type", engine.to_owned())];
    let scraped = Scraped::start([endpoint("a", server.port, &label("trtllm-serve"))]);
    let head = server.next_request().await;
    assert!(head.starts_with("get /prometheus/metrics "), "{head}");
    until(|| scraped.running(0) == Some(3)).await;

    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    until(|| scraped.running(0) == Some(3)).await;

    let not_found: Answer = |head| {
        let nim = "num_requests_running 4\n";
        let none = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
        Some(if head.starts_with("get /v1/metrics ") { ok(nim) } else { none })
    };
    let server = Server::start(0, not_found).await;
    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    until(|| scraped.running(0) == Some(4)).await;

    let path = Some("/here?q=1".parse().unwrap());
    let options = Options { interval_ms: 5, path, ..Options::default() };
    let mut server = Server::start(0, AS_LOADED).await;
    let _scraped = Scraped::with(options, [endpoint("a", server.port, &[])]);
    assert!(server.next_request().await.starts_with("get /here?q=1 "));
}

#[tokio::test]
async fn a_page_that_loses_its_data_makes_the_endpoint_unknown() {
    let answer: Answer = |_| Some(ok("go_goroutines 7\n"));
    let server = Server::start(0, answer).await;
    let scraped = Scraped::start([endpoint("a", server.port, &[])]);
    let before = Snapshot { running: Some(5), ..Snapshot::default() };
    scraped.state(0).publish(before);
    until(|| scraped.running(0).is_none()).await;
    let empty = Snapshot { scraped_at: Some(Time::from_nanos(7)), ..Snapshot::default() };
    assert_eq!(scraped.state(0).snapshot(), empty);
    assert_eq!(scraped.scraper.stats().failed(), 0);
}

#[tokio::test]
async fn any_framing_of_the_answer_is_read() {
    let to_the_end: Answer = |_| Some(format!("HTTP/1.0 200 OK\r\n\r\n{LOADED}").into_bytes());
    let chunked: Answer = |_| {
        let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in LOADED.as_bytes().chunks(1000) {
            answer.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend(chunk);
            answer.extend(b"\r\n");
        }
        answer.extend(b"0\r\n\r\n");
        Some(answer)
    };
    let large: Answer = |_| Some(ok(&("# padding\n".repeat(100_000) + LOADED)));
    for answer in [to_the_end, chunked, large] {
        let server = Server::start(0, answer).await;
        let scraped = Scraped::start([endpoint("a", server.port, &[])]);
        until(|| scraped.scraper.stats().ok() >= 3).await;
        assert_eq!(scraped.running(0), Some(16));
        assert_eq!(scraped.scraper.stats().failed(), 0);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_page_is_a_failure_and_the_last_snapshot_stays() {
    let unauthorized: Answer =
        |_| Some(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec());
    let moved: Answer = |_| {
        let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /metrics/\r\n";
        Some(format!("{head}content-length: 0\r\n\r\n").into_bytes())
    };
    let zipped: Answer = |_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n";
        Some(format!("{head}content-length: 2\r\n\r\nxx").into_bytes())
    };
    let endless: Answer = |_| Some(ok(&"#".repeat(datalayer::MAX_PAGE_BYTES + 1)));
    let garbage: Answer = |_| Some(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec());
    let cut: Answer =
        |_| Some(b"HTTP/1.0 200 OK\r\ncontent-length: 100\r\n\r\nvllm:num_re".to_vec());
    for (case, answer) in [unauthorized, moved, zipped, endless, garbage, cut].iter().enumerate() {
        let server = Server::start(0, *answer).await;
        let scraped = Scraped::start([endpoint("a", server.port, &[])]);
        let before = Snapshot { running: Some(5), ..Snapshot::default() };
        scraped.state(0).publish(before);
        until(|| scraped.scraper.stats().failed() >= 2).await;
        assert_eq!(scraped.state(0).snapshot(), before, "case {case}");
        assert_eq!(scraped.scraper.stats().ok(), 0, "case {case}");
    }
}

#[test]
fn options_have_their_defaults_and_refuse_what_they_do_not_know() {
    let read = |text: &str| serde_json::from_str::<Options>(text);
    let options = read("{}").unwrap();
    assert_eq!((options.interval_ms, options.timeout_ms, options.path), (50, 1000, None));
    let path = read(r#"{"path": "/metrics/", "scheme": "http"}"#).unwrap().path;
    assert_eq!(path.unwrap().as_str(), "/metrics/");
    for bad in [r#"{"scheme": "https"}"#, r#"{"path": "metrics"}"#, r#"{"interval": 1}"#] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
