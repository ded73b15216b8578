//! Holds the messages against another copy of the same API: what it writes, these read, and back.

#![expect(clippy::unwrap_used, reason = "a message that does not decode should fail loudly")]

use std::{collections::HashMap, fmt::Debug};

use bytes::Bytes;
use envoy_types::pb::{
    envoy::{
        config::core::v3 as their_core, extensions::filters::http::ext_proc::v3 as their_mode,
        service::ext_proc::v3 as theirs, r#type::v3 as their_status,
    },
    google::protobuf as their_value,
};
use prost::Message;
use proto::ext_proc::{self as ours, processing_request};
use theirs::{
    body_mutation::Mutation, processing_request::Request, processing_response::Response,
    streamed_immediate_response::Response as Part,
};

/// Which fields of a message are filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Every field of the API.
    All,
    /// Those that this crate carries.
    Carried,
}

impl Fill {
    /// The value, where fields that this crate leaves out are filled.
    fn extra<T: Default>(self, value: T) -> T {
        if self == Self::All { value } else { T::default() }
    }
}

fn text(text: &str) -> their_value::Value {
    their_value::Value { kind: Some(their_value::value::Kind::StringValue(text.to_owned())) }
}

/// A struct with one value of each kind.
fn structure() -> their_value::Struct {
    use their_value::value::Kind;
    let kinds = [
        Kind::NullValue(0),
        Kind::NumberValue(1.5),
        Kind::StringValue("10.0.0.1:8000".to_owned()),
        Kind::BoolValue(true),
        Kind::StructValue(their_value::Struct { fields: [("a".to_owned(), text("b"))].into() }),
        Kind::ListValue(their_value::ListValue { values: vec![text("c"), text("d")] }),
    ];
    let fields = kinds
        .into_iter()
        .enumerate()
        .map(|(index, kind)| (format!("key-{index}"), their_value::Value { kind: Some(kind) }))
        .collect();
    their_value::Struct { fields }
}

/// A struct under each of several names.
fn namespaces() -> HashMap<String, their_value::Struct> {
    ["envoy.lb", "envoy.lb.subset_hint", "envoy.filters.http.ext_proc", "x"]
        .into_iter()
        .map(|name| (name.to_owned(), structure()))
        .collect()
}

fn any() -> their_value::Any {
    their_value::Any { type_url: "type.googleapis.com/x".to_owned(), value: vec![1] }
}

fn header(key: &str) -> their_core::HeaderValue {
    their_core::HeaderValue {
        key: key.to_owned(),
        value: "text".to_owned(),
        raw_value: vec![0, 159, 255],
    }
}

fn header_map() -> their_core::HeaderMap {
    their_core::HeaderMap { headers: vec![header(":path"), header("x-a"), header("x-a")] }
}

/// A mutation with a header under every append action.
fn header_mutation(fill: Fill) -> theirs::HeaderMutation {
    let set_headers = (0..4)
        .map(|action| their_core::HeaderValueOption {
            header: Some(header("x-gateway-destination-endpoint")),
            append_action: action,
            keep_empty_value: fill.extra(true),
            ..Default::default()
        })
        .collect();
    theirs::HeaderMutation { set_headers, remove_headers: vec!["content-length".to_owned()] }
}

fn processing_mode() -> their_mode::ProcessingMode {
    their_mode::ProcessingMode {
        request_header_mode: 1,
        response_header_mode: 2,
        request_body_mode: 3,
        response_body_mode: 4,
        request_trailer_mode: 2,
        response_trailer_mode: 1,
    }
}

fn headers(fill: Fill) -> theirs::HttpHeaders {
    theirs::HttpHeaders {
        headers: Some(header_map()),
        attributes: fill.extra([("old".to_owned(), structure())].into()),
        end_of_stream: true,
    }
}

fn body(fill: Fill) -> theirs::HttpBody {
    theirs::HttpBody {
        body: b"{\"model\":\"m\"}".to_vec(),
        end_of_stream: true,
        end_of_stream_without_message: fill.extra(true),
        grpc_message_compressed: fill.extra(true),
        drain_complete: fill.extra(true),
    }
}

fn trailers() -> theirs::HttpTrailers {
    theirs::HttpTrailers { trailers: Some(header_map()) }
}

fn streamed_body(fill: Fill) -> theirs::StreamedBodyResponse {
    theirs::StreamedBodyResponse {
        body: vec![0, 1, 2],
        end_of_stream: true,
        end_of_stream_without_message: fill.extra(true),
        grpc_message_compressed: fill.extra(true),
        drain_complete: fill.extra(true),
    }
}

