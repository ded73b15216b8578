//! A gateway under test, engines driven by hand, and a caller that sees every byte.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use gateway::Options;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use types::{Endpoint, EndpointId};

/// A well-formed chat request.
pub(crate) const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
/// One that asks for a stream.
pub(crate) const STREAM: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
/// The head of an engine's event stream.
pub(crate) const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                                 transfer-encoding: chunked\r\n\r\n";

/// Fails a test that would hang; nothing is measured by it.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.unwrap()
}

/// A gateway in this process.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) served: JoinHandle<Result<(), gateway::Error>>,
}

/// A router over endpoints `default/e0`, `default/e1` and so on.
pub(crate) fn router(addresses: &[SocketAddr]) -> Arc<router::Router> {
    let endpoints = addresses.iter().enumerate().map(|(number, address)| Endpoint {
        id: EndpointId::new("default", &format!("e{number}")),
        address: address.to_string().parse().unwrap(),
        labels: [].into(),
    });
    let pool = Arc::new(datalayer::Pool::new(endpoints));
    Arc::new(router::Router::new(router::Options::default(), pool).unwrap())
}

impl Front {
    /// A gateway before `addresses`.
    pub(crate) async fn start(addresses: &[SocketAddr]) -> Self {
        Self::with(addresses, Options::default()).await
    }

    /// A gateway before `addresses`, tuned by `options`.
    pub(crate) async fn with(addresses: &[SocketAddr], options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let clock = Arc::new(types::SystemClock::start());
        let serving = gateway::serve(listener, options, router(addresses), clock, stop.clone());
        Self { address, stop, served: tokio::spawn(serving) }
    }

    pub(crate) async fn connect(&self) -> Caller {
        Caller { socket: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// The answer to a request without a body, on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> (Head, String) {
        let mut caller = self.connect().await;
        caller.send(&format!("{method} {path} HTTP/1.1\r\nhost: front\r\n\r\n")).await;
        let head = caller.head().await;
        let body = caller.body(&head).await;
        (head, String::from_utf8(body).unwrap())
    }

    /// Waits until the metrics page has `line`.
    pub(crate) async fn counts(&self, line: &str) {
        within(async {
            loop {
                let (_, page) = self.ask("GET", "/metrics").await;
                if page.lines().any(|each| each == line) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The first line and the headers of a message, names in lower case.
pub(crate) struct Head {
    pub(crate) start: String,
    headers: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap().to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        };
        Self { start, headers: lines.filter(|line| !line.is_empty()).map(header).collect() }
    }

    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(each, _)| each == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.get("content-length").map(|length| length.parse().unwrap())
    }
}

/// One end of a connection, read and written by hand.
pub(crate) struct Caller {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.socket.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends a chat request with `body` and further `headers`, each with its line end.
    pub(crate) async fn chat(&mut self, headers: &str, body: &str) {
        let length = body.len();
        self.send(format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: front\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    /// Reads on; whether there was anything.
    async fn more(&mut self) -> bool {
        let read = within(self.socket.read_buf(&mut self.read)).await;
        read.is_ok_and(|count| count > 0)
    }

    /// Takes what comes before `end`, and `end` too; `None` if the connection ends first.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.read.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let mut taken: Vec<u8> = self.read.drain(..at + end.len()).collect();
                taken.truncate(at);
                return Some(taken);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            if !self.more().await {
                return None;
            }
        }
        Some(self.read.drain(..count).collect())
    }

    pub(crate) async fn head(&mut self) -> Head {
        let text = self.until(b"\r\n\r\n").await.unwrap();
        Head::parse(&String::from_utf8(text).unwrap())
    }

    /// The next chunk of a chunked body, empty for the last; `None` if the connection ends first.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n").await?;
        let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap(), 16).unwrap();
        let chunk = self.exactly(size + 2).await?;
        Some(String::from_utf8(chunk[..size].to_vec()).unwrap())
    }

    /// The body that belongs to `head`.
    pub(crate) async fn body(&mut self, head: &Head) -> Vec<u8> {
        if let Some(length) = head.length() {
            return self.exactly(length).await.unwrap();
        }
        let mut body = Vec::new();
        while head.get("transfer-encoding").is_some() {
            let chunk = self.chunk().await.unwrap();
            if chunk.is_empty() {
                break;
            }
            body.extend(chunk.into_bytes());
        }
        body
    }

    /// Waits until the other side closes, and gives what came before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }
}

/// An engine: connections to it are driven by the test.
pub(crate) struct Engine(TcpListener);

/// A request that reached an engine, and the connection it came on.
pub(crate) struct Call {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) connection: Caller,
}

impl Engine {
    pub(crate) async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// An address where nobody listens.
    pub(crate) async fn nowhere() -> SocketAddr {
        Self::start().await.address()
    }

    /// The next request on a new connection.
    pub(crate) async fn call(&self) -> Call {
        let (socket, _) = within(self.0.accept()).await.unwrap();
        Call::read(Caller { socket, read: Vec::new() }).await
    }

    /// Whether nobody waits to connect.
    pub(crate) fn is_idle(&self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        self.0.poll_accept(&mut context).is_pending()
    }
}

impl Call {
    async fn read(mut connection: Caller) -> Self {
        let head = connection.head().await;
        let body = connection.body(&head).await;
        Self { head, body, connection }
    }

    /// The next request on the same connection.
    pub(crate) async fn following(self) -> Self {
        Self::read(self.connection).await
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.connection.send(text).await;
    }

    /// Sends one chunk of a chunked body.
    pub(crate) async fn chunk(&mut self, text: &str) {
        self.connection.send(format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    /// Answers with JSON.
    pub(crate) async fn answer(&mut self, status: &str, body: &str) {
        let length = body.len();
        self.send(&format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
        .await;
    }
}

/// An event that carries one token.
pub(crate) fn token(text: &str) -> String {
    format!(
        "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
}
