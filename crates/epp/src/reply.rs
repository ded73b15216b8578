//! The messages to the proxy.

use bytes::Bytes;
use proto::{
    ext_proc::{
        BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse,
        ProcessingResponse, StreamedBodyResponse, TrailersResponse, body_mutation::Mutation,
        processing_response::Response,
    },
    value::Struct,
};

/// The side of an exchange that a message belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// From the client to the endpoint.
    Request,
    /// Back.
    Response,
}

/// A message around `response`.
pub(crate) fn message(response: Response) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), ..ProcessingResponse::default() }
}

/// Headers go on, changed by `mutation`.
pub(crate) fn headers(side: Side, mutation: Option<HeaderMutation>) -> ProcessingResponse {
    let response = mutation.map(|mutation| CommonResponse {
        header_mutation: Some(mutation),
        ..CommonResponse::default()
    });
    let response = HeadersResponse { response };
    message(match side {
        Side::Request => Response::RequestHeaders(response),
        Side::Response => Response::ResponseHeaders(response),
    })
}

/// A body goes on as it came, where the proxy kept it.
pub(crate) fn body_unchanged(side: Side) -> ProcessingResponse {
    body(side, BodyResponse::default())
}

/// A piece of a body goes on.
pub(crate) fn piece(side: Side, piece: Bytes, end_of_stream: bool) -> ProcessingResponse {
    let mutation = Mutation::StreamedResponse(StreamedBodyResponse { body: piece, end_of_stream });
    let response = CommonResponse {
        body_mutation: Some(BodyMutation { mutation: Some(mutation) }),
        ..CommonResponse::default()
    };
    body(side, BodyResponse { response: Some(response) })
}

fn body(side: Side, response: BodyResponse) -> ProcessingResponse {
    message(match side {
        Side::Request => Response::RequestBody(response),
        Side::Response => Response::ResponseBody(response),
    })
}

/// Trailers go on as they came.
pub(crate) fn trailers(side: Side) -> ProcessingResponse {
    let response = TrailersResponse::default();
    message(match side {
        Side::Request => Response::RequestTrailers(response),
        Side::Response => Response::ResponseTrailers(response),
    })
}

/// What an answer that names the destination answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered {
    /// The headers, which the proxy holds until then.
    Headers,
    /// The whole body, which the proxy holds together with the headers.
    Body,
}

/// The request goes on, with headers changed by `mutation` and `metadata` set; the proxy picks its
/// route again.
pub(crate) fn destination(
    answered: Answered,
    mutation: HeaderMutation,
    metadata: Struct,
) -> ProcessingResponse {
    let response = Some(CommonResponse {
        header_mutation: Some(mutation),
        clear_route_cache: true,
        ..CommonResponse::default()
    });
    let response = match answered {
        Answered::Headers => Response::RequestHeaders(HeadersResponse { response }),
        Answered::Body => Response::RequestBody(BodyResponse { response }),
    };
    ProcessingResponse { dynamic_metadata: Some(metadata), ..message(response) }
}