fn common(fill: Fill, mutation: Mutation) -> theirs::CommonResponse {
    theirs::CommonResponse {
        status: theirs::common_response::ResponseStatus::ContinueAndReplace.into(),
        header_mutation: Some(header_mutation(fill)),
        body_mutation: Some(theirs::BodyMutation { mutation: Some(mutation) }),
        trailers: Some(header_map()),
        clear_route_cache: true,
    }
}

fn immediate(fill: Fill) -> theirs::ImmediateResponse {
    theirs::ImmediateResponse {
        status: Some(their_status::HttpStatus {
            code: their_status::StatusCode::TooManyRequests.into(),
        }),
        headers: Some(header_mutation(fill)),
        body: b"no endpoint meets the objective".to_vec(),
        grpc_status: Some(theirs::GrpcStatus { status: 8 }),
        details: "saturated".to_owned(),
    }
}

/// A request around every part.
fn requests(fill: Fill) -> Vec<theirs::ProcessingRequest> {
    let parts = [
        Request::RequestHeaders(headers(fill)),
        Request::ResponseHeaders(headers(fill)),
        Request::RequestBody(body(fill)),
        Request::ResponseBody(body(fill)),
        Request::RequestTrailers(trailers()),
        Request::ResponseTrailers(trailers()),
    ];
    parts
        .into_iter()
        .map(|part| theirs::ProcessingRequest {
            metadata_context: Some(their_core::Metadata {
                filter_metadata: namespaces(),
                typed_filter_metadata: fill.extra([("typed".to_owned(), any())].into()),
            }),
            attributes: namespaces(),
            observability_mode: true,
            protocol_config: Some(theirs::ProtocolConfiguration {
                request_body_mode: 4,
                response_body_mode: 2,
                send_body_without_waiting_for_header_response: true,
            }),
            flow_control_init: fill.extra(Some(theirs::processing_request::FlowControlInit {
                initial_window_downstream_to_sidestream: 65_536,
                ..Default::default()
            })),
            client_window_update: fill.extra(Some(
                theirs::processing_request::ClientWindowUpdate {
                    window_increment_sidestream_to_upstream: 1,
                    ..Default::default()
                },
            )),
            request: Some(part),
        })
        .collect()
}

/// A response around every answer, with every change of a body and every immediate part.
fn responses(fill: Fill) -> Vec<theirs::ProcessingResponse> {
    let replaced = || Some(common(fill, Mutation::Body(vec![9; 70_000])));
    let cleared = || Some(common(fill, Mutation::ClearBody(true)));
    let streamed = || Some(common(fill, Mutation::StreamedResponse(streamed_body(fill))));
    let trailers = || theirs::TrailersResponse { header_mutation: Some(header_mutation(fill)) };
    let part = |part| {
        Response::StreamedImmediateResponse(theirs::StreamedImmediateResponse {
            response: Some(part),
        })
    };
    let answers = [
        Response::RequestHeaders(theirs::HeadersResponse { response: replaced() }),
        Response::ResponseHeaders(theirs::HeadersResponse { response: cleared() }),
        Response::RequestBody(theirs::BodyResponse { response: streamed() }),
        Response::ResponseBody(theirs::BodyResponse { response: replaced() }),
        Response::RequestTrailers(trailers()),
        Response::ResponseTrailers(trailers()),
        Response::ImmediateResponse(immediate(fill)),
        part(Part::HeadersResponse(headers(fill))),
        part(Part::BodyResponse(streamed_body(fill))),
        part(Part::TrailersResponse(header_map())),
    ];
    answers
        .into_iter()
        .map(|answer| theirs::ProcessingResponse {
            dynamic_metadata: Some(structure()),
            typed_dynamic_metadata: fill.extra([("typed".to_owned(), any())].into()),
            mode_override: Some(processing_mode()),
            request_drain_requests: fill.extra(true),
            request_drain_responses: fill.extra(true),
            override_message_timeout: fill
                .extra(Some(their_value::Duration { seconds: 1, nanos: 2 })),
            server_window_update: fill.extra(Some(
                theirs::processing_response::ServerWindowUpdate {
                    window_increment_downstream_to_sidestream: 1,
                    ..Default::default()
                },
            )),
            response: Some(answer),
            ..Default::default()
        })
        .collect()
}

/// The message in the types of this crate.
fn read<Theirs: Message, Ours: Message + Default>(message: &Theirs) -> Ours {
    Ours::decode(Bytes::from(message.encode_to_vec())).unwrap()
}

/// The first word of the debug form: the name of an enum's variant.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split('(').next().unwrap().to_owned()
}

