//! Which requests are read, what is found in them, and which are refused how.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn head(api: Api) -> Head {
    Head {
        api,
        id: "r".into(),
        slo: Slo::default(),
        scope: None,
        session: None,
        subset: None,
        explain: false,
    }
}

fn chat(body: &str) -> Result<Request, BodyError> {
    read_request(head(Api::Chat), body.as_bytes())
}

fn completion(body: &str) -> Result<Request, BodyError> {
    read_request(head(Api::Completions), body.as_bytes())
}

/// Blocks of a chat with these messages, as JSON.
fn blocks(messages: &str) -> Arc<[u64]> {
    chat(&format!(r#"{{"model":"m","messages":[{messages}]}}"#)).unwrap().blocks
}

fn blocks_with(members: &str) -> Arc<[u64]> {
    let messages = r#""messages":[{"role":"user","content":"hello"}]"#;
    chat(&format!(r#"{{"model":"m",{messages}{members}}}"#)).unwrap().blocks
}

#[test]
fn a_chat_request_is_read() {
    let request = chat(
        r#" {"model":"llama","stream":true,"max_tokens":64,"temperature":0.5,
            "messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],
            "metadata":{"model":"other","stream":false,"messages":[]}} "#,
    )
    .unwrap();
    assert_eq!((&*request.model, request.stream), ("llama", true));
    assert_eq!((request.max_tokens, request.prompt_tokens), (Some(64), None));
    assert_eq!(request.blocks.len(), 1);
    assert!((20..40).contains(&request.prompt_bytes));
}

#[test]
fn members_may_come_in_any_order_and_the_last_of_equals_counts() {
    let one =
        r#"{"model":"m","cache_salt":"s","stream":true,"tools":[1],"messages":[{"content":"a"}]}"#;
    let other = r#"{"messages":[{"content":"never mind"}],"messages":[{"content":"a"}],"tools":[2],
        "tools":[1],"stream":false,"stream":true,"model":"x","cache_salt":"t","cache_salt":"s","model":"m"}"#;
    let (one, other) = (chat(one).unwrap(), chat(other).unwrap());
    assert_eq!((&one.model, one.stream, &one.blocks), (&other.model, other.stream, &other.blocks));
    assert_eq!(one.prompt_bytes, other.prompt_bytes);
}

#[test]
fn what_the_engine_puts_before_the_prompt_separates_it() {
    let plain = blocks_with("");
    for members in
        [r#","tools":[{"type":"function"}]"#, r#","cache_salt":"a""#, r#","model":"other""#]
    {
        assert!(!blocks_with(members).contains(&plain[0]), "{members}");
        assert_eq!(blocks_with(members), blocks_with(members));
    }
    assert_ne!(blocks_with(r#","tools":[1]"#)[1], blocks_with(r#","tools":[2]"#)[1]);
    for members in [r#","tools":null"#, r#","cache_salt":null"#, r#","seed":1,"stream":true"#] {
        assert_eq!(blocks_with(members), plain, "{members}");
    }
}

#[test]
fn a_longer_conversation_starts_with_the_blocks_of_the_shorter() {
    let turn = format!(r#"{{"role":"user","content":"{}"}}"#, "abcdefgh".repeat(100));
    let short = blocks(&turn);
    let long = blocks(&format!("{turn},{{\"role\":\"assistant\",\"content\":\"yes\"}},{turn}"));
    assert_eq!(short.len(), 4);
    assert_eq!(short[..3], long[..3]);
    assert_ne!(short[3], long[3]);
}

#[test]
fn equal_texts_in_other_notations_are_equal() {
    let text = blocks(r#"{"role":"user","content":"é\nb"}"#);
    for same in [
        r#"{"role":"user","content":"\u00e9\u000ab"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"é\nb"}]}"#,
        r#"{"role":"user","content":[{"text":"é","cache_control":{"type":"ephemeral"}},{"text":"b"}]}"#,
        r#"{"role":"user","content":["é","b"],"tool_calls":null,"name":null}"#,
    ] {
        assert_eq!(blocks(same), text, "{same}");
    }
    for other in [
        r#"{"role":"system","content":"é\nb"}"#,
        r#"{"role":"user","name":"eve","content":"é\nb"}"#,
        r#"{"role":"user","content":"é\nb","tool_calls":[{"id":"1"}]}"#,
        r#"{"role":"user","content":"é"},{"role":"user","content":"\nb"}"#,
        r#"{"role":"user"}"#,
        r#"{"role":"user","content":null}"#,
    ] {
        assert_ne!(blocks(other), text, "{other}");
    }
}

#[test]
fn images_count_by_identity_not_by_size() {
    let image = |url: &str| {
        chat(&format!(
            r#"{{"model":"m","messages":[{{"content":[{{"type":"text","text":"what?"}},
                {{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#
        ))
        .unwrap()
    };
    let (small, big) = (image("data:,a"), image(&format!("data:,{}", "a".repeat(100_000))));
    assert_eq!(small.prompt_bytes, big.prompt_bytes);
    assert_ne!(small.blocks, big.blocks);
    assert_eq!(small.blocks, image("data:,a").blocks);
}

#[test]
fn a_lone_surrogate_is_text_like_any_other() {
    let lone = blocks(r#"{"role":"user","content":"a\ud800"}"#);
    assert_ne!(lone, blocks(r#"{"role":"user","content":"a"}"#));
    assert_eq!(lone, blocks(r#"{"role":"user","content":[{"text":"a\uD800"}]}"#));
    let body = r#"{"\ud800":"\udfff","model":"m","prompt":["\ud800","\udc00"],"user":"\ud800"}"#;
    assert!(completion(body).is_ok());
    assert!(completion(r#"{"model":"m","prompt":"\ud83d\ude00"}"#).is_ok());
}

#[test]
fn prompts_may_be_text_or_token_ids() {
    let prompt = |json: &str| completion(&format!(r#"{{"model":"m","prompt":{json}}}"#)).unwrap();
    for (json, bytes, tokens) in [
        (r#""hello""#, 5, None),
        (r#"["hello"]"#, 5, None),
        (r#"["hello", "you"]"#, 9, None),
        ("[1, 2, 4294967295]", 12, Some(3)),
        ("[[1,2],[3]]", 12, Some(3)),
        ("[[]]", 0, Some(0)),
    ] {
        let request = prompt(json);
        assert_eq!((request.prompt_bytes, request.prompt_tokens), (bytes, tokens), "{json}");
    }
    assert_ne!(prompt("[1,2]").blocks, prompt("[2,1]").blocks);
    assert_ne!(prompt(r#"["ab"]"#).blocks, prompt(r#"["a","b"]"#).blocks);
}

#[test]
fn the_newer_token_limit_wins_for_chat() {
    let limit = |members: &str| {
        chat(&format!(r#"{{"model":"m","messages":[{{}}]{members}}}"#)).unwrap().max_tokens
    };
    assert_eq!(limit(r#","max_completion_tokens":7,"max_tokens":9"#), Some(7));
    assert_eq!(limit(r#","max_completion_tokens":null,"max_tokens":9"#), Some(9));
    for none in ["null", "-1", "1.5", "-2.0"] {
        assert_eq!(limit(&format!(r#","max_tokens":{none}"#)), None, "{none}");
    }
    assert_eq!(limit(r#","max_tokens":16.0"#), Some(16));
    assert_eq!(limit(r#","max_tokens":99999999999"#), Some(u32::MAX));
    let text = r#"{"model":"m","prompt":"a","max_completion_tokens":7,"max_tokens":9}"#;
    assert_eq!(completion(text).unwrap().max_tokens, Some(9));
}

#[test]
fn what_is_missing_is_named() {
    for (api, body, field) in [
        (Api::Chat, r#"{"messages":[{}]}"#, "model"),
        (Api::Chat, r#"{"model":null,"messages":[{}]}"#, "model"),
        (Api::Chat, r#"{"model":"m","prompt":"a"}"#, "messages"),
        (Api::Chat, r#"{"model":"m","messages":[{}],"messages":null}"#, "messages"),
        (Api::Completions, r#"{"model":"m","messages":[{}]}"#, "prompt"),
        (Api::Completions, r#"{"model":"m","prompt":null}"#, "prompt"),
    ] {
        let error = read_request(head(api), body.as_bytes()).unwrap_err();
        assert_eq!(error, BodyError::Missing { field }, "{body}");
    }
}

#[test]
fn what_is_of_the_wrong_type_is_named_and_not_quoted() {
    for (body, field) in [
        (r#"{"model":"","messages":[{}]}"#, "model"),
        (r#"{"model":7,"messages":[{}]}"#, "model"),
        (r#"{"model":"\ud800","messages":[{}]}"#, "model"),
        (r#"{"model":"m","stream":"secret"}"#, "stream"),
        (r#"{"model":"m","max_tokens":"secret"}"#, "max_tokens"),
        (r#"{"model":"m","max_completion_tokens":["secret"]}"#, "max_completion_tokens"),
        (r#"{"model":"m","cache_salt":{"secret":1}}"#, "cache_salt"),
        (r#"{"model":"m","messages":[]}"#, "messages"),
        (r#"{"model":"m","messages":"secret"}"#, "messages"),
        (r#"{"model":"m","messages":["secret"]}"#, "messages"),
        (r#"{"model":"m","messages":[{"content":17}]}"#, "messages"),
        (r#"{"model":"m","messages":[{"content":[["secret"]]}]}"#, "messages"),
        (r#"{"model":"m","messages":[{"content":[{"text":{"secret":1}}]}]}"#, "messages"),
    ] {
        let error = chat(body).unwrap_err();
        assert!(matches!(error, BodyError::Invalid { field: f, .. } if f == field), "{body}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for prompt in
        ["7", "{}", "[]", "[-1]", "[1,\"a\"]", "[\"a\",1]", "[\"a\",[1]]", "[1.5]", "[null]"]
    {
        let error = completion(&format!(r#"{{"model":"m","prompt":{prompt}}}"#)).unwrap_err();
        assert!(matches!(error, BodyError::Invalid { field: "prompt", .. }), "{prompt}");
    }
}

#[test]
fn what_is_not_json_says_where() {
    let json = |body: &str| match chat(body).unwrap_err() {
        BodyError::Json { line, column, message } => (line, column, message),
        other => panic!("{body}: {other}"),
    };
    assert_eq!(json("{\"model\":\"m\",\n\"messages\":[}").0, 2);
    assert!(json("").2.contains("EOF"));
    assert!(json("[1]").2.contains("expected an object"));
    assert!(json(r#"{"model":"m","messages":[{}]} x"#).2.contains("trailing"));
    assert!(json(r#"{"model":"m","messages":[{"content":"secret"#).2.contains("EOF"));
    assert!(json(&format!(r#"{{"x":{}"#, "[".repeat(100_000))).2.contains("EOF"));
    let error = chat(r#"{"secret":"secret" "#).unwrap_err().to_string();
    assert!(
        error.starts_with("the request body is not valid at line 1") && !error.contains("secret")
    );
}

#[test]
fn a_byte_order_mark_and_deep_unknown_members_are_tolerated() {
    assert!(chat("\u{feff}{\"model\":\"m\",\"messages\":[{}]}").is_ok());
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    assert!(chat(&format!(r#"{{"x":{deep},"model":"m","messages":[{{}}]}}"#)).is_ok());
}

/// A string as JSON, with every character escaped.
fn escaped(text: &str) -> String {
    text.encode_utf16().fold(String::new(), |mut json, unit| {
        let _ = write!(json, "\\u{unit:04x}");
        json
    })
}

proptest! {
    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_request(head(Api::Chat), &bytes);
        let _ = read_request(head(Api::Completions), &bytes);
    }

    #[test]
    fn escapes_make_no_difference(text in any::<String>()) {
        let plain = serde_json::to_string(&text).unwrap();
        let of = |json: &str| completion(&format!(r#"{{"model":"m","prompt":{json}}}"#)).unwrap();
        let (plain, escaped) = (of(&plain), of(&format!("\"{}\"", escaped(&text))));
        prop_assert_eq!(plain.prompt_bytes as usize, text.len());
        prop_assert_eq!(plain.blocks, escaped.blocks);
    }
}
