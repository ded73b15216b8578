//! Callers who leave and engines that die.

use gateway::Options;

use crate::harness::{CHAT, EVENTS, Engine, Front, STREAM, token};

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_frees_the_engine() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    drop(caller);
    assert_eq!(call.connection.closed().await, b"");
    front.counts("slackline_gateway_requests_total{code=\"499\"} 1").await;
    front.counts("slackline_gateway_client_disconnects_total 1").await;
}

#[tokio::test]
async fn a_caller_who_leaves_in_mid_stream_frees_the_engine() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    call.send(EVENTS).await;
    call.chunk(&token("a")).await;
    caller.head().await;
    assert_eq!(caller.chunk().await, Some(token("a")));
    front.counts("slackline_gateway_streams_in_flight 1").await;
    drop(caller);
    assert_eq!(call.connection.closed().await, b"");
    front.counts("slackline_gateway_client_disconnects_total 1").await;
    front.counts("slackline_gateway_streams_in_flight 0").await;
    front.counts("slackline_gateway_stream_failures_total 0").await;
}

/// Reads on to the end of the stream and gives the error that it ends with.
async fn error_at_the_end(caller: &mut crate::harness::Caller) -> serde_json::Value {
    let mut events = String::new();
    loop {
        let chunk = caller.chunk().await.unwrap();
        if chunk.is_empty() {
            break;
        }
        events.push_str(&chunk);
    }
    let last = events.trim_end().rsplit("\n\n").next().unwrap();
    let error: serde_json::Value =
        serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    error["error"].clone()
}

#[tokio::test]
async fn a_stream_that_dies_ends_with_an_error_event() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let whole = token("b");
    // Between two events, within one, and with a proper end that leaves out the end marker.
    for (number, rest) in [&whole, "data: {\"choi", ""].into_iter().enumerate() {
        let mut caller = front.connect().await;
        caller.chat("", STREAM).await;
        let mut call = engine.call().await;
        call.send(EVENTS).await;
        call.chunk(&token("a")).await;
        caller.head().await;
        assert_eq!(caller.chunk().await, Some(token("a")));
        call.chunk(rest).await;
        if rest.is_empty() {
            call.send("\r\n").await;
        }
        drop(call);
        let error = error_at_the_end(&mut caller).await;
        assert_eq!(error["type"], "upstream_error");
        assert!(error["message"].as_str().unwrap().contains("`default/e0`"), "{error}");
        front.counts(&format!("slackline_gateway_stream_failures_total {}", number + 1)).await;
    }
    front.counts("slackline_gateway_client_disconnects_total 0").await;
}

#[tokio::test]
async fn a_stream_that_told_its_end_is_whole_even_if_the_connection_breaks() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    call.send(EVENTS).await;
    let events = format!("{}data: [DONE]\n\n", token("a"));
    call.chunk(&events).await;
    drop(call);
    caller.head().await;
    assert_eq!(caller.chunk().await, Some(events));
    assert_eq!(caller.chunk().await.as_deref(), Some(""));
    front.counts("slackline_gateway_stream_failures_total 0").await;
}

#[tokio::test]
async fn an_answer_cut_short_is_cut_short_for_the_caller() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    call.send(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{\"a\"",
    )
    .await;
    let head = caller.head().await;
    assert_eq!(head.length(), Some(9));
    drop(call);
    assert_eq!(caller.closed().await, b"{\"a\"");
    front.counts("slackline_gateway_stream_failures_total 1").await;
}

#[tokio::test]
async fn what_cannot_be_reached_is_passed_over() {
    let engine = Engine::start().await;
    let dead = [Engine::nowhere().await, Engine::nowhere().await];
    let front = Front::start(&[dead[0], dead[1], engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    for _ in 0..20 {
        call.answer("200 OK", "{}").await;
        let head = caller.head().await;
        assert_eq!(head.status(), 200);
        assert_eq!(head.get("x-slackline-endpoint"), Some("default/e2"));
        caller.body(&head).await;
        caller.chat("", CHAT).await;
        call = call.following().await;
    }
    let (_, page) = front.ask("GET", "/metrics").await;
    assert!(!page.contains("slackline_gateway_upstream_retries_total 0\n"), "{page}");
}

#[tokio::test]
async fn a_pool_that_cannot_be_reached_is_a_bad_gateway_that_names_the_endpoint() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let head = caller.head().await;
    assert_eq!(head.status(), 502);
    assert_eq!(head.get("x-slackline-error-source"), Some("endpoint"));
    assert_eq!(head.get("x-slackline-endpoint"), Some("default/e0"));
    let body = caller.body(&head).await;
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["error"]["type"], "upstream_error");
    assert!(error["error"]["message"].as_str().unwrap().contains("`default/e0`"), "{error}");
}

#[tokio::test]
async fn an_engine_that_dies_over_a_request_is_not_asked_again() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    drop(engine.call().await);
    assert_eq!(caller.head().await.status(), 502);
    assert!(engine.is_idle());
}

#[tokio::test]
async fn a_kept_connection_that_broke_is_replaced() {
    let engine = Engine::start().await;
    let front = Front::with(&[engine.address()], Options::default()).await;
    let mut caller = front.connect().await;
    caller.chat("", CHAT).await;
    let mut call = engine.call().await;
    call.answer("200 OK", "{}").await;
    let head = caller.head().await;
    caller.body(&head).await;
    caller.chat("", CHAT).await;
    // Read, then closed without an answer: the request was sent in vain.
    drop(call.following().await);
    let mut call = engine.call().await;
    assert_eq!(call.body, CHAT.as_bytes());
    call.answer("200 OK", "{}").await;
    assert_eq!(caller.head().await.status(), 200);
    front.counts("slackline_gateway_upstream_retries_total 1").await;
}