#[test]
fn every_request_survives_a_round_trip_without_the_fields_left_out() {
    for (full, carried) in requests(Fill::All).into_iter().zip(requests(Fill::Carried)) {
        let read: ours::ProcessingRequest = read(&full);
        assert_eq!(variant(read.request.as_ref().unwrap()), variant(&full.request.unwrap()));
        let back = theirs::ProcessingRequest::decode(read.encode_to_vec().as_slice()).unwrap();
        assert_eq!(back, carried);
    }
}

#[test]
fn every_response_survives_a_round_trip_without_the_fields_left_out() {
    for (full, carried) in responses(Fill::All).into_iter().zip(responses(Fill::Carried)) {
        let read: ours::ProcessingResponse = read(&full);
        assert_eq!(variant(read.response.as_ref().unwrap()), variant(&full.response.unwrap()));
        let back = theirs::ProcessingResponse::decode(read.encode_to_vec().as_slice()).unwrap();
        assert_eq!(back, carried);
    }
}

#[test]
fn an_empty_message_survives_a_round_trip() {
    let request: ours::ProcessingRequest = read(&theirs::ProcessingRequest::default());
    assert_eq!(request, ours::ProcessingRequest::default());
    let response: ours::ProcessingResponse = read(&theirs::ProcessingResponse::default());
    assert_eq!(response, ours::ProcessingResponse::default());
}

#[test]
fn fields_of_one_type_keep_their_names() {
    use ours::processing_mode::{BodySendMode, HeaderSendMode};

    let response: ours::ProcessingResponse = read(&responses(Fill::All)[0]);
    let mode = response.mode_override.unwrap();
    assert_eq!(mode.request_header_mode(), HeaderSendMode::Send);
    assert_eq!(mode.response_header_mode(), HeaderSendMode::Skip);
    assert_eq!(mode.request_body_mode(), BodySendMode::BufferedPartial);
    assert_eq!(mode.response_body_mode(), BodySendMode::FullDuplexStreamed);
    assert_eq!(mode.request_trailer_mode(), HeaderSendMode::Skip);
    assert_eq!(mode.response_trailer_mode(), HeaderSendMode::Send);

    let request: ours::ProcessingRequest = read(&requests(Fill::All)[0]);
    let config = request.protocol_config.unwrap();
    assert_eq!(config.request_body_mode(), BodySendMode::FullDuplexStreamed);
    assert_eq!(config.response_body_mode(), BodySendMode::Buffered);
    let Some(processing_request::Request::RequestHeaders(part)) = request.request else {
        panic!("not the headers of a request");
    };
    let first = &part.headers.unwrap().headers[0];
    assert_eq!((first.key.as_str(), first.value.as_str()), (":path", "text"));
    assert_eq!(first.raw_value, [0, 159, 255].as_slice());
}

#[test]
fn enum_values_have_the_same_names() {
    for code in 0..1000 {
        let ours = proto::status::StatusCode::try_from(code).map(|code| code.as_str_name());
        let theirs = their_status::StatusCode::try_from(code).map(|code| code.as_str_name());
        assert_eq!(ours.ok(), theirs.ok(), "{code}");
    }
    for number in 0..10 {
        let ours = proto::core::header_value_option::HeaderAppendAction::try_from(number)
            .map(|action| action.as_str_name());
        let theirs = their_core::header_value_option::HeaderAppendAction::try_from(number)
            .map(|action| action.as_str_name());
        assert_eq!(ours.ok(), theirs.ok(), "{number}");
        let ours =
            ours::processing_mode::BodySendMode::try_from(number).map(|mode| mode.as_str_name());
        let theirs = their_mode::processing_mode::BodySendMode::try_from(number)
            .map(|mode| mode.as_str_name());
        assert_eq!(ours.ok(), theirs.ok(), "{number}");
    }
}

#[test]
fn the_service_has_the_name_that_envoy_calls() {
    assert_eq!(
        ours::external_processor_server::SERVICE_NAME,
        "envoy.service.ext_proc.v3.ExternalProcessor"
    );
}

#[test]
fn a_body_shares_the_buffer_it_arrived_in() {
    let wire = Bytes::from(requests(Fill::All)[2].encode_to_vec());
    let request = ours::ProcessingRequest::decode(wire.clone()).unwrap();
    let Some(processing_request::Request::RequestBody(part)) = request.request else {
        panic!("not the body of a request");
    };
    assert!(wire.as_ptr_range().contains(&part.body.as_ptr()));
}

#[test]
fn equal_messages_encode_to_equal_bytes() {
    let encoded = || {
        let request: ours::ProcessingRequest = read(&requests(Fill::All)[0]);
        request.encode_to_vec()
    };
    assert_eq!(encoded(), encoded());
}
