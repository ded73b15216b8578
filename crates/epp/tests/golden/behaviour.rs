//! What a proxy sees in the exchanges that matter.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use epp::Options;
use proto::ext_proc::{
    ProcessingRequest, processing_mode::BodySendMode, processing_response::Response,
};
use serde_json::Value;
use tonic::Code;

use crate::{
    drive::{Exchange, Held, POOL, Served, hold, in_flight, router_over, until_idle},
    meaning::{Meaning, destination, headers_of},
    messages::{
        ANSWER, CHAT, list, plain, post, request_body, request_headers, request_trailers,
        response_body, response_headers, response_trailers, status, text, with_metadata,
        with_modes, with_subset,
    },
};

async fn held(messages: &[ProcessingRequest]) -> Held {
    hold(Options::default(), &router_over(&POOL), messages).await
}

fn body(body: &str, end_of_stream: bool) -> Meaning {
    Meaning::RequestBody { body: body.to_owned(), end_of_stream }
}

fn answer(body: &str, end_of_stream: bool) -> Meaning {
    Meaning::ResponseBody { body: body.to_owned(), end_of_stream }
}

fn to_the_pool(content_length: Option<usize>) -> Meaning {
    Meaning::Destination {
        clear_route_cache: true,
        content_length: content_length.map(|length| length.to_string()),
    }
}

/// Status, reason and body of the answer to message `at`, in the place of an endpoint's. Its headers say
/// that `source` is to blame.
fn immediate(held: &Held, at: usize, source: &str) -> (i32, Option<String>, Value) {
    let response = held.only(at);
    let Some(Response::ImmediateResponse(immediate)) = &response.response else {
        unreachable!("{response:?}")
    };
    assert_eq!(headers_of(response)["content-type"], "application/json");
    assert_eq!(headers_of(response)["x-slackline-error-source"], source);
    assert!(!immediate.details.is_empty());
    assert_eq!(held.end, (at, Code::Ok, String::new()));
    let reason = headers_of(response).remove("x-llm-d-request-dropped-reason");
    let body: Value = serde_json::from_slice(&immediate.body).unwrap();
    assert!(body["error"]["message"].is_string() && body["error"]["type"].is_string());
    (immediate.status.unwrap().code, reason, body)
}

#[tokio::test]
async fn a_chat_request_goes_to_the_pool_with_its_body_unchanged() {
    let held = held(&plain()).await;
    let expected = [
        vec![],
        vec![to_the_pool(Some(CHAT.len())), body(CHAT, true)],
        vec![Meaning::ResponseHeaders],
        vec![answer(ANSWER, true)],
    ];
    assert_eq!(held.meanings(&POOL), expected);
    assert_eq!(held.end, (4, Code::Ok, String::new()));
}

#[tokio::test]
async fn nothing_is_said_before_the_whole_body_is_there() {
    let (first, rest) = CHAT.split_at(20);
    let (second, third) = rest.split_at(20);
    let held = held(&[
        post("/v1/chat/completions", &[]),
        request_body(first.to_owned(), false),
        request_body(second.to_owned(), false),
        request_body(third.to_owned(), true),
    ])
    .await;
    let expected = [vec![], vec![], vec![], vec![to_the_pool(Some(CHAT.len())), body(CHAT, true)]];
    assert_eq!(held.meanings(&POOL), expected);
}

#[tokio::test]
async fn a_streamed_answer_passes_piece_by_piece() {
    let mut messages = plain().to_vec();
    messages.truncate(2);
    let event = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    let (head, tail) = event.split_at(30);
    messages.extend([
        response_headers(&[(":status", "200"), ("content-type", "text/event-stream")], false),
        response_body(head.to_owned(), false),
        response_body(format!("{tail}\n\n"), false),
        response_body("data: [DONE]\n\n", false),
        response_body("", true),
    ]);
    let held = held(&messages).await;
    let expected = [
        vec![Meaning::ResponseHeaders],
        vec![answer(head, false)],
        vec![answer(&format!("{tail}\n\n"), false)],
        vec![answer("data: [DONE]\n\n", false)],
        vec![answer("", true)],
    ];
    assert_eq!(held.meanings(&POOL)[2..], expected);
}

