//! Bodies of every size pass as they are, byte by byte, in both directions.

use harness::{Engine, Recorder, chat_of_bytes, post, post_with};

use crate::site::{endpoints, sites};

const CHAT: &str = "/v1/chat/completions";

/// An engine that takes prompts of half a million tokens, and quickly.
async fn roomy_engine() -> Engine {
    Engine::start_with("H100", "e0", |options| {
        options.engine.max_model_len = 1 << 20;
        options.engine.kv_blocks = Some(1 << 17);
        options.engine.max_num_batched_tokens = 1 << 16;
        options.time_scale = 20_000.0;
    })
    .await
}

#[tokio::test]
async fn prompts_of_a_kilobyte_to_two_megabytes_are_answered() {
    let engines = [roomy_engine().await];
    for site in sites(endpoints(&engines)).await {
        for length in [1 << 10, 100 << 10, 2_000_000, 2 << 20] {
            let plain = chat_of_bytes(length);
            let stream = plain.replacen(r#""ignore_eos":true"#, r#""stream" : true  "#, 1);
            for body in [plain, stream] {
                assert_eq!(body.len(), length);
                let answer = post(&site.address, CHAT, body).await;
                let said = &answer.text()[..answer.text().len().min(500)];
                assert_eq!(answer.status, 200, "{}, {length} bytes: {said}", site.name);
                assert_eq!(answer.header("x-inference-pod"), "e0", "{}", site.name);
            }
        }
        site.quiet(&engines).await;
    }
}

/// What no parser would write again as it was: order, spaces, escapes, numbers, unknown members,
/// members that stand twice, and a line end at the end.
fn unusual(length: usize) -> Vec<u8> {
    let mut body = String::from(
        "{ \"zeta\" :1.50e+3, \"n\": 1,\"n\":1,\t\"messages\":[{\"role\":\"user\",\
         \"content\":\"caf\\u00e9 \u{1f600} \\/ ",
    );
    body.push_str(&"äöü ".repeat(length / 7));
    body.push_str("\"}],\"model\" : \"m\",\"kv_transfer_params\":{\"do_remote\":null}}\r\n");
    body.into_bytes()
}

#[tokio::test]
async fn bytes_are_the_same_at_both_ends() {
    let answer = unusual(40_000);
    let endpoint = Recorder::start("e0", "application/json", &answer).await;
    for site in sites([endpoint.endpoint()]).await {
        for length in [10, 1_000, 100_000, 1_900_000] {
            let sent = unusual(length);
            let headers = [("x-custom", "kept"), ("authorization", "Bearer key")];
            let path = "/v1/chat/completions?trace=1";
            let got = post_with(&site.address, path, &headers, sent.clone()).await.whole().await;
            assert_eq!(got.status, 200, "{}, {length}", site.name);
            assert!(got.body == answer, "{}: the answer of {length} has changed", site.name);
            let seen = endpoint.seen().pop().unwrap();
            assert!(seen.body == sent, "{}: the request of {length} has changed", site.name);
            assert_eq!(seen.path, path, "{}", site.name);
            assert_eq!(seen.headers["x-custom"], "kept", "{}", site.name);
            assert_eq!(seen.headers["authorization"], "Bearer key", "{}", site.name);
        }
    }
}

#[tokio::test]
async fn the_bytes_of_a_stream_are_the_same_at_both_ends() {
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}], \"x\" : 1}\r\n\r\n\
                  : a comment\n\nevent: ping\ndata:{}\n\ndata: [DONE]\n\n";
    let endpoint = Recorder::start("e0", "text/event-stream", stream.as_bytes()).await;
    for site in sites([endpoint.endpoint()]).await {
        let got = post(&site.address, CHAT, unusual(10)).await;
        assert_eq!(got.text(), stream, "{}", site.name);
    }
}
