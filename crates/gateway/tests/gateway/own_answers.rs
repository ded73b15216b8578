//! Answers that the gateway gives itself.

use gateway::Options;
use serde_json::Value;

use crate::harness::{CHAT, Engine, Front, Head, within};

fn error(body: &[u8]) -> Value {
    let error: Value = serde_json::from_slice(body).unwrap();
    let keys: Vec<_> = error["error"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["code", "message", "param", "type"]);
    error["error"].clone()
}

/// The answer to a chat request that never reaches an engine, and its error.
async fn refused(front: &Front, headers: &str, body: &str) -> (Head, Value) {
    let mut caller = front.connect().await;
    caller.chat(headers, body).await;
    let head = caller.head().await;
    let body = caller.body(&head).await;
    assert!(head.get("x-request-id").is_some());
    (head, error(&body))
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_with_its_line_and_column() {
    let engine = Engine::start().await;
    let front = Front::start(&[engine.address()]).await;
    let (head, error) = refused(&front, "", "{\"model\":\"m\",\n\"messages\":[}").await;
    assert_eq!(head.status(), 400);
    assert_eq!(head.get("x-slackline-error-source"), Some("caller"));
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("line 2 column 13"), "{message}");
    assert!(engine.is_idle());
}

#[tokio::test]
async fn a_member_that_is_missing_is_named_as_the_one_to_blame() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let (head, error) = refused(&front, "", r#"{"messages":[]}"#).await;
    assert_eq!(head.status(), 400);
    assert_eq!((&error["param"], &error["code"]), (&"model".into(), &"invalid_body".into()));
}

#[tokio::test]
async fn an_objective_that_is_no_number_is_refused_by_name() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    for value in ["soon", "\u{e9}"] {
        let (head, error) = refused(&front, &format!("x-slo-ttft-ms: {value}\r\n"), CHAT).await;
        assert_eq!(head.status(), 400);
        assert!(error["message"].as_str().unwrap().contains("x-slo-ttft-ms"), "{error}");
    }
}

#[tokio::test]
async fn an_encoded_body_is_refused_as_such() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    for encoding in ["gzip", "zstd"] {
        let (head, error) =
            refused(&front, &format!("content-encoding: {encoding}\r\n"), "x").await;
        assert_eq!(head.status(), 415);
        assert!(error["message"].as_str().unwrap().contains(encoding), "{error}");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_even_while_it_is_sent() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let body = "x".repeat(3_000_000);
    let (head, error) = refused(&front, "", &body).await;
    assert_eq!(head.status(), 413);
    assert_eq!(error["code"], "request_too_large");
    assert!(error["message"].as_str().unwrap().contains("2097152"), "{error}");
    // The same when its length is not declared.
    let mut caller = front.connect().await;
    let start =
        "POST /v1/completions HTTP/1.1\r\nhost: front\r\ntransfer-encoding: chunked\r\n\r\n";
    caller.send(format!("{start}2dc6c0\r\n{body}\r\n0\r\n\r\n")).await;
    assert_eq!(caller.head().await.status(), 413);
}

#[tokio::test]
async fn a_caller_who_waits_to_be_told_is_refused_before_sending() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let mut caller = front.connect().await;
    let start = "POST /v1/completions HTTP/1.1\r\nhost: front\r\nexpect: 100-continue\r\n";
    caller.send(format!("{start}content-length: 3000000\r\n\r\n")).await;
    assert_eq!(caller.head().await.status(), 413);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_apart() {
    let front = Front::start(&[]).await;
    let (head, body) = front.ask("GET", "/v1/nothing").await;
    assert_eq!((head.status(), head.get("x-slackline-error-source")), (404, Some("caller")));
    assert!(error(body.as_bytes())["message"].as_str().unwrap().contains("/v1/nothing"));
    let (head, _) = front.ask("GET", "/v1/chat/completions").await;
    assert_eq!((head.status(), head.get("allow")), (405, Some("POST")));
    let (head, _) = front.ask("DELETE", "/health").await;
    assert_eq!((head.status(), head.get("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn an_empty_pool_says_so() {
    let front = Front::start(&[]).await;
    let (head, error) = refused(&front, "", CHAT).await;
    assert_eq!(head.status(), 503);
    assert_eq!((&error["type"], &error["code"]), (&"server_error".into(), &"no_endpoints".into()));
    assert_eq!(head.get("retry-after"), Some("1"));
    assert_eq!(head.get("x-slackline-error-source"), Some("router"));
    let reason = head.get("x-llm-d-request-dropped-reason");
    assert_eq!(reason, Some("rejected-no-endpoints"));
    for path in ["/health", "/v1/models"] {
        assert_eq!(front.ask("GET", path).await.0.status(), 503, "{path}");
    }
}

#[tokio::test]
async fn health_and_metrics_answer_without_an_engine() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let (head, body) = front.ask("GET", "/health").await;
    assert_eq!(head.status(), 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], "ok");
    front.counts("slackline_gateway_requests_total{code=\"200\"} 1").await;
}

/// What each of three engines lists; the last breaks off.
#[tokio::test]
async fn models_are_the_union_of_what_engines_list() {
    let engines = [Engine::start().await, Engine::start().await, Engine::start().await];
    let addresses = engines.each_ref().map(Engine::address);
    let front = Front::with(&addresses, Options::default()).await;
    let pages = [
        r#"{"object":"list","data":[{"id":"a","owned_by":"first","max_model_len":8}]}"#,
        r#"{"object":"list","data":[{"id":"a","owned_by":"second"},{"id":"b"}]}"#,
    ];
    let answer = async |engine: &Engine, page: Option<&&str>| {
        let mut call = engine.call().await;
        assert_eq!(call.head.start, "GET /v1/models HTTP/1.1");
        if let Some(page) = page {
            call.answer("200 OK", page).await;
        }
    };
    let (asked, ..) = tokio::join!(
        within(front.ask("GET", "/v1/models")),
        answer(&engines[0], pages.first()),
        answer(&engines[1], pages.get(1)),
        answer(&engines[2], None),
    );
    assert_eq!(asked.0.status(), 200);
    let union: Value = serde_json::from_str(&asked.1).unwrap();
    let first = serde_json::json!({"id": "a", "owned_by": "first", "max_model_len": 8});
    assert_eq!(union["data"], serde_json::json!([first, {"id": "b"}]));
}

#[tokio::test]
async fn models_that_nobody_lists_are_unavailable() {
    let front = Front::start(&[Engine::nowhere().await]).await;
    let (head, body) = front.ask("GET", "/v1/models").await;
    assert_eq!(head.status(), 503);
    assert_eq!(error(body.as_bytes())["type"], "upstream_error");
}
