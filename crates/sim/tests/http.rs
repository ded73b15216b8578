//! The model server over real sockets, compared with answers of vLLM 0.32 (`tests/fixtures`).

#![expect(clippy::unwrap_used, reason = "a broken test should fail loudly")]

use std::{collections::BTreeSet, sync::Arc};

use axum::body::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sim::{Profile, ServerOptions};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use types::SystemClock;

/// A server of model `tiny` on a port of its own.
struct Server {
    address: String,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions::new(Profile::named("H100", "llama-3.1-8b").unwrap());
        "tiny".clone_into(&mut options.model);
        options.time_scale = 100.0;
        change(&mut options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shutdown = CancellationToken::new();
        let clock = Arc::new(SystemClock::start());
        let task = tokio::spawn(sim::serve(listener, options, clock, shutdown.clone()));
        Self { address, shutdown, task }
    }

    async fn send(&self, method: Method, path: &str, body: String) -> Response<Incoming> {
        let socket = TcpStream::connect(&self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        sender.send_request(request).await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Response<Incoming> {
        self.send(Method::POST, path, body.to_string()).await
    }

    async fn post_json(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.post(path, body).await;
        let status = response.status();
        (status, serde_json::from_str(&text(response).await).unwrap())
    }

    async fn get(&self, path: &str) -> String {
        text(self.send(Method::GET, path, String::new()).await).await
    }

    /// The sample of the metrics page that starts with `name{`.
    async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await;
        let start = format!("{name}{{");
        let line = page.lines().find(|line| line.starts_with(&start)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Polls the metrics page until the sample `name` is `value`.
    async fn until(&self, name: &str, value: f64) {
        while (self.metric(name).await - value).abs() > f64::EPSILON {
            tokio::task::yield_now().await;
        }
    }
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// The JSON of each event; the end marker is left out, but must be there.
fn events(stream: &str) -> Vec<Value> {
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let data = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Every path of keys in `value`, with the kind of what stands there; `null` fits anything.
fn shape(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                shape(value, &format!("{path}.{key}"), found);
            }
        }
        Value::Array(items) => {
            for item in items {
                shape(item, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// Shape of an answer, whatever it says of cached tokens (which the recorded engine did not tell)
/// and of the permissions of a model (which nobody reads).
fn shape_of(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    shape(value, "", &mut found);
    found.retain(|path| !path.contains("prompt_tokens_details") && !path.contains("permission"));
    found
}

fn chat(prompt: &str, more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 8,
        "ignore_eos": true,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_streamed_chat_has_the_shape_of_a_recorded_one() {
    let server = Server::start(|_| {}).await;
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let response = server.post("/v1/chat/completions", &chat("a long question, yes", &more)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    let told = events(&text(response).await);
    let recorded = events(&fixture("chat-stream.sse"));
    assert_eq!(told.len(), recorded.len());
    for (told, recorded) in told.iter().zip(&recorded) {
        assert_eq!(shape_of(told), shape_of(recorded));
    }
    let first = &told[0]["choices"][0]["delta"];
    assert_eq!(*first, json!({"role": "assistant", "content": ""}));
    assert_ne!(told[1]["choices"][0]["delta"]["content"], "");
    assert_eq!(told[8]["choices"][0]["finish_reason"], "length");
    let usage = json!({
        "prompt_tokens": 6, "total_tokens": 14, "completion_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    assert_eq!(told[9]["usage"], usage);
}

#[tokio::test]
async fn whole_answers_have_the_shape_of_recorded_ones() {
    let server = Server::start(|_| {}).await;
    let (_, told) = server.post_json("/v1/chat/completions", &chat("hello", &json!({}))).await;
    let recorded: Value = serde_json::from_str(&fixture("chat.json")).unwrap();
    assert_eq!(shape_of(&told), shape_of(&recorded));
    let body = json!({"prompt": [1, 2, 3, 4], "max_tokens": 4, "ignore_eos": true});
    let (_, told) = server.post_json("/v1/completions", &body).await;
    let recorded: Value = serde_json::from_str(&fixture("completion-tokens.json")).unwrap();
    assert_eq!(shape_of(&told), shape_of(&recorded));
    assert_eq!(told["usage"]["prompt_tokens"], 4);
    let told: Value = serde_json::from_str(&server.get("/v1/models").await).unwrap();
    let recorded: Value = serde_json::from_str(&fixture("models.json")).unwrap();
    assert_eq!(shape_of(&told), shape_of(&recorded));
}

#[tokio::test]
async fn every_form_of_prompt_is_served() {
    let server = Server::start(|_| {}).await;
    for (prompt, choices, tokens) in [
        (json!("twelve bytes"), 1, 3),
        (json!(["four", "and more"]), 2, 3),
        (json!([9, 8, 7]), 1, 3),
        (json!([[9, 8, 7], [1]]), 2, 4),
    ] {
        let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 2, "ignore_eos": true});
        let (status, answer) = server.post_json("/v1/completions", &body).await;
        assert_eq!(status, 200);
        assert_eq!(answer["choices"].as_array().unwrap().len(), choices);
        assert_eq!(answer["usage"]["prompt_tokens"], tokens);
        assert_eq!(answer["usage"]["completion_tokens"], 2 * choices);
    }
}

#[tokio::test]
async fn streams_of_several_answers_tell_each_token_once() {
    let server = Server::start(|_| {}).await;
    let body = json!({
        "prompt": ["one prompt", "another"], "n": 2, "max_tokens": 5, "ignore_eos": true,
        "stream": true,
    });
    let told = events(&text(server.post("/v1/completions", &body).await).await);
    for index in 0..4 {
        let own = told.iter().filter(|event| event["choices"][0]["index"] == index);
        assert_eq!(own.count(), 5);
    }
}

#[tokio::test]
async fn a_streamed_answer_says_what_the_whole_one_says() {
    let server = Server::start(|_| {}).await;
    let body = chat("same words", &json!({"max_tokens": 2000, "ignore_eos": false}));
    let (_, whole) = server.post_json("/v1/chat/completions", &body).await;
    let body =
        chat("same words", &json!({"max_tokens": 2000, "ignore_eos": false, "stream": true}));
    let told = events(&text(server.post("/v1/chat/completions", &body).await).await);
    let content =
        |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    let streamed: String = told.iter().filter_map(content).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], streamed);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(told.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_repeated_prompt_is_reported_as_cached() {
    let server = Server::start(|_| {}).await;
    let body = chat(&"0123456789abcdef".repeat(64), &json!({"max_completion_tokens": 1}));
    server.post_json("/v1/chat/completions", &body).await;
    let (_, answer) = server.post_json("/v1/chat/completions", &body).await;
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(257), &json!(1)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 256);
}

#[tokio::test]
async fn an_unknown_model_is_answered_as_recorded() {
    let server = Server::start(|_| {}).await;
    let body = json!({"model": "nope", "messages": []});
    let (status, answer) = server.post_json("/v1/chat/completions", &body).await;
    let recorded = fixture("error-unknown-model.http");
    let (_, recorded) = recorded.split_once("\r\n\r\n").unwrap();
    assert_eq!(status, 404);
    assert_eq!(answer, serde_json::from_str::<Value>(recorded).unwrap());
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_bad_requests() {
    let server = Server::start(|options| options.engine.max_model_len = 100).await;
    for (path, body, reason) in [
        ("/v1/chat/completions", "{\"messages\": [".to_owned(), "json_invalid"),
        ("/v1/chat/completions", "{}".to_owned(), "messages"),
        ("/v1/completions", "{}".to_owned(), "prompt"),
        ("/v1/completions", json!({"prompt": "x".repeat(400)}).to_string(), "length is 100 tokens"),
        ("/v1/chat/completions", chat("hi", &json!({"max_tokens": 99})).to_string(), "99 output"),
        ("/v1/completions", json!({"prompt": "x", "n": 0}).to_string(), "n must be"),
        ("/slowdown?factor=-1", String::new(), "factor"),
    ] {
        let response = server.send(Method::POST, path, body).await;
        assert_eq!(response.status(), 400, "{reason}");
        let answer: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(answer["error"]["code"], 400);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn every_answer_says_who_gave_it() {
    let server = Server::start(|options| "pod-7".clone_into(&mut options.pod_name)).await;
    for path in ["/health", "/v1/models", "/metrics", "/nowhere", "/v1/completions"] {
        let response = server.send(Method::GET, path, String::new()).await;
        let port = server.address.rsplit_once(':').unwrap().1;
        assert_eq!(response.headers()["x-inference-pod"], "pod-7", "{path}");
        assert_eq!(response.headers()["x-inference-port"], port, "{path}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks() {
    for stream in [true, false] {
        let server = Server::start(|options| options.time_scale = 1.0).await;
        let body = chat("stay", &json!({"stream": stream, "max_tokens": 100_000}));
        let request = server.post("/v1/chat/completions", &body);
        if stream {
            let mut response = request.await;
            response.body_mut().frame().await.unwrap().unwrap();
            assert!(server.metric("vllm:kv_cache_usage_perc").await > 0.0);
            drop(response);
        } else {
            tokio::select! {
                _ = request => unreachable!("the answer takes minutes"),
                () = server.until("vllm:num_requests_running", 1.0) => {}
            }
        }
        server.until("vllm:kv_cache_usage_perc", 0.0).await;
        server.until("vllm:num_requests_running", 0.0).await;
    }
}

#[tokio::test]
async fn shutdown_breaks_off_streams_and_ends_the_server() {
    let server = Server::start(|options| options.time_scale = 1.0).await;
    let body = chat("stay", &json!({"stream": true, "max_tokens": 100_000}));
    let mut response = server.post("/v1/chat/completions", &body).await;
    response.body_mut().frame().await.unwrap().unwrap();
    server.shutdown.cancel();
    assert!(response.into_body().collect().await.is_err());
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_metrics_page_has_the_names_and_labels_of_a_recorded_one() {
    let server = Server::start(|_| {}).await;
    let body = chat("hello", &json!({}));
    server.post_json("/v1/chat/completions", &body).await;
    let page = server.get("/metrics").await;
    let recorded = fixture("metrics-loaded.txt");
    let head = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    let known: BTreeSet<_> = recorded.lines().map(head).collect();
    let families: Vec<_> = recorded.lines().filter(|line| line.starts_with("# TYPE")).collect();
    for line in page.lines() {
        if line.starts_with("vllm:cache_config_info") {
            assert!(
                line.contains("block_size=\"16\"") && line.contains("num_gpu_blocks=\"29205\"")
            );
        } else if line.starts_with("# TYPE") {
            assert!(families.contains(&line), "{line}");
        } else if !line.starts_with('#') {
            assert!(known.contains(&head(line)), "{line}");
        }
    }
    for (name, value) in [
        ("vllm:generation_tokens_total", 8.0),
        ("vllm:time_to_first_token_seconds_count", 1.0),
        ("vllm:inter_token_latency_seconds_count", 7.0),
        ("vllm:e2e_request_latency_seconds_count", 1.0),
    ] {
        assert!((server.metric(name).await - value).abs() < f64::EPSILON, "{name}");
    }
    assert!(page.contains("finished_reason=\"length\",model_name=\"tiny\"} 1.0"));
}

#[tokio::test]
async fn a_slowdown_is_taken_at_run_time() {
    let server = Server::start(|_| {}).await;
    let sum = "vllm:inter_token_latency_seconds_sum";
    let body = chat("hi", &json!({"max_tokens": 500}));
    server.post_json("/v1/chat/completions", &body).await;
    let before = server.metric(sum).await;
    let answer = text(server.send(Method::POST, "/slowdown?factor=1.6", String::new()).await).await;
    assert_eq!(answer, r#"{"factor":1.6}"#);
    server.post_json("/v1/chat/completions", &body).await;
    let ratio = (server.metric(sum).await - before) / before;
    assert!((ratio - 1.6).abs() < 0.03, "{ratio}");
}
