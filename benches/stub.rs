//! Model servers that answer at once, or stream separate chunks: what is measured is never they.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    time::{self, MissedTickBehavior},
};
use twox_hash::XxHash3_64;

use crate::PAGE;

/// Time between two chunks of a stream: long enough that each is a message of its own.
const GAP: Duration = Duration::from_millis(2);
/// Answer to a request that is not streamed.
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":1,"total_tokens":251}}"#;
/// One chunk of a stream, as vLLM sends them.
const CHUNK: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" hello\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const MODELS: &str =
    r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"stub"}]}"#;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Digest of the request body that came last to any stub of this process.
static LAST_BODY: AtomicU64 = AtomicU64::new(0);

/// Serves `count` stubs on ports of their own until killed; `ready` gets their addresses.
///
/// `POST` answers at once, or with `"stream":true` in `max_tokens` chunks; `/metrics` is [`PAGE`];
/// `/last-body` is the digest of the request body that came last.
pub async fn serve_stubs(count: usize, ready: impl FnOnce(&[SocketAddr])) {
    let mut addresses = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        tokio::spawn(accept(listener));
    }
    ready(&addresses);
    std::future::pending::<()>().await;
}

async fn accept(listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        socket.set_nodelay(true).unwrap();
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(answer));
        tokio::spawn(async move {
            // A caller that goes away is no concern of a stub.
            drop(connection.await);
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    if request.method() != Method::POST {
        return Ok(match request.uri().path() {
            "/metrics" => whole("text/plain; version=0.0.4; charset=utf-8", PAGE),
            "/v1/models" => whole("application/json", MODELS),
            "/last-body" => whole("text/plain", LAST_BODY.load(Ordering::Relaxed).to_string()),
            _ => whole("application/json", "{}"),
        });
    }
    let body = request.into_body().collect().await?.to_bytes();
    LAST_BODY.store(XxHash3_64::oneshot(&body), Ordering::Relaxed);
    let asks_for_stream = body.windows(13).any(|window| window == br#""stream":true"#);
    Ok(if asks_for_stream {
        streamed(chunks_asked(&body))
    } else {
        whole("application/json", ANSWER)
    })
}

/// `max_tokens`, or its newer name, which some proxies write instead.
fn chunks_asked(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).unwrap();
    let asked = ["max_tokens", "max_completion_tokens"].iter().find_map(|key| body[*key].as_u64());
    usize::try_from(asked.unwrap()).unwrap()
}

fn whole(content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, content_type).body(body).unwrap()
}

fn streamed(chunks: usize) -> Response<Body> {
    let mut ticks = time::interval_at(time::Instant::now() + GAP, GAP);
    // Two chunks in a hurry would be one message.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let texts = stream::iter((0..=chunks).map(move |at| if at < chunks { CHUNK } else { DONE }));
    let frames = stream::unfold((ticks, texts), |(mut ticks, mut texts)| async move {
        let text = texts.next().await?;
        ticks.tick().await;
        Some((Ok(Frame::data(Bytes::from_static(text.as_bytes()))), (ticks, texts)))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, "text/event-stream").body(body).unwrap()
}
