//! Replays recorded exchanges of another endpoint picker, and compares what the answers mean.
//!
//! The recordings lie outside the repository, in the folder that `SLACKLINE_CONFORMANCE` names:
//! `ext_proc/scenarios.json` with the messages, `ext_proc/peer-answers.jsonl` with the answers.

#![expect(
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a broken recording should fail loudly, a missing one be told"
)]

use std::{collections::BTreeMap, fs, path::PathBuf};

use bytes::Bytes;
use epp::Options;
use proto::{
    ext_proc::ProcessingRequest,
    value::{Kind, ListValue, Value as MetadataValue},
};
use serde_json::Value;
use tonic::Code;

use crate::{
    drive::{Held, POOL, hold, router_over},
    meaning::{Meaning, destination, headers_of},
    messages::{
        request_body, request_headers, request_trailers, response_body, response_headers,
        response_trailers, with_metadata,
    },
};

/// Exchanges where the peer is wrong and we do the right thing.
const DIFFERENCES: [(&str, &str); 3] = [
    ("request-trailers", "the peer never routes a body that trailers end"),
    ("subset-headers-only", "the peer forgets a subset that came with the headers"),
    ("response-trailers", "the peer holds a body back until the trailers"),
];

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("SLACKLINE_CONFORMANCE").map(PathBuf::from)?;
    Some(folder.join("ext_proc"))
}

fn pairs(headers: &Value) -> Vec<(&str, &str)> {
    headers
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        .collect()
}

fn body(part: &Value) -> Bytes {
    let text = part["body"].as_str().unwrap();
    let times = part["repeat"].as_u64().unwrap_or(0);
    text.replace("@@", &"lorem ipsum ".repeat(usize::try_from(times).unwrap())).into()
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(|value| MetadataValue { kind: Some(kind(value)) }).collect(),
        }),
        other => panic!("no metadata in the recordings is {other}"),
    }
}

fn message(recorded: &Value) -> ProcessingRequest {
    let end = |part: &Value| part["end_of_stream"].as_bool().unwrap();
    let (name, part) =
        recorded.as_object().unwrap().iter().find(|(name, _)| *name != "metadata").unwrap();
    let mut message = match name.as_str() {
        "request_headers" => request_headers(&pairs(&part["headers"]), end(part)),
        "request_body" => request_body(body(part), end(part)),
        "request_trailers" => request_trailers(),
        "response_headers" => response_headers(&pairs(&part["headers"]), end(part)),
        "response_body" => response_body(body(part), end(part)),
        "response_trailers" => response_trailers(),
        other => panic!("unknown message {other}"),
    };
    for (namespace, fields) in recorded["metadata"].as_object().into_iter().flatten() {
        for (key, value) in fields.as_object().unwrap() {
            message = with_metadata(message, namespace, key, kind(value));
        }
    }
    message
}

/// Headers that a recorded answer sets, names in lower case.
fn recorded_headers(mutation: &Value) -> BTreeMap<String, String> {
    let headers = mutation["setHeaders"].as_array().into_iter().flatten();
    headers
        .map(|set| {
            let header = &set["header"];
            let text = |key: &str| header[key].as_str().unwrap_or_default();
            (text("key").to_lowercase(), text("rawValue").to_owned())
        })
        .collect()
}

fn recorded_meaning(answer: &Value) -> Meaning {
    let name = answer.as_object().unwrap().keys().find(|key| *key != "dynamicMetadata").unwrap();
    let response = &answer[name]["response"];
    let piece = &response["bodyMutation"]["streamedResponse"];
    let body = || piece["body"].as_str().unwrap_or_default().to_owned();
    let end_of_stream = piece["endOfStream"].as_bool().unwrap_or(false);
    match name.as_str() {
        "requestHeaders" => {
            let headers = recorded_headers(&response["headerMutation"]);
            let key = "x-gateway-destination-endpoint";
            assert_eq!(answer["dynamicMetadata"]["envoy.lb"][key], headers[key]);
            Meaning::Destination {
                clear_route_cache: response["clearRouteCache"].as_bool().unwrap_or(false),
                content_length: headers.get("content-length").cloned(),
            }
        }
        "requestBody" => Meaning::RequestBody { body: body(), end_of_stream },
        "responseHeaders" => Meaning::ResponseHeaders,
        "responseBody" => Meaning::ResponseBody { body: body(), end_of_stream },
        "responseTrailers" => Meaning::ResponseTrailers,
        "immediateResponse" => Meaning::Immediate {
            status: match answer[name]["status"]["code"].as_str().unwrap() {
                "BadRequest" => 400,
                "TooManyRequests" => 429,
                "ServiceUnavailable" => 503,
                other => panic!("unknown status {other}"),
            },
            reason: recorded_headers(&answer[name]["headers"])
                .remove("x-llm-d-request-dropped-reason"),
        },
        other => panic!("unknown answer {other}"),
    }
}

