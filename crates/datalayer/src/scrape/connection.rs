//! One kept-alive HTTP/1.1 connection, driven by the task that uses it.
//!
//! Without a task of its own the connection costs no wake-up across tasks, and none between scrapes.

use std::{io, pin::pin};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use types::Address;

use crate::page::{MAX_PAGE_BYTES, PageError};

/// A page of vLLM in one or two reads.
const READ_BYTES: usize = 64 << 10;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// A connection that was kept alive is closed by now.
    #[error("connection is closed")]
    Closed,
    #[error("connection broke: {0}")]
    Broken(hyper::Error),
    #[error("status is {0}")]
    Status(StatusCode),
    #[error("page is compressed, which was not asked for")]
    Encoded,
    #[error(transparent)]
    Page(#[from] PageError),
    #[error("no answer in time")]
    Timeout,
}

/// A page that was fetched.
pub(super) struct Fetched {
    /// The page, if it came in one piece; otherwise it stands in the buffer. Most pages are read in
    /// one go, and then copying them would be a good part of the cost.
    pub(super) whole: Option<Bytes>,
    /// Whether the connection can be used again.
    pub(super) reusable: bool,
}

pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Absent once it has ended.
    driver: Option<Driver>,
}

type Driver = http1::Connection<TokioIo<TcpStream>, Empty<Bytes>>;

/// Drives the connection to its end, then drops it: only then does a request that is stuck in it fail.
async fn drive(driver: &mut Option<Driver>) {
    if let Some(running) = driver {
        // The exchange gets the error as well.
        let _ended = running.await;
        *driver = None;
    }
}

impl Connection {
    /// Connects to `address`.
    pub(super) async fn open(address: &Address) -> Result<Self, FetchError> {
        let stream = TcpStream::connect((address.host(), address.port()))
            .await
            .map_err(FetchError::Connect)?;
        stream.set_nodelay(true).map_err(FetchError::Connect)?;
        let (sender, driver) = http1::Builder::new()
            .read_buf_exact_size(Some(READ_BYTES))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(FetchError::Broken)?;
        Ok(Self { sender, driver: Some(driver) })
    }

    /// Sends `request` and gives the page it brings. After an error the connection is of no use.
    pub(super) async fn fetch(
        &mut self,
        request: Request<Empty<Bytes>>,
        buffer: &mut Vec<u8>,
    ) -> Result<Fetched, FetchError> {
        let sender = &mut self.sender;
        let mut exchange = pin!(async move {
            sender.ready().await.map_err(|_| FetchError::Closed)?;
            let answer = sender.send_request(request).await.map_err(|error| {
                let closed = error.is_canceled() || error.is_closed() || is_early_end(&error);
                if closed { FetchError::Closed } else { FetchError::Broken(error) }
            })?;
            read(answer, buffer).await
        });
        let mut driver = pin!(drive(&mut self.driver));
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                result = &mut exchange => {
                    return result.map(|whole| Fetched { whole, reusable: open });
                }
                // The end of the connection may come with the end of the page; the exchange knows.
                () = &mut driver, if open => open = false,
            }
        }
    }
}

/// Whether the peer closed before it answered anything.
fn is_early_end(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
}

async fn read(
    answer: Response<Incoming>,
    buffer: &mut Vec<u8>,
) -> Result<Option<Bytes>, FetchError> {
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let encoding = answer.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(FetchError::Encoded);
    }
    let mut body = answer.into_body();
    let mut first = None;
    buffer.clear();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(FetchError::Broken)?.into_data() else { continue };
        if buffer.is_empty() && first.is_none() {
            first = Some(data);
            continue;
        }
        if let Some(first) = first.take() {
            buffer.extend_from_slice(&first);
        }
        if buffer.len() + data.len() > MAX_PAGE_BYTES {
            return Err(PageError::TooLarge.into());
        }
        buffer.extend_from_slice(&data);
    }
    Ok(first)
}
