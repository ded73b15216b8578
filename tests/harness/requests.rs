//! Requests that tests send, and how streams are read.

use serde_json::{Value, json};

/// Model that the simulated engines serve.
const MODEL: &str = "llama-3.1-8b";

/// A chat request with `content`, for `max_tokens` tokens of answer.
pub fn chat(content: &str, max_tokens: u32) -> Value {
    json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "ignore_eos": true,
    })
}

/// `request`, streamed and with its usage.
#[must_use]
pub fn streamed(mut request: Value) -> Value {
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    request
}

/// A streamed request whose answer takes far longer than any test.
pub fn slow_chat() -> Value {
    streamed(chat("tell me everything there is to tell", 100_000))
}

/// A chat request whose body has exactly `length` bytes, at least 200.
///
/// # Panics
/// If `length` is too short.
pub fn chat_of_bytes(length: usize) -> String {
    let frame = chat("", 4).to_string();
    let content: String = (0..)
        .flat_map(|n: u32| format!("{n} ").into_bytes())
        .map(char::from)
        .take(length.checked_sub(frame.len()).unwrap())
        .collect();
    let body = frame.replacen(r#""content":"""#, &format!(r#""content":"{content}""#), 1);
    assert_eq!(body.len(), length);
    body
}

/// The JSON of each event of a stream that ended with its end marker.
///
/// # Panics
/// If it did not, or an event holds no JSON.
pub fn events(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "no end marker: {text}");
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}
