//! The load generator: a fixed number of kept-alive connections, each sending its next request when it
//! has the whole answer to the last.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use types::{Clock, SystemClock, Time};

/// Different prompts, so that not every request is the one before.
const PROMPTS: usize = 64;

/// Whether an answer is streamed, and in how many chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Plain,
    Stream(u32),
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) prompt_bytes: usize,
    pub(crate) connections: usize,
    /// Requests in all.
    pub(crate) total: usize,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections, {} requests a turn", self.connections, self.total)
    }
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Time to the first byte of the body.
    pub(crate) first_ms: f64,
    /// Time to its last.
    pub(crate) whole_ms: f64,
    /// Reads that brought a part of it: chunks that came one by one are as many reads.
    pub(crate) reads: u32,
}

/// The body of each request, in turn.
pub(crate) fn prompts(load: &Load) -> Vec<Vec<u8>> {
    let body = |at: usize| {
        let (stream, max_tokens) = match load.kind {
            Kind::Plain => (false, 100),
            Kind::Stream(chunks) => (true, chunks),
        };
        let text = format!("{at} lorem ipsum dolor sit amet ").repeat(load.prompt_bytes / 30 + 1);
        json!({
            "model": "m",
            "messages": [{ "role": "user", "content": text[..load.prompt_bytes.min(text.len())] }],
            "stream": stream,
            "max_tokens": max_tokens,
            "temperature": 0.7,
            "x_field_of_a_server": { "kept": [1, 2.5, "three"] },
        })
        .to_string()
        .into_bytes()
    };
    (0..PROMPTS.min(load.total)).map(body).collect()
}

/// Sends one kind of request.
pub(crate) struct Generator {
    load: Load,
    requests: Arc<[Vec<u8>]>,
}

impl Generator {
    pub(crate) fn new(load: &Load) -> Self {
        let requests = prompts(load).iter().map(|body| post(body)).collect();
        Self { load: *load, requests }
    }

    /// Sends all requests to `target`, and returns what came back.
    pub(crate) async fn run(&self, target: SocketAddr) -> Vec<Answer> {
        let Load { connections, total, .. } = self.load;
        let mut tasks = Vec::new();
        for turn in 0..connections {
            let requests = Arc::clone(&self.requests);
            tasks.push(tokio::spawn(async move {
                let mut connection = Connection::open(target).await?;
                let mut answers = Vec::new();
                for at in (turn..total).step_by(connections) {
                    answers.push(connection.exchange(&requests[at % requests.len()]).await?);
                }
                io::Result::Ok(answers)
            }));
        }
        let mut answers = Vec::with_capacity(total);
        for task in tasks {
            answers.extend(task.await.unwrap().unwrap());
        }
        answers
    }
}

/// Returns once `target` answers a request.
pub(crate) async fn until_ready(target: SocketAddr) {
    const TRIES: usize = 600;
    let load = Load { kind: Kind::Plain, prompt_bytes: 10, connections: 1, total: 1 };
    let request = post(&prompts(&load)[0]);
    let mut last = None;
    for _ in 0..TRIES {
        let tried = async { Connection::open(target).await?.exchange(&request).await };
        match tried.await {
            Ok(_) => return,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(last.is_none(), "{target} is not ready: {last:?}");
}

/// The digest of the request body that a stub got last.
pub(crate) async fn last_body(stub: SocketAddr) -> u64 {
    let mut connection = Connection::open(stub).await.unwrap();
    connection.exchange(b"GET /last-body HTTP/1.1\r\nhost: stub\r\n\r\n").await.unwrap();
    let text = String::from_utf8(connection.buffer).unwrap();
    text.rsplit("\r\n\r\n").next().unwrap().parse().unwrap()
}

fn post(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\naccept: */*\r\n\
         content-type: application/json\r\nx-slo-ttft-ms: 2000\r\nx-slo-tpot-ms: 50\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
    clock: SystemClock,
}

impl Connection {
    async fn open(target: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(target).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, buffer: Vec::with_capacity(16_384), clock: SystemClock::start() })
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let start = self.clock.now();
        self.socket.write_all(request).await?;
        self.buffer.clear();
        let head = self.read_head().await?;
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        if !text.starts_with("http/1.1 200") {
            return Err(io::Error::other(text));
        }
        let field = |name: &str| Some(text.split_once(name)?.1.split("\r\n").next()?.trim());
        let length = field("\r\ncontent-length:").and_then(|length| length.parse::<usize>().ok());
        let (first, reads) = match length {
            Some(length) => self.read_sized(head + length).await?,
            None => self.read_chunked(head).await?,
        };
        let ms = |at: Time| at.since(start).as_secs_f64() * 1e3;
        Ok(Answer { first_ms: ms(first), whole_ms: ms(self.clock.now()), reads })
    }

    async fn read(&mut self) -> io::Result<()> {
        if self.socket.read_buf(&mut self.buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads until the head is there, and returns its length.
    async fn read_head(&mut self) -> io::Result<usize> {
        loop {
            let found = self.buffer.windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(at) = found {
                return Ok(at + 4);
            }
            self.read().await?;
        }
    }

    async fn read_sized(&mut self, end: usize) -> io::Result<(Time, u32)> {
        let (first, mut reads) = (self.clock.now(), 1);
        while self.buffer.len() < end {
            self.read().await?;
            reads += 1;
        }
        Ok((first, reads))
    }

    /// Reads up to the empty chunk; no event ends like it.
    async fn read_chunked(&mut self, head: usize) -> io::Result<(Time, u32)> {
        const LAST: &[u8] = b"\r\n0\r\n\r\n";
        if self.buffer.len() == head {
            self.read().await?;
        }
        let (first, mut reads) = (self.clock.now(), 1);
        while !self.buffer.ends_with(LAST) {
            // Only the end is ever looked at again.
            let seen = self.buffer.len().saturating_sub(LAST.len());
            self.buffer.drain(..seen);
            self.read().await?;
            reads += 1;
        }
        Ok((first, reads))
    }
}