#[tokio::test]
async fn a_long_body_goes_back_in_pieces_that_a_proxy_takes() {
    let content = "lorem ipsum ".repeat(20_000);
    let long = CHAT.replace("hello there", &content);
    let held = held(&[
        post("/v1/chat/completions", &[]),
        request_body(long[..100_000].to_owned(), false),
        request_body(long[100_000..].to_owned(), true),
        status("200"),
        response_body(long.clone(), true),
    ])
    .await;
    let meanings = held.meanings(&POOL);
    assert_eq!(meanings[2][0], to_the_pool(Some(long.len())));
    let last = format!("<{} bytes>", long.len() - 3 * 62_000);
    assert_eq!(meanings[2][1..4], [(); 3].map(|()| body("<62000 bytes>", false)));
    assert_eq!(meanings[2][4..], [body(&last, true)]);
    assert_eq!(meanings[4][..3], [(); 3].map(|()| answer("<62000 bytes>", false)));
    assert_eq!(meanings[4][3..], [answer(&last, true)]);
}

#[tokio::test]
async fn a_request_without_a_body_is_routed_at_once() {
    let get = request_headers(&[(":method", "GET"), (":path", "/v1/models")], true);
    let held = held(&[get, status("200"), response_body("{}", true)]).await;
    assert_eq!(held.meanings(&POOL)[0], [to_the_pool(None)]);
}

