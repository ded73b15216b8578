//! What a message to the proxy means, without what may differ from run to run.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "an answer without meaning should fail loudly"
)]

use std::collections::BTreeMap;

use proto::{
    ext_proc::{
        BodyResponse, HeaderMutation, HeadersResponse, ProcessingResponse, body_mutation::Mutation,
        processing_response::Response,
    },
    value::{Kind, Struct},
};

/// The meaning of one answer. Bodies are text, long ones their length.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Meaning {
    /// Headers go on to an endpoint of the pool; the metadata said the same.
    Destination {
        clear_route_cache: bool,
        content_length: Option<String>,
    },
    RequestHeaders,
    RequestBody {
        body: String,
        end_of_stream: bool,
    },
    RequestTrailers,
    ResponseHeaders,
    ResponseBody {
        body: String,
        end_of_stream: bool,
    },
    ResponseTrailers,
    /// The body of the proxy's request or response goes on unchanged.
    Unchanged,
    Immediate {
        status: i32,
        reason: Option<String>,
    },
}

/// A body, or its length where it is too long to read.
pub(crate) fn shown(body: &[u8]) -> String {
    if body.len() > 10_000 {
        return format!("<{} bytes>", body.len());
    }
    String::from_utf8(body.to_vec()).unwrap()
}

/// The headers that `mutation` sets, names in lower case.
pub(crate) fn headers_set(mutation: Option<&HeaderMutation>) -> BTreeMap<String, String> {
    let headers = mutation.iter().flat_map(|mutation| &mutation.set_headers);
    headers
        .map(|option| {
            assert_eq!(option.append_action, 2, "a header that is there is overwritten");
            let header = option.header.as_ref().unwrap();
            (header.key.to_lowercase(), shown(&header.raw_value))
        })
        .collect()
}

/// The headers that an answer sets.
pub(crate) fn headers_of(response: &ProcessingResponse) -> BTreeMap<String, String> {
    let common = match response.response.as_ref().unwrap() {
        Response::RequestHeaders(headers) | Response::ResponseHeaders(headers) => &headers.response,
        Response::RequestBody(body) | Response::ResponseBody(body) => &body.response,
        Response::ImmediateResponse(immediate) => return headers_set(immediate.headers.as_ref()),
        other => panic!("no headers in {other:?}"),
    };
    headers_set(common.as_ref().and_then(|common| common.header_mutation.as_ref()))
}

/// The destination in the metadata.
pub(crate) fn destination_in(metadata: &Struct) -> Option<&str> {
    let Kind::StructValue(lb) = metadata.fields.get("envoy.lb")?.kind.as_ref()? else {
        return None;
    };
    let value = lb.fields.get("x-gateway-destination-endpoint")?;
    let Some(Kind::StringValue(text)) = &value.kind else { return None };
    Some(text)
}

/// The destination that an answer names, in the header and in the metadata alike.
pub(crate) fn destination(response: &ProcessingResponse) -> Option<String> {
    let headers = match &response.response {
        Some(Response::RequestHeaders(_) | Response::RequestBody(_)) => headers_of(response),
        _ => BTreeMap::new(),
    };
    let header = headers.get("x-gateway-destination-endpoint");
    let metadata = response.dynamic_metadata.as_ref().and_then(destination_in);
    assert_eq!(header.map(String::as_str), metadata, "header and metadata are equal");
    header.cloned()
}

impl Meaning {
    pub(crate) fn of(response: &ProcessingResponse, pool: &[&str]) -> Self {
        if let Some(destination) = destination(response) {
            assert!(pool.contains(&destination.as_str()), "{destination} is not in the pool");
            let headers = headers_of(response);
            return Self::Destination {
                clear_route_cache: clears_route_cache(response),
                content_length: headers.get("content-length").cloned(),
            };
        }
        match response.response.as_ref().unwrap() {
            Response::RequestHeaders(_) => Self::RequestHeaders,
            Response::ResponseHeaders(_) => Self::ResponseHeaders,
            Response::RequestTrailers(_) => Self::RequestTrailers,
            Response::ResponseTrailers(_) => Self::ResponseTrailers,
            Response::RequestBody(body) => {
                streamed(body).map_or(Self::Unchanged, |(body, end_of_stream)| Self::RequestBody {
                    body,
                    end_of_stream,
                })
            }
            Response::ResponseBody(body) => {
                streamed(body).map_or(Self::Unchanged, |(body, end_of_stream)| Self::ResponseBody {
                    body,
                    end_of_stream,
                })
            }
            Response::ImmediateResponse(immediate) => Self::Immediate {
                status: immediate.status.unwrap().code,
                reason: headers_of(response).remove("x-llm-d-request-dropped-reason"),
            },
            other @ Response::StreamedImmediateResponse(_) => panic!("never sent: {other:?}"),
        }
    }
}

fn clears_route_cache(response: &ProcessingResponse) -> bool {
    let Some(
        Response::RequestHeaders(HeadersResponse { response: Some(common) })
        | Response::RequestBody(BodyResponse { response: Some(common) }),
    ) = &response.response
    else {
        return false;
    };
    common.clear_route_cache
}

fn streamed(body: &BodyResponse) -> Option<(String, bool)> {
    match body.response.as_ref()?.body_mutation.as_ref()?.mutation.as_ref()? {
        Mutation::StreamedResponse(piece) => Some((shown(&piece.body), piece.end_of_stream)),
        other => panic!("a full duplex body is streamed, not {other:?}"),
    }
}
