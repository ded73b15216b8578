//! A stand-in for an engine that keeps what it was sent, byte by byte, and answers what it was told,
//! when it is told to.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::Semaphore};
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

#[derive(Debug)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    content_type: &'static str,
    parts: Vec<Bytes>,
    released: Semaphore,
}

/// An endpoint that records. Dropping it closes its port.
#[derive(Debug)]
pub struct Recorder {
    /// `host:port`.
    pub address: String,
    name: String,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Recorder {
    /// An endpoint called `name` that answers every request with `answer`.
    pub async fn start(name: &str, content_type: &'static str, answer: &[u8]) -> Self {
        let recorder = Self::held(name, content_type, &[answer]).await;
        recorder.release(Semaphore::MAX_PERMITS);
        recorder
    }

    /// An endpoint called `name` that answers with `parts`, each of which is sent once it is
    /// released.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn held(name: &str, content_type: &'static str, parts: &[&[u8]]) -> Self {
        let parts = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
        let released = Semaphore::new(0);
        let shared = Arc::new(Shared { seen: Mutex::default(), content_type, parts, released });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve(listener, Arc::clone(&shared))));
        Self { address, name: name.to_owned(), shared, _stop: stop.drop_guard() }
    }

    /// Lets `parts` more parts of answers go.
    pub fn release(&self, parts: usize) {
        self.shared.released.add_permits(parts);
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

    /// Every POST so far, oldest first; what scrapers ask for is left out.
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
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if head.method == Method::POST {
        let seen = Seen { path: head.uri.to_string(), headers: head.headers, body };
        shared.seen.lock().push(seen);
    }
    let response = Response::builder().header("content-type", shared.content_type);
    let body = stream::unfold((shared, 0), |(shared, at)| async move {
        let part = shared.parts.get(at)?.clone();
        shared.released.acquire().await.unwrap().forget();
        Some((Ok(Frame::data(part)), (shared, at + 1)))
    });
    Ok(response.body(StreamBody::new(Box::pin(body))).unwrap())
}
