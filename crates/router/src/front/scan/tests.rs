//! What the scanner sees, whatever the bytes and however they are cut.

use proptest::prelude::*;

use super::*;

/// A chat stream of vLLM 0.32.0: a chunk with the role, eight with tokens, one with usage.
const STREAM: &[u8] = include_bytes!("../../../tests/fixtures/chat-stream.sse");
/// The same engine's answer in one piece.
const WHOLE: &[u8] = include_bytes!("../../../tests/fixtures/chat.json");

/// Everything seen in `bytes`, given in pieces of `size`.
fn scan(kind: Kind, bytes: &[u8], size: usize) -> Seen {
    pieces(kind, bytes.chunks(size.max(1)))
}

fn pieces<'a>(kind: Kind, pieces: impl Iterator<Item = &'a [u8]>) -> Seen {
    let mut scanner = ResponseScanner::new(kind);
    let mut total = Seen::default();
    let mut count = |seen: Seen| {
        total.add(Chunk { tokens: seen.tokens, usage: seen.usage, error: seen.error });
        total.done |= seen.done;
    };
    for piece in pieces {
        count(scanner.push(piece));
    }
    count(scanner.finish());
    assert_eq!(scanner.finish(), Seen::default());
    total
}

fn events(text: &str) -> Seen {
    let whole = scan(Kind::EventStream, text.as_bytes(), text.len());
    for size in 1..text.len() {
        assert_eq!(scan(Kind::EventStream, text.as_bytes(), size), whole, "cut at {size}");
    }
    whole
}

const USAGE: Usage = Usage { prompt_tokens: 22, completion_tokens: 8, cached_tokens: None };

#[test]
fn a_real_stream_tells_the_same_at_every_cut() {
    let expected = Seen { tokens: 8, usage: Some(USAGE), done: true, error: false };
    for size in 1..=STREAM.len() {
        assert_eq!(scan(Kind::EventStream, STREAM, size), expected, "cut at {size}");
    }
}

#[test]
fn a_token_is_seen_with_the_line_that_carries_it() {
    let mut scanner = ResponseScanner::new(Kind::EventStream);
    let role = STREAM.windows(2).position(|pair| pair == b"\n\n").unwrap() + 2;
    assert_eq!(scanner.push(&STREAM[..role]), Seen::default());
    let line = STREAM[role..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(scanner.push(&STREAM[role..role + line]).tokens, 1);
}

#[test]
fn a_whole_answer_tells_its_usage_at_the_end() {
    let expected = Seen { tokens: 0, usage: Some(USAGE), done: true, error: false };
    for size in [1, 7, 100, WHOLE.len()] {
        assert_eq!(scan(Kind::Json, WHOLE, size), expected, "cut at {size}");
    }
    let cut = scan(Kind::Json, &WHOLE[..WHOLE.len() - 1], 100);
    assert_eq!(cut, Seen::default());
    let error = scan(Kind::Json, br#"{"error":{"message":"no"}}"#, 100);
    assert_eq!(error, Seen { error: true, ..Seen::default() });
    assert_eq!(scan(Kind::Other, WHOLE, 100), Seen::default());
}

#[test]
fn an_endless_json_answer_is_given_up() {
    let mut scanner = ResponseScanner::new(Kind::Json);
    for _ in 0..9 {
        assert_eq!(scanner.push(&vec![b' '; 1 << 20]), Seen::default());
    }
    scanner.push(WHOLE);
    assert_eq!(scanner.finish(), Seen::default());
}

#[test]
fn usage_may_come_with_empty_choices_or_with_every_chunk() {
    let last = events(
        "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n\
         data: {\"choices\":[{\"text\":\"b\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n\
         data: {\"choices\":[],\"usage\":null}\n\n",
    );
    let usage = Usage { prompt_tokens: 5, completion_tokens: 2, cached_tokens: None };
    assert_eq!(last, Seen { tokens: 2, usage: Some(usage), done: false, error: false });
}

#[test]
fn comments_and_odd_spacing_change_nothing() {
    let seen = events(
        "\u{feff}: ping\r\n\r\nid: 7\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n\
         retry: 10\rdata:  {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\r\
         :\n\ndata\n\ndata:\n\ndatum: {\"choices\":[{\"text\":\"no\"}]}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(seen, Seen { tokens: 2, usage: None, done: true, error: false });
}

#[test]
fn an_event_of_several_lines_is_one_object() {
    let seen = events(
        "data: {\ndata: \"choices\": [{\"delta\":\ndata: {\"content\": \"a\"}}]\ndata: }\n\n\
         data: [DONE]\n\n",
    );
    assert_eq!(seen, Seen { tokens: 1, usage: None, done: true, error: false });
}

#[test]
fn a_stream_that_ends_without_its_last_empty_line_is_still_read() {
    let seen = events("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]");
    assert_eq!(seen, Seen { tokens: 1, usage: None, done: true, error: false });
    assert_eq!(events("data: {\ndata: \"choices\":[{\"text\":\"a\"}]}").tokens, 1);
}

#[test]
fn errors_inside_a_stream_are_seen() {
    assert!(events("data: {\"error\":{\"message\":\"boom\"}}\n\ndata: [DONE]\n\n").error);
    assert!(events("event: error\ndata: boom\n\n").error);
    assert!(events("event:error\r\ndata: {\"message\":\"boom\"}\r\n\r\n").error);
    assert!(!events("event: message\ndata: {\"choices\":[],\"error\":null}\n\n").error);
}

#[test]
fn an_event_above_the_bound_counts_as_one_token() {
    let mut text = b"data: {\"choices\":[{\"text\":\"".to_vec();
    text.resize(3 << 20, b'x');
    text.extend_from_slice(b"\"}]}\n\n: ");
    text.resize(5 << 20, b'c');
    text.extend_from_slice(b"\ndata: {\ndata: \"x\": \"");
    text.resize(text.len() + MAX_LINE_BYTES - 100, b'y');
    text.extend_from_slice(b"\",\ndata: \"z\": \"");
    text.resize(text.len() + 1_000, b'z');
    text.extend_from_slice(b"\"}\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\n");
    for size in [1_000, 1 << 20, text.len()] {
        assert_eq!(scan(Kind::EventStream, &text, size).tokens, 3, "cut at {size}");
    }
}

#[test]
fn the_kind_follows_from_the_content_type() {
    assert_eq!(Kind::of(Some("Text/Event-Stream; charset=utf-8")), Kind::EventStream);
    assert_eq!(Kind::of(Some("application/json")), Kind::Json);
    assert_eq!(Kind::of(Some("text/html")), Kind::Other);
    assert_eq!(Kind::of(None), Kind::Other);
}

/// Bytes that are more often an event stream than not.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"{\"choices\":[{\"text\":\"a\"}]}".to_vec()),
        Just(b"{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}".to_vec()),
        Just(b"[DONE]".to_vec()),
        Just(b"event: error".to_vec()),
        Just(b"\xEF\xBB\xBF".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_break_it_and_no_cut_changes_it(
        bytes in stream(),
        sizes in prop::collection::vec(1..20_usize, 1..20),
    ) {
        for kind in [Kind::EventStream, Kind::Json, Kind::Other] {
            let whole = pieces(kind, std::iter::once(&bytes[..]));
            let mut rest = &bytes[..];
            let mut sizes = sizes.iter().cycle();
            let cut = pieces(kind, std::iter::from_fn(|| {
                let size = (*sizes.next()?).min(rest.len());
                let (piece, after) = rest.split_at(size);
                rest = after;
                (!piece.is_empty()).then_some(piece)
            }));
            prop_assert_eq!(whole, cut);
        }
    }
}
