//! Messages as Envoy would send them.

use bytes::Bytes;
use proto::{
    core::{HeaderMap, HeaderValue, Metadata},
    ext_proc::{
        HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, ProtocolConfiguration,
        processing_mode::BodySendMode, processing_request::Request as Part,
    },
    value::{Kind, ListValue, Struct, Value},
};

pub(crate) const CHAT: &str =
    r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#;
pub(crate) const ANSWER: &str = r#"{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}"#;

fn message(part: Part) -> ProcessingRequest {
    ProcessingRequest { request: Some(part), ..ProcessingRequest::default() }
}

pub(crate) fn header_map(pairs: &[(&str, &str)]) -> HeaderMap {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HeaderMap { headers: pairs.iter().map(header).collect() }
}

fn http_headers(pairs: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
    HttpHeaders { headers: Some(header_map(pairs)), end_of_stream }
}

pub(crate) fn request_headers(pairs: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    message(Part::RequestHeaders(http_headers(pairs, end_of_stream)))
}

/// Headers of a POST to `path`, with `more` after them.
pub(crate) fn post(path: &str, more: &[(&str, &str)]) -> ProcessingRequest {
    let usual = [
        (":method", "POST"),
        (":authority", "llm.example"),
        (":path", path),
        ("x-request-id", "5f0c7d0e-0000-4000-8000-000000000001"),
        ("content-type", "application/json"),
    ];
    request_headers(&[&usual, more].concat(), false)
}

pub(crate) fn request_body(body: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    message(Part::RequestBody(HttpBody { body: body.into(), end_of_stream }))
}

pub(crate) fn request_trailers() -> ProcessingRequest {
    let trailers = Some(header_map(&[("x-t", "1")]));
    message(Part::RequestTrailers(HttpTrailers { trailers }))
}

pub(crate) fn response_headers(pairs: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    message(Part::ResponseHeaders(http_headers(pairs, end_of_stream)))
}

/// Headers of an answer with `status`, of JSON.
pub(crate) fn status(status: &str) -> ProcessingRequest {
    response_headers(&[(":status", status), ("content-type", "application/json")], false)
}

pub(crate) fn response_body(body: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    message(Part::ResponseBody(HttpBody { body: body.into(), end_of_stream }))
}

pub(crate) fn response_trailers() -> ProcessingRequest {
    let trailers = Some(header_map(&[("x-t", "1")]));
    message(Part::ResponseTrailers(HttpTrailers { trailers }))
}

/// A whole exchange: a chat request and its answer.
pub(crate) fn plain() -> [ProcessingRequest; 4] {
    [
        post("/v1/chat/completions", &[]),
        request_body(CHAT, true),
        status("200"),
        response_body(ANSWER, true),
    ]
}

pub(crate) fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

pub(crate) fn list(entries: &[&str]) -> Kind {
    let values = entries.iter().map(|entry| Value { kind: Some(text(entry)) }).collect();
    Kind::ListValue(ListValue { values })
}

/// `message` with one value of metadata.
pub(crate) fn with_metadata(
    mut message: ProcessingRequest,
    namespace: &str,
    key: &str,
    kind: Kind,
) -> ProcessingRequest {
    let fields = [(key.to_owned(), Value { kind: Some(kind) })].into();
    let filter_metadata = [(namespace.to_owned(), Struct { fields })].into();
    message.metadata_context = Some(Metadata { filter_metadata });
    message
}

/// `message` with the hint that only `subset` may serve.
pub(crate) fn with_subset(message: ProcessingRequest, subset: Kind) -> ProcessingRequest {
    let key = "x-gateway-destination-endpoint-subset";
    with_metadata(message, "envoy.lb.subset_hint", key, subset)
}

/// `message` of a proxy set up for these modes.
pub(crate) fn with_modes(
    mut message: ProcessingRequest,
    request: BodySendMode,
    response: BodySendMode,
) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: request.into(),
        response_body_mode: response.into(),
        send_body_without_waiting_for_header_response: false,
    });
    message
}
