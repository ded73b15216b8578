//! Reads a generation request: tokens, block hashes, and how long its answers will be.

use std::sync::Arc;

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rand_distr::StandardNormal;
use serde::Deserialize;
use twox_hash::XxHash3_64;
use types::Api;

use super::{failure::Failure, live::Server};
use crate::profile::BLOCK_TOKENS;

/// Bytes of prompt text, or of a token id, that count as one token.
const TOKEN_BYTES: usize = 4;
/// Bytes that one KV block covers.
const BLOCK_BYTES: usize = BLOCK_TOKENS as usize * TOKEN_BYTES;
/// Output bound of `/v1/completions` where the caller gives none.
const COMPLETION_TOKENS: u32 = 16;
/// Most answers to one prompt.
const MAX_N: u32 = 128;
/// Spread of the length of answers that end of themselves: standard deviation of its logarithm.
const LENGTH_SD: f64 = 0.8;

/// One request, ready for the engine.
#[derive(Debug)]
pub(super) struct Job {
    /// One per answer: those to the first prompt, then those to the next.
    pub(super) parts: Vec<Part>,
    /// Answers per prompt.
    pub(super) n: usize,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// One answer of a request.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) prompt_tokens: u32,
    /// Chain hash of each full block of the prompt.
    pub(super) blocks: Arc<[u64]>,
    pub(super) output_tokens: u32,
    /// Whether the answer ends at the caller's bound and not of itself.
    pub(super) is_cut: bool,
    /// Seed of its text.
    pub(super) seed: u64,
}

/// The fields of both APIs that matter here.
#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    prompt: Option<Prompt>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    n: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Pieces(Vec<Piece>),
}

/// One piece of a message; only text counts.
#[derive(Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    IdLists(Vec<Vec<u32>>),
}

/// Reads the body of a request to `api`.
pub(super) fn read(api: Api, body: &[u8], server: &Server) -> Result<Job, Failure> {
    let body: Body = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let served = &server.options.model;
    if let Some(model) = body.model.as_ref().filter(|model| *model != served) {
        return Err(Failure::unknown_model(model, served));
    }
    let prompts = match api {
        Api::Chat => vec![chat_bytes(body.messages.as_deref())?],
        Api::Completions => {
            let prompt = body.prompt.as_ref().ok_or_else(|| Failure::missing("prompt"))?;
            completion_bytes(prompt)
        }
    };
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(Failure::bad_request("The prompt is empty.".to_owned(), "prompt"));
    }
    let n = body.n.unwrap_or(1);
    if !(1..=MAX_N).contains(&n) {
        return Err(Failure::bad_request(format!("n must be in 1..={MAX_N}, got {n}."), "n"));
    }
    let limit = server.core.lock().engine.max_model_len();
    let mut parts = Vec::with_capacity(prompts.len() * n as usize);
    for prompt in &prompts {
        let part = read_part(api, prompt, &body, server, limit)?;
        let seeds = (0..u64::from(n)).map(|index| part.seed.wrapping_add(index));
        parts.extend(seeds.map(|seed| Part { seed, ..part.clone() }));
    }
    let include_usage = body.stream_options.and_then(|options| options.include_usage);
    Ok(Job {
        parts,
        n: n as usize,
        stream: body.stream.unwrap_or(false),
        include_usage: include_usage.unwrap_or(false),
    })
}

/// The answer to one prompt, given as its bytes.
fn read_part(
    api: Api,
    prompt: &[u8],
    body: &Body,
    server: &Server,
    limit: u32,
) -> Result<Part, Failure> {
    let prompt_tokens = prompt.len().div_ceil(TOKEN_BYTES) as u32;
    let asked = body.max_completion_tokens.or(body.max_tokens).map(|bound| bound.max(1));
    let room = limit.saturating_sub(prompt_tokens);
    let bound = asked.unwrap_or(match api {
        Api::Chat => room.max(1),
        Api::Completions => COMPLETION_TOKENS,
    });
    if bound > room {
        return Err(Failure::too_long(limit, prompt_tokens.into(), bound.into()));
    }
    let seed = XxHash3_64::oneshot_with_seed(server.options.engine.seed, prompt);
    let drawn = draw_length(seed, server.options.mean_output_tokens);
    let natural = drawn.max(body.min_tokens.unwrap_or(1));
    let is_cut = body.ignore_eos.unwrap_or(false) || natural >= bound;
    Ok(Part {
        prompt_tokens,
        blocks: chain(&server.options.model, prompt),
        output_tokens: if is_cut { bound } else { natural },
        is_cut,
        seed,
    })
}

/// Length at which an answer ends of itself: lognormal with this mean, the same for the same seed.
fn draw_length(seed: u64, mean_tokens: f64) -> u32 {
    let normal: f64 = SmallRng::seed_from_u64(seed).sample(StandardNormal);
    let length = mean_tokens * (LENGTH_SD * normal - LENGTH_SD * LENGTH_SD / 2.0).exp();
    (length.round() as u32).max(1)
}

/// Roles and texts of the messages, one after the other.
fn chat_bytes(messages: Option<&[Message]>) -> Result<Vec<u8>, Failure> {
    let messages = messages.ok_or_else(|| Failure::missing("messages"))?;
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend_from_slice(message.role.as_bytes());
        match &message.content {
            Some(Content::Text(text)) => bytes.extend_from_slice(text.as_bytes()),
            Some(Content::Pieces(pieces)) => {
                bytes.extend(pieces.iter().flat_map(|piece| piece.text.bytes()));
            }
            None => {}
        }
    }
    Ok(bytes)
}

/// One prompt per text or list of ids.
fn completion_bytes(prompt: &Prompt) -> Vec<Vec<u8>> {
    let of_ids = |ids: &Vec<u32>| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    match prompt {
        Prompt::Text(text) => vec![text.clone().into_bytes()],
        Prompt::Ids(ids) => vec![of_ids(ids)],
        Prompt::Texts(texts) => texts.iter().map(|text| text.clone().into_bytes()).collect(),
        Prompt::IdLists(lists) => lists.iter().map(of_ids).collect(),
    }
}

/// Chain hash of each full block of `prompt`, apart for each `model`.
fn chain(model: &str, prompt: &[u8]) -> Arc<[u64]> {
    let mut hash = XxHash3_64::oneshot(model.as_bytes());
    let blocks = prompt.chunks_exact(BLOCK_BYTES);
    blocks
        .map(|block| {
            hash = XxHash3_64::oneshot_with_seed(hash, block);
            hash
        })
        .collect()
}

fn malformed(error: &serde_json::Error) -> Failure {
    let kind = if error.is_data() { "value_error" } else { "json_invalid" };
    Failure::malformed(format!(
        "[{{'type': '{kind}', 'loc': ('body', {}), 'msg': 'JSON decode error', 'ctx': {{'error': \
         '{error}'}}}}]",
        error.column()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_blocks_as_far_as_they_agree() {
        let (long, mut other) = (vec![7; 1000], vec![7; 1000]);
        other[640] = 8;
        let (a, b) = (chain("m", &long), chain("m", &other));
        assert_eq!((a.len(), b.len()), (15, 15));
        assert_eq!(a.iter().zip(&*b).take_while(|(x, y)| x == y).count(), 10);
        assert_ne!(chain("n", &long)[0], a[0]);
    }

    #[test]
    fn answers_have_the_mean_length_asked_for() {
        let total: u64 = (0..20_000).map(|seed| u64::from(draw_length(seed, 200.0))).sum();
        assert!((total as f64 / 20_000.0 - 200.0).abs() < 6.0);
    }
}
