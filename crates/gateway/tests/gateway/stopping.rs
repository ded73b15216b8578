//! How the gateway stops, and what it takes as options.

use gateway::Options;
use tokio::net::TcpStream;

use crate::harness::{EVENTS, Engine, Front, STREAM, token, within};

#[tokio::test]
async fn a_stream_under_way_outlives_the_stop() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let mut idle = front.connect().await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    call.send(EVENTS).await;
    caller.head().await;
    front.stop.cancel();
    assert_eq!(idle.closed().await, b"");
    call.chunk(&token("a")).await;
    assert_eq!(caller.chunk().await, Some(token("a")));
    call.chunk("data: [DONE]\n\n").await;
    call.send("0\r\n\r\n").await;
    assert_eq!(caller.chunk().await.as_deref(), Some("data: [DONE]\n\n"));
    assert_eq!(caller.chunk().await.as_deref(), Some(""));
    within(front.served).await.unwrap().unwrap();
    assert!(TcpStream::connect(front.address).await.is_err());
}

#[tokio::test]
async fn a_stream_that_outlasts_the_drain_is_cut() {
    let engine = Engine::start().await;
    let options = Options { drain_timeout_ms: 1, ..Options::default() };
    let front = Front::with(&[engine.address()], options).await;
    let mut caller = front.connect().await;
    caller.chat("", STREAM).await;
    let mut call = engine.call().await;
    call.send(EVENTS).await;
    caller.head().await;
    front.stop.cancel();
    within(front.served).await.unwrap().unwrap();
    assert_eq!(call.connection.closed().await, b"");
    assert_eq!(caller.chunk().await, None);
}

#[test]
fn options_that_nobody_knows_are_refused_and_absent_ones_have_defaults() {
    let options: Options =
        serde_json::from_str(r#"{"default_slo":{"ttft_ms":900.0},"max_retries":1}"#).unwrap();
    assert_eq!(options.max_body_bytes, 2_097_152);
    assert_eq!(options.connect_timeout_ms, 2_000);
    assert!(serde_json::from_str::<Options>(r#"{"max_body_byte":1}"#).is_err());
}
