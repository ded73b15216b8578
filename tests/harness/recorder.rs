//! A stand-in for an engine that keeps what it was sent, byte by byte, and answers what it was told.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::{Endpoint, EndpointId};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// What is done when a request has arrived, before it is answered.
type Then = dyn Fn(&Seen) + Send + Sync;

struct Shared {
    seen: Mutex<Vec<Seen>>,
    content_type: &'static str,
    answer: Bytes,
    then: Box<Then>,
}

/// An endpoint that records. Dropping it closes its port.
pub struct Recorder {
    /// `host:port`.
    pub address: String,
    name: String,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Recorder {
    /// An endpoint called `name` that answers every request with `answer`.
    pub async fn start(name: &str, content_type: &'static str, answer: impl Into<Bytes>) -> Self {
        Self::start_then(name, content_type, answer, |_| {}).await
    }

    /// As [`Self::start`]; `then` is called with each request before it is answered.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start_then(
        name: &str,
        content_type: &'static str,
        answer: impl Into<Bytes>,
        then: impl Fn(&Seen) + Send + Sync + 'static,
    ) -> Self {
        let (seen, answer, then) = (Mutex::default(), answer.into(), Box::new(then));
        let shared = Arc::new(Shared { seen, content_type, answer, then });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve(listener, Arc::clone(&shared))));
        Self { address, name: name.to_owned(), shared, _stop: stop.drop_guard() }
    }

    /// As the router knows it.
    ///
    /// # Panics
    /// Never: its address is one.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            id: EndpointId::new("default", &self.name),
            address: self.address.parse().unwrap(),
            labels: [].into(),
        }
    }

    /// Every request so far, oldest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&shared), request));
            // A caller that leaves ends its connection as it likes.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let seen = Seen { path: head.uri.to_string(), headers: head.headers, body };
    (shared.then)(&seen);
    shared.seen.lock().push(seen);
    let response = Response::builder().header("content-type", shared.content_type);
    Ok(response.body(Full::new(shared.answer.clone())).unwrap())
}