#[tokio::test]
async fn a_body_of_another_api_is_routed_unread() {
    for (path, text) in [("/v1/embeddings", r#"{"input":["a"]}"#), ("/foo", "not JSON"), ("/", "")]
    {
        let held = held(&[post(path, &[]), request_body(text, true)]).await;
        let length = Some(text.len()).filter(|length| *length > 0);
        assert_eq!(held.meanings(&POOL)[1], [to_the_pool(length), body(text, true)]);
    }
}

#[tokio::test]
async fn trailers_end_a_body() {
    let held = held(&[
        post("/v1/chat/completions", &[("transfer-encoding", "chunked")]),
        request_body(CHAT, false),
        request_trailers(),
        status("200"),
        response_body(ANSWER, false),
        response_trailers(),
    ])
    .await;
    let expected = [
        vec![],
        vec![],
        vec![to_the_pool(None), body(CHAT, false), Meaning::RequestTrailers],
        vec![Meaning::ResponseHeaders],
        vec![answer(ANSWER, false)],
        vec![Meaning::ResponseTrailers],
    ];
    assert_eq!(held.meanings(&POOL), expected);
}

#[tokio::test]
async fn what_is_no_request_is_answered_400_in_the_shape_of_the_api() {
    for (text, param) in [
        ("{\"model\": \"m\", ", Value::Null),
        (r#"{"messages":[]}"#, "model".into()),
        ("", Value::Null),
    ] {
        let held = held(&[post("/v1/chat/completions", &[]), request_body(text, true)]).await;
        let (status, reason, body) = immediate(&held, 1, "caller");
        assert_eq!((status, reason), (400, None));
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["param"], param);
    }
}

#[tokio::test]
async fn an_objective_that_is_no_number_is_answered_400() {
    let held = held(&[post("/v1/chat/completions", &[("x-slo-ttft-ms", "soon")])]).await;
    assert_eq!(immediate(&held, 0, "caller").0, 400);
}

#[tokio::test]
async fn a_body_over_the_limit_is_answered_413() {
    let options = Options { max_body_bytes: 100, ..Options::default() };
    let router = router_over(&POOL);
    let path = "/v1/chat/completions";
    let announced = [post(path, &[("content-length", "101")])];
    assert_eq!(immediate(&hold(options.clone(), &router, &announced).await, 0, "caller").0, 413);
    let grown =
        [post(path, &[]), request_body(vec![b' '; 100], false), request_body(vec![b' '; 1], false)];
    let (status, _, body) = immediate(&hold(options, &router, &grown).await, 2, "caller");
    assert_eq!((status, &body["error"]["code"]), (413, &"request_too_large".into()));
}

#[tokio::test]
async fn an_empty_pool_is_answered_503_with_its_reason() {
    let router = router_over(&[]);
    let get = request_headers(&[(":method", "GET"), (":path", "/v1/models")], true);
    let reason = Some("rejected-no-endpoints".to_owned());
    let held = hold(Options::default(), &router, &[get]).await;
    assert_eq!(immediate(&held, 0, "router").1, reason);
    let held = hold(Options::default(), &router, &plain()).await;
    let (status, given, body) = immediate(&held, 1, "router");
    assert_eq!((status, given), (503, reason));
    assert_eq!(body["error"]["type"], "server_error");
    assert_eq!(body["error"]["code"], "no_endpoints");
    assert_eq!(headers_of(held.only(1))["retry-after"], "1");
}

#[tokio::test]
async fn a_subset_binds_on_whatever_message_it_stands() {
    let one = || list(&["127.0.0.1:20001"]);
    let [headers, whole, ..] = plain();
    for messages in [
        [with_subset(headers.clone(), one()), whole.clone()],
        [headers.clone(), with_subset(whole.clone(), text("127.0.0.1:20001"))],
        [with_subset(headers.clone(), list(&["10.9.9.9:80"])), with_subset(whole.clone(), one())],
    ] {
        for _ in 0..8 {
            let held = held(&messages).await;
            assert_eq!(destination(&held.answers[1][0]).unwrap(), "127.0.0.1:20001");
        }
    }
    for nobody in [list(&[]), list(&["10.9.9.9:80"]), text("")] {
        let held = held(&[with_subset(headers.clone(), nobody), whole.clone()]).await;
        let (status, reason, _) = immediate(&held, 1, "caller");
        assert_eq!((status, reason.as_deref()), (503, Some("rejected-no-endpoints")));
    }
}

#[tokio::test]
async fn a_subset_of_hosts_may_come_without_ports_and_in_both_families() {
    let pool = ["10.0.0.1:8000", "[2001:db8::1]:8000"];
    let router = router_over(&pool);
    let [headers, whole, ..] = plain();
    for (hint, expected) in [
        ("10.0.0.1", pool[0]),
        ("2001:db8::1", pool[1]),
        ("[2001:db8::1]:8000", pool[1]),
        ("10.0.0.9, 10.0.0.1:8000", pool[0]),
    ] {
        let messages = [with_subset(headers.clone(), text(hint)), whole.clone()];
        let held = hold(Options::default(), &router, &messages).await;
        assert_eq!(destination(&held.answers[1][0]).as_deref(), Some(expected), "{hint}");
    }
}

#[tokio::test]
async fn a_request_without_an_identity_gets_one_and_control_headers_go_no_further() {
    let pairs = [
        (":path", "/v1/chat/completions"),
        ("x-slo-ttft-ms", "250"),
        ("x-llm-d-inference-fairness-id", "team-a"),
        ("x-other", "kept"),
    ];
    let held = held(&[request_headers(&pairs, false), request_body(CHAT, true)]).await;
    assert_eq!(headers_of(&held.answers[1][0])["x-request-id"].len(), 36);
    let Some(Response::RequestHeaders(headers)) = &held.answers[1][0].response else {
        unreachable!("{held:?}")
    };
    let mutation = headers.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
    assert_eq!(mutation.remove_headers, ["x-slo-ttft-ms", "x-llm-d-inference-fairness-id"]);
}

#[tokio::test]
async fn the_answer_says_who_gave_it_and_why_if_asked() {
    let mut messages = plain().to_vec();
    messages[0] = post("/v1/chat/completions", &[("x-slackline-explain", "true")]);
    let key = "x-gateway-destination-endpoint-served";
    messages[2] = with_metadata(status("200"), "envoy.lb", key, text("127.0.0.1:20001"));
    let options = Options { response_marker: true, ..Options::default() };
    let held = hold(options, &router_over(&POOL), &messages).await;
    let headers = headers_of(held.only(2));
    assert_eq!(headers["x-slackline-endpoint"], "default/e1");
    let explanation: Value = serde_json::from_str(&headers["x-slackline-explanation"]).unwrap();
    assert_eq!(explanation["rung"], headers["x-slackline-rung"]);
    assert_eq!(headers["x-went-into-resp-headers"], "true");

    let unasked = hold(Options::default(), &router_over(&POOL), &plain()).await;
    let headers = headers_of(unasked.only(2));
    let at = POOL.iter().position(|at| destination(&unasked.answers[1][0]).as_deref() == Some(*at));
    assert_eq!(headers["x-slackline-endpoint"], format!("default/e{}", at.unwrap()));
    assert!(!headers.contains_key("x-slackline-explanation"));
    assert!(!headers.contains_key("x-went-into-resp-headers"));
}

#[tokio::test]
async fn a_message_out_of_turn_ends_the_stream_and_is_named() {
    let path = "/v1/chat/completions";
    for (messages, at, what) in [
        (vec![request_body(CHAT, true)], 0, "request body before its headers"),
        (vec![post(path, &[]), post(path, &[])], 1, "second request headers"),
        (
            vec![post(path, &[]), request_body(CHAT, true), request_body(CHAT, true)],
            2,
            "request body after its end",
        ),
        (vec![response_body("", true)], 0, "response body before its headers"),
        (vec![status("200"), status("200")], 1, "second response headers"),
        (vec![ProcessingRequest::default()], 0, "message without a part"),
    ] {
        let held = held(&messages).await;
        assert_eq!(held.end, (at, Code::InvalidArgument, what.to_owned()));
    }
}

#[tokio::test]
async fn an_answer_that_the_proxy_made_itself_passes() {
    let held = held(&[status("408"), response_body("late", true)]).await;
    assert_eq!(held.meanings(&POOL), [[Meaning::ResponseHeaders], [answer("late", true)]]);
}

#[tokio::test]
async fn a_client_that_leaves_is_no_longer_in_flight() {
    let router = router_over(&POOL);
    let served = Served::start(Options::default(), &router).await;
    for seen in 2..=4 {
        let mut messages = plain().to_vec();
        messages[3] = response_body("{", false);
        let mut stream = served.stream().await;
        for message in messages.into_iter().take(seen) {
            stream.send(message).await;
        }
        // Destination, body, headers, first piece: as many as messages, here.
        for _ in 0..seen {
            stream.next().await.unwrap().unwrap();
        }
        assert_eq!(in_flight(&router), 1);
        drop(stream);
        until_idle(&router).await;
    }
}

#[test]
fn a_reset_stream_ends_quietly_and_at_once() {
    let router = router_over(&POOL);
    let mut exchange = Exchange::start(Options::default(), &router);
    for message in plain().into_iter().take(3) {
        exchange.send(message);
    }
    assert_eq!(in_flight(&router), 1);
    let (answers, end) = exchange.reset();
    assert!(answers.is_empty() && end.unwrap().is_ok());
    assert_eq!(in_flight(&router), 0);
}

#[tokio::test]
async fn a_proxy_that_buffers_gets_the_destination_with_the_body() {
    let mut messages = plain().to_vec();
    let buffered = BodySendMode::Buffered;
    messages[0] = with_modes(messages[0].clone(), buffered, buffered);
    let held = held(&messages).await;
    let expected = [
        [Meaning::RequestHeaders],
        [to_the_pool(None)],
        [Meaning::ResponseHeaders],
        [Meaning::Unchanged],
    ];
    assert_eq!(held.meanings(&POOL), expected);
}

#[tokio::test]
async fn a_proxy_that_keeps_bodies_gets_the_destination_with_the_headers() {
    let mut messages = plain().to_vec();
    messages[0] = with_modes(messages[0].clone(), BodySendMode::None, BodySendMode::None);
    messages.remove(1);
    messages.truncate(2);
    let held = held(&messages).await;
    assert_eq!(held.meanings(&POOL), [[to_the_pool(None)], [Meaning::ResponseHeaders]]);

    let mut messages = plain().to_vec();
    messages[0] = with_modes(messages[0].clone(), BodySendMode::Streamed, BodySendMode::Streamed);
    let held = self::held(&messages).await;
    let expected = [
        [to_the_pool(None)],
        [Meaning::Unchanged],
        [Meaning::ResponseHeaders],
        [Meaning::Unchanged],
    ];
    assert_eq!(held.meanings(&POOL), expected);
}
