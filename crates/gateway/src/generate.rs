//! One generation request: read, routed, forwarded, relayed.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::EXPECT,
    uri::PathAndQuery,
};
use hyper::body::Incoming;
use router::{End, Fault, Head, Routed};
use tracing::{Span, debug};
use types::{Api, Slo};

use crate::{
    answer::Refused,
    body, explanation,
    headers::{self, ENDPOINT, EXPLAIN, EXPLANATION, REQUEST_ID, RUNG},
    relay::Relay,
    state::State,
    upstream::{Ask, Failure},
};

/// Answers a request to a generation path.
pub(crate) async fn generate(
    state: Arc<State>,
    api: Api,
    (id, id_header): (Arc<str>, HeaderValue),
    request: Request<Incoming>,
) -> Result<Response<Relay>, Refused> {
    let (mut parts, body) = request.into_parts();
    if let Some(encoding) = headers::encoding(&parts.headers) {
        let message = format!("the request body must not be encoded, but is `{encoding}`");
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refused::caller(status, "unsupported_encoding", message));
    }
    let slo = slo(&parts.headers, state.options.default_slo)?;
    let explain = headers::text(&parts.headers, EXPLAIN.as_str())
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let waits = parts.headers.contains_key(EXPECT);
    let body = body::collect(body, state.options.max_body_bytes, waits).await?;
    let scope = router::read_scope(|name| headers::text(&parts.headers, name));
    let session = router::read_session(|name| headers::text(&parts.headers, name));
    let head = Head { api, id, slo, scope, session, subset: None, explain };
    let wanted = router::read_request(head, &body).map_err(|error| Fault::of_body(&error))?;
    headers::keep_for_endpoint(&mut parts.headers);
    parts.headers.insert(REQUEST_ID, id_header);
    let path = parts.uri.into_parts().path_and_query;
    let path = path.unwrap_or(PathAndQuery::from_static("/"));
    forward(state, wanted, Outgoing { path, headers: parts.headers, body }).await
}

/// The objective asked for, each ceiling that is absent filled from `default`.
fn slo(headers: &HeaderMap, default: Slo) -> Result<Slo, Refused> {
    let asked = router::read_slo(|name| headers::text(headers, name))
        .map_err(|error| Fault::of_header(&error))?;
    Ok(Slo { ttft: asked.ttft.or(default.ttft), itl: asked.itl.or(default.itl) })
}

/// What every endpoint that is tried gets.
#[derive(Debug)]
struct Outgoing {
    path: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    fn ask(&self) -> Ask<'_> {
        let (path, body) = (self.path.clone(), self.body.clone());
        Ask { method: Method::POST, path, headers: &self.headers, body }
    }
}

/// Tries endpoints as the router names them until one answers.
async fn forward(
    state: Arc<State>,
    wanted: types::Request,
    outgoing: Outgoing,
) -> Result<Response<Relay>, Refused> {
    let mut tried = Vec::new();
    let mut routed = state.router.route(&wanted, state.now(), &tried).map_err(|refusal| {
        debug!(%refusal, "refused");
        Fault::of_refusal(refusal)
    })?;
    loop {
        let endpoint = Arc::clone(&routed.endpoint);
        Span::current().record("endpoint", endpoint.endpoint.id.as_str());
        let failure = match state.upstream.send(&endpoint.address, outgoing.ask()).await {
            Ok(response) => return Ok(relay(state, routed, response)),
            Err(failure) => failure,
        };
        debug!(%failure, "no answer");
        routed.flight.finish(End::EndpointFailed, state.now());
        tried.push(endpoint.slot);
        let may_retry = !matches!(failure, Failure::Broken)
            && tried.len() <= state.options.max_retries as usize;
        // The endpoint of a stale connection may be in good health: better there again than nowhere.
        let next = may_retry.then(|| state.router.route(&wanted, state.now(), &tried));
        routed = match next {
            Some(Ok(next)) => next,
            Some(Err(_)) if matches!(failure, Failure::Stale) => {
                let again = state.router.route(&wanted, state.now(), &[]);
                again.map_err(|_| no_answer(&endpoint, &failure))?
            }
            _ => return Err(no_answer(&endpoint, &failure)),
        };
        state.metrics.retries.inc();
    }
}

fn no_answer(endpoint: &datalayer::EndpointState, failure: &Failure) -> Refused {
    let id = &endpoint.endpoint.id;
    let message = format!("endpoint `{id}` ({}) {failure}", endpoint.address);
    let (status, code) = match failure {
        Failure::ConnectTimeout => (StatusCode::GATEWAY_TIMEOUT, "endpoint_timeout"),
        _ => (StatusCode::BAD_GATEWAY, "endpoint_unreachable"),
    };
    let refused = Refused::endpoint(status, code, message);
    match HeaderValue::from_str(id.as_str()) {
        Ok(id) => refused.header(ENDPOINT, id),
        Err(_) => refused,
    }
}

/// The endpoint's response, with what we add to it.
fn relay(state: Arc<State>, routed: Routed, response: Response<Incoming>) -> Response<Relay> {
    let (mut parts, body) = response.into_parts();
    let Routed { endpoint, rung, explanation, flight, .. } = routed;
    let id = HeaderValue::from_str(endpoint.endpoint.id.as_str());
    let relay = Relay::new(state, (endpoint, flight), &mut parts, body);
    if let Ok(id) = id {
        parts.headers.insert(ENDPOINT, id);
    }
    parts.headers.insert(RUNG, HeaderValue::from_static(rung.as_str()));
    if let Some(explanation) = explanation.as_deref().and_then(explanation::header) {
        parts.headers.insert(EXPLANATION, explanation);
    }
    let mut answer = Response::new(relay);
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer
}
