//! A model server over HTTP: the engine behind the part of vLLM's API that routers and clients use.
//!
//! Answers have the shape of vLLM 0.32; the text is invented. A token is four bytes of prompt
//! text, or one given token id, and one word of the answer. Any number of servers share a runtime:
//! each sleeps until its engine has something to say.

mod failure;
mod histogram;
mod live;
mod page;
mod prompt;
mod reply;
mod stream;
mod text;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderName, HeaderValue, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt as _,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::{Api, Clock};

use self::{failure::Failure, live::Server, reply::Reply};
use crate::{engine::Options, profile::Profile};

/// Largest request body, bytes.
const BODY_LIMIT: usize = 32 << 20;
/// How long connections may take to end after shutdown.
const GRACE: Duration = Duration::from_secs(1);

/// What a model server is.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Model it serves; requests for others are answered 404.
    pub model: String,
    /// Step times and KV capacity.
    pub profile: Profile,
    /// Limits and switches of the engine.
    pub engine: Options,
    /// Steps run this many times faster than life. Metrics show the time that clients see.
    pub time_scale: f64,
    /// Name in the header `x-inference-pod`.
    pub pod_name: String,
    /// Mean length of answers that end of themselves, tokens.
    pub mean_output_tokens: f64,
    /// Unix time at which the clock reads zero, seconds; shown as `created`.
    pub clock_start_unix_s: u64,
}

impl ServerOptions {
    /// The defaults for `profile`: its model, vLLM's limits, real time.
    pub fn new(profile: Profile) -> Self {
        Self {
            model: profile.model.clone(),
            engine: Options::new(&profile),
            profile,
            time_scale: 1.0,
            pod_name: "sim-0".to_owned(),
            mean_output_tokens: 200.0,
            clock_start_unix_s: 0,
        }
    }
}

/// Serves one engine on `listener` until `shutdown`; streams that still run then break off, as
/// when an engine dies.
///
/// Routes: `POST /v1/chat/completions`, `POST /v1/completions`, `GET /v1/models`, `GET /health`,
/// `GET /metrics`, and `POST /slowdown?factor=1.6`, which makes every later step that much longer
/// than the profile says. Fails where the listener does.
pub async fn serve(
    listener: TcpListener,
    options: ServerOptions,
    clock: Arc<dyn Clock>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let port = listener.local_addr()?.port();
    let server = Arc::new(Server::new(options, clock, shutdown.clone()));
    let listener = listener.tap_io(|socket| {
        // A socket that refuses the option works without it.
        let _ = socket.set_nodelay(true);
    });
    let answering = axum::serve(listener, routes(&server, port))
        .with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let ending = async {
        live::drive(&server).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = answering => result,
        () = ending => Ok(()),
    }
}

fn routes(server: &Arc<Server>, port: u16) -> Router {
    let pod = HeaderValue::from_str(&server.options.pod_name)
        .unwrap_or_else(|_| HeaderValue::from_static("invalid"));
    let identity = middleware::map_response(move |mut response: Response| {
        let pod = pod.clone();
        async move {
            let headers = response.headers_mut();
            headers.insert(HeaderName::from_static("x-inference-pod"), pod);
            headers.insert(HeaderName::from_static("x-inference-port"), port.into());
            response
        }
    });
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/health", get(|| async {}))
        .route("/metrics", get(metrics))
        .route("/slowdown", post(slowdown))
        .fallback(|| async { json(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#.to_owned()) })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(identity)
        .with_state(Arc::clone(server))
}

async fn chat(State(server): State<Arc<Server>>, body: Bytes) -> Response {
    generate(&server, Api::Chat, &body).await.unwrap_or_else(Failure::into_response)
}

async fn completions(State(server): State<Arc<Server>>, body: Bytes) -> Response {
    generate(&server, Api::Completions, &body).await.unwrap_or_else(Failure::into_response)
}

/// Answers one generation request. Dropped before it is done, it takes the request back.
async fn generate(server: &Arc<Server>, api: Api, body: &[u8]) -> Result<Response, Failure> {
    let job = prompt::read(api, body, server)?;
    let (is_stream, include_usage) = (job.stream, job.include_usage);
    let ticket = server.submit(&job)?;
    let reply = Reply::new(server, api, job, ticket.first_id());
    if is_stream {
        let body = Body::from_stream(stream::chunks(ticket, reply, include_usage));
        let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
        return Ok((kind, body).into_response());
    }
    let cached = ticket.finished().await.ok_or_else(Failure::shut_down)?;
    Ok(json(StatusCode::OK, reply.whole(&cached)))
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    let limit = server.core.lock().engine.max_model_len();
    json(StatusCode::OK, reply::models(&server.options.model, server.unix_s(), limit))
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, page::render(&server)).into_response()
}

async fn slowdown(State(server): State<Arc<Server>>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let factor = query.split('&').find_map(|pair| pair.strip_prefix("factor="));
    let factor = factor.and_then(|text| text.parse::<f64>().ok());
    let Some(factor) = factor.filter(|factor| factor.is_finite() && *factor > 0.0) else {
        return Failure::bad_request("`factor` must be a positive number".to_owned(), "factor")
            .into_response();
    };
    server.core.lock().engine.set_slowdown(factor);
    json(StatusCode::OK, format!(r#"{{"factor":{factor}}}"#))
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
