//! Connections to endpoints: pooled, without Nagle's delay, and aware of having been used.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, uri::PathAndQuery, uri::Scheme};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::Options;

/// Idle connections kept per endpoint.
const MAX_IDLE: usize = 1_024;
/// After this silence the peer's host is probed, this often and this many times, before it is given
/// up: a host that vanished would otherwise hold its requests for ever.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// The client that reaches endpoints.
pub(crate) struct Upstream(Client<Connector, Full<Bytes>>);

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").finish_non_exhaustive()
    }
}

/// What is asked of an endpoint.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

/// No response came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There was no connection, so nothing was sent.
    #[error("cannot be reached")]
    Connect,
    /// There was no connection in time.
    #[error("cannot be reached in time")]
    ConnectTimeout,
    /// A connection that had served before broke, likely closed while it lay idle.
    #[error("closed a kept connection before it answered")]
    Stale,
    /// A new connection broke after the request was sent.
    #[error("closed the connection before it answered")]
    Broken,
    /// The request cannot be put for this address.
    #[error("has an address that is not usable")]
    Address,
}

impl Upstream {
    pub(crate) fn new(options: &Options) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.upstream_idle())
            .pool_max_idle_per_host(MAX_IDLE)
            .build(Connector::new(options.connect_timeout()));
        Self(client)
    }

    /// Asks the endpoint at `address` (`host:port`). Dropping the future closes the connection.
    pub(crate) async fn send(
        &self,
        address: &str,
        ask: Ask<'_>,
    ) -> Result<Response<Incoming>, Failure> {
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(address).path_and_query(ask.path);
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = uri.build().map_err(|_| Failure::Address)?;
        *request.headers_mut() = ask.headers.clone();
        let response = self.0.request(request).await.map_err(|error| failure(&error))?;
        if let Some(used) = response.extensions().get::<Used>() {
            used.0.store(true, Ordering::Relaxed);
        }
        Ok(response)
    }
}

fn failure(error: &hyper_util::client::legacy::Error) -> Failure {
    if error.is_connect() {
        return if timed_out(error) { Failure::ConnectTimeout } else { Failure::Connect };
    }
    let mut extensions = http::Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extensions);
    }
    let used = extensions.get::<Used>().is_some_and(|used| used.0.load(Ordering::Relaxed));
    if used { Failure::Stale } else { Failure::Broken }
}

/// Whether a time-out is among the causes of `error`.
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        let error = error.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    })
}

/// Whether a connection has carried an answer: then a break may only mean that it was kept too long.
#[derive(Clone, Debug, Default)]
struct Used(Arc<AtomicBool>);

/// Opens connections that remember whether they have been used.
#[derive(Clone, Debug)]
struct Connector(HttpConnector);

impl Connector {
    fn new(timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeout));
        connector.set_keepalive(Some(PROBE_AFTER));
        connector.set_keepalive_interval(Some(PROBE_AFTER));
        connector.set_keepalive_retries(Some(PROBES));
        Self(connector)
    }
}

impl Service<Uri> for Connector {
    type Response = Tracked;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Tracked, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move { Ok(Tracked { io: connecting.await?, used: Used::default() }) })
    }
}

/// A connection and whether it has been used.
#[derive(Debug)]
struct Tracked {
    io: TokioIo<TcpStream>,
    used: Used,
}

impl Connection for Tracked {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.used.clone())
    }
}

impl Read for Tracked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Tracked {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With Nagle's algorithm a peer that delays its acknowledgement holds the next write for 40 ms.
    #[tokio::test]
    async fn sockets_to_endpoints_send_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = Connector::new(Duration::from_secs(5)).call(uri).await.unwrap();
        assert!(connection.io.inner().nodelay().unwrap());
    }
}
