//! Which path leads where.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header::CONTENT_TYPE};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use router::{Fault, Refusal};
use tracing::{Instrument, debug, debug_span, field::Empty};
use types::Api;

use crate::{
    answer::{self, Refused},
    generate::generate,
    headers::REQUEST_ID,
    models::models,
    relay::Relay,
    state::State,
};

/// What goes out: an answer of ours, or one that is relayed.
pub(crate) type Outgoing = Either<Full<Bytes>, Relay>;

/// Answers one request.
pub(crate) async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Infallible> {
    let (id, id_header) = state.ids.of(request.headers());
    let span = debug_span!("request", request_id = &*id, endpoint = Empty);
    let mut waiting = Waiting(Some(Arc::clone(&state)));
    let answered = dispatch(Arc::clone(&state), (id, id_header.clone()), request);
    let answered = answered.instrument(span.clone()).await;
    let mut response = answered.unwrap_or_else(|refused| refused.into_response().map(Either::Left));
    response.headers_mut().insert(REQUEST_ID, id_header);
    waiting.0 = None;
    state.metrics.answered(response.status());
    span.in_scope(|| debug!(code = response.status().as_u16(), "answered"));
    Ok(response)
}

async fn dispatch(
    state: Arc<State>,
    id: (Arc<str>, HeaderValue),
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Refused> {
    let path = request.uri().path();
    if let Some(api) = Api::of_path(path) {
        if request.method() != Method::POST {
            return Err(Refused::wrong_method("POST"));
        }
        return Ok(generate(state, api, id, request).await?.map(Either::Right));
    }
    if !matches!(path, "/v1/models" | "/health" | "/metrics") {
        return Err(Refused::unknown_path(path));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refused::wrong_method("GET, HEAD"));
    }
    let response = match path {
        "/health" => health(&state)?,
        "/metrics" => metrics(&state),
        _ => models(state, request.into_parts().0.headers).await?,
    };
    Ok(response.map(Either::Left))
}

fn health(state: &State) -> Result<Response<Full<Bytes>>, Refused> {
    let endpoints = state.router.pool().endpoints().len();
    if endpoints == 0 {
        return Err(Fault::of_refusal(Refusal::NoEndpoints).into());
    }
    let body = format!(r#"{{"status":"ok","endpoints":{endpoints}}}"#);
    Ok(answer::json(body.into_bytes()))
}

fn metrics(state: &State) -> Response<Full<Bytes>> {
    let families = state.router.registry().gather();
    // A family that cannot be written is a fault of the code; the others are still worth having.
    let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap_or_default();
    let mut response = Response::new(Full::from(text));
    let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Dropped while it still holds the state, it counts a caller who left before there was an answer.
struct Waiting(Option<Arc<State>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.metrics.left();
        }
    }
}
