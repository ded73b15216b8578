//! What passes, passes unchanged.

use crate::harness::{CHAT, EVENTS, Engine, Front, STREAM, token};

#[tokio::test]
async fn a_request_reaches_the_engine_byte_for_byte() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    let body = "{ \"model\" :\t\"m\",\r\n \"vendor_thing\": {\"b\":1.50,\"a\":[ ]},\
                \"messages\":[{\"content\":\"\\u00fc \",\"role\":\"user\"}] , \"vendor_thing\":2 }\n";
    let headers = "authorization: Bearer k\r\nx-request-id: mine\r\nx-slo-ttft-ms: 900\r\n\
                   x-gateway-destination-endpoint: 10.9.9.9:1\r\nconnection: x-hop\r\nx-hop: 1\r\n";
    caller.chat(headers, body).await;
    let call = engine.call().await;
    assert_eq!(call.head.start, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(call.body, body.as_bytes());
    assert_eq!(call.head.get("authorization"), Some("Bearer k"));
    assert_eq!(call.head.get("x-request-id"), Some("mine"));
    assert_eq!(call.head.get("host"), Some(&*engine.address().to_string()));
    for gone in ["x-slo-ttft-ms", "x-gateway-destination-endpoint", "x-hop", "connection"] {
        assert_eq!(call.head.get(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn a_request_sent_in_chunks_arrives_whole_and_keeps_its_query() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    let head = "POST /v1/completions?trace=1 HTTP/1.1\r\nhost: front\r\n\
                transfer-encoding: chunked\r\n\r\n";
    caller.send(head).await;
    caller.send("10\r\n{\"model\": \"m\",  \r\n").await;
    caller.send("10\r\n\"prompt\": \"abc\"}\r\n0\r\n\r\n").await;
    let call = engine.call().await;
    assert_eq!(call.head.start, "POST /v1/completions?trace=1 HTTP/1.1");
    assert_eq!(call.head.length(), Some(32));
    assert_eq!(call.body, br#"{"model": "m",  "prompt": "abc"}"#);
}

#[tokio::test]
async fn an_answer_comes_back_byte_for_byte_with_its_endpoint_named() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    let body = "{\"choices\" : [ ],\n\t\"engine_thing\":1.0}";
    call.send(&format!(
        "HTTP/1.1 200 OK\r\nx-engine: 7\r\nkeep-alive: timeout=5\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let head = caller.head().await;
    assert_eq!(head.status(), 200);
    assert_eq!(caller.body(&head).await, body.as_bytes());
    assert_eq!(head.length(), Some(body.len()));
    assert_eq!(head.get("x-engine"), Some("7"));
    assert_eq!(head.get("keep-alive"), None);
    assert_eq!(head.get("x-slackline-endpoint"), Some("default/e0"));
    assert!(head.get("x-slackline-rung").is_some());
    assert_eq!(head.get("x-request-id"), call.head.get("x-request-id"));
    assert!(head.get("x-request-id").is_some_and(|id| id.len() == 32));
    assert_eq!(head.get("x-slackline-explanation"), None);
}

#[tokio::test]
async fn each_chunk_of_a_stream_arrives_before_the_next_is_sent() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    call.send(EVENTS).await;
    assert_eq!(caller.head().await.status(), 200);
    // Cut in the middle of an event, and of a character's escape: bytes are not looked into.
    for part in [&*token("a"), "data: {\"cho", "ices\":[]}\n", "\n", "data: [DONE]\n\n"] {
        call.chunk(part).await;
        assert_eq!(caller.chunk().await.as_deref(), Some(part));
    }
    call.send("0\r\n\r\n").await;
    assert_eq!(caller.chunk().await.as_deref(), Some(""));
    front.counts("slackline_gateway_streams_in_flight 0").await;
    front.counts("slackline_gateway_stream_failures_total 0").await;
    front.counts("slackline_gateway_client_disconnects_total 0").await;
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    for _ in 0..3 {
        call.answer("200 OK", "{}").await;
        let head = caller.head().await;
        assert_eq!(caller.body(&head).await, b"{}");
        caller.chat("", CHAT).await;
        call = call.following().await;
    }
    assert!(engine.is_idle());
}

#[tokio::test]
async fn an_error_of_the_engine_passes_unchanged() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    for (status, code) in [("404 Not Found", 404), ("500 Internal Server Error", 500)] {
        let body = r#"{"object":"error","message":"The model `m` does not exist."}"#;
        call.answer(status, body).await;
        let head = caller.head().await;
        assert_eq!(head.status(), code);
        assert_eq!(caller.body(&head).await, body.as_bytes());
        assert_eq!(head.get("x-slackline-endpoint"), Some("default/e0"));
        caller.chat("", CHAT).await;
        call = call.following().await;
    }
    front.counts("slackline_gateway_requests_total{code=\"404\"} 1").await;
}

#[tokio::test]
async fn reasons_are_given_when_asked_for() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("x-slackline-explain: true\r\n", CHAT).await;
    let mut call = engine.call().await;
    assert_eq!(call.head.get("x-slackline-explain"), None);
    call.answer("200 OK", "{}").await;
    let head = caller.head().await;
    let reasons = head.get("x-slackline-explanation").unwrap();
    let reasons: serde_json::Value = serde_json::from_str(reasons).unwrap();
    assert_eq!(reasons["rung"].as_str(), head.get("x-slackline-rung"));
}