/// What the peer said to each message, and after which the stream ended.
fn recorded(answers: &Value) -> (Vec<Vec<Meaning>>, usize) {
    let mut meanings = BTreeMap::new();
    let mut end = 0;
    for answer in answers["answers"].as_array().unwrap() {
        let after = usize::try_from(answer["after"].as_u64().unwrap()).unwrap();
        let responses = answer["responses"].as_array().into_iter().flatten();
        meanings.insert(after, responses.map(recorded_meaning).collect::<Vec<_>>());
        if let Some(how) = answer["end"].as_str() {
            assert_eq!(how, "closed, OK");
            end = after;
        }
    }
    let last = meanings.iter().filter(|(_, said)| !said.is_empty()).map(|(at, _)| *at).max();
    let silent = |at| meanings.get(&at).cloned().unwrap_or_default();
    ((0..=last.unwrap_or(0)).map(silent).collect(), end)
}

/// What is right in the exchange called `name` where the peer is not.
fn put_right(name: &str, meanings: &mut [Vec<Meaning>], end: &mut usize, messages: &[Value]) {
    match name {
        "request-trailers" => {
            let text = messages[1]["request_body"]["body"].as_str().unwrap().to_owned();
            meanings[2] = vec![
                Meaning::Destination {
                    clear_route_cache: true,
                    content_length: Some(text.len().to_string()),
                },
                Meaning::RequestBody { body: text, end_of_stream: false },
                Meaning::RequestTrailers,
            ];
        }
        "subset-headers-only" => {
            let reason = Some("rejected-no-endpoints".to_owned());
            meanings[1] = vec![Meaning::Immediate { status: 503, reason }];
            *end = 1;
        }
        "response-trailers" => {
            let held_back = meanings[4].remove(0);
            meanings[3] = vec![held_back];
        }
        _ => {}
    }
}

/// What the comparison of meanings does not see.
fn look_closer(name: &str, held: &Held) {
    for response in held.answers.iter().flatten() {
        if let Some(destination) = destination(response)
            && name == "subset-one"
        {
            assert_eq!(destination, "127.0.0.1:20001");
        }
    }
    if ["bad-json", "no-model", "empty-body"].contains(&name) {
        assert_eq!(headers_of(held.only(1))["content-type"], "application/json", "{name}");
    }
}

#[tokio::test]
async fn exchanges_mean_what_those_of_the_peer_mean() {
    let Some(folder) = folder() else {
        eprintln!("skipped: SLACKLINE_CONFORMANCE names no folder with recordings");
        return;
    };
    let scenarios = fs::read_to_string(folder.join("scenarios.json")).unwrap();
    let scenarios: Vec<Value> = serde_json::from_str(&scenarios).unwrap();
    let answers = fs::read_to_string(folder.join("peer-answers.jsonl")).unwrap();
    let answers: BTreeMap<String, Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|line: Value| (line["name"].as_str().unwrap().to_owned(), line))
        .collect();
    let router = router_over(&POOL);
    let mut differed = Vec::new();
    for scenario in &scenarios {
        let name = scenario["name"].as_str().unwrap();
        let recorded_messages = scenario["messages"].as_array().unwrap();
        let messages: Vec<_> = recorded_messages.iter().map(message).collect();
        let held = hold(Options::default(), &router, &messages).await;
        let (mut meanings, mut end) = recorded(&answers[name]);
        meanings.resize(held.answers.len().max(meanings.len()), Vec::new());
        if DIFFERENCES.iter().any(|(differs, _)| *differs == name) {
            assert_ne!(held.meanings(&POOL), meanings, "`{name}` no longer differs");
            differed.push(name);
        }
        put_right(name, &mut meanings, &mut end, recorded_messages);
        assert_eq!(held.meanings(&POOL), meanings, "{name}");
        assert_eq!(held.end, (end, Code::Ok, String::new()), "{name}");
        look_closer(name, &held);
    }
    assert_eq!(differed.len(), DIFFERENCES.len());
    assert_eq!(answers.len(), scenarios.len());
}
