//! Answers in the shape of vLLM 0.32, key by key and in its order.

use std::fmt::Write as _;

use types::Api;

use super::{
    live::Server,
    prompt::{Job, Part},
    text::push_word,
};

/// What `system_fingerprint` says.
const FINGERPRINT: &str = "vllm-0.32.0-sim";

/// One answer as it will be told.
#[derive(Debug)]
pub(super) struct Reply {
    api: Api,
    parts: Vec<Part>,
    /// Answers per prompt.
    n: usize,
    /// `"id":…,` up to the model, the same in every chunk and in the whole.
    stamp: Stamp,
}

/// Who answers, and when.
#[derive(Debug)]
struct Stamp {
    id: String,
    created: u64,
    /// The model, as JSON.
    model: String,
}

impl Reply {
    /// The reply to `job`, which is request `number` of `server`.
    pub(super) fn new(server: &Server, api: Api, job: Job, number: u64) -> Self {
        let prefix = if api == Api::Chat { "chatcmpl" } else { "cmpl" };
        let seed = job.parts.first().map_or(0, |part| part.seed);
        let number = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let stamp = Stamp {
            id: format!("{prefix}-{number:016x}"),
            created: server.unix_s(),
            model: quoted(&server.options.model),
        };
        Self { api, parts: job.parts, n: job.n, stamp }
    }

    /// How many answers it has.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Appends the chunk of chat answers that carries the role: it is not a token.
    pub(super) fn push_role(&self, out: &mut String, index: usize) {
        if self.api != Api::Chat {
            return;
        }
        self.open_chunk(out);
        push(
            out,
            format_args!(
                r#","choices":[{{"index":{index},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"prompt_token_ids":null,"prompt_text":null}}"#
            ),
        );
        out.push_str("\n\n");
    }

    /// Appends the chunk of token `token` of answer `index`.
    pub(super) fn push_token(&self, out: &mut String, index: usize, token: u32) {
        let part = &self.parts[index];
        self.open_chunk(out);
        let end = if token + 1 < part.output_tokens { None } else { Some(finish_reason(part)) };
        match self.api {
            Api::Chat => {
                push(out, format_args!(r#","choices":[{{"index":{index},"delta":{{"content":""#));
                push_word(out, part.seed, token);
                out.push_str(r#""},"logprobs":null,"finish_reason":"#);
                match end {
                    None => out.push_str("null"),
                    Some(reason) => push(out, format_args!(r#""{reason}","stop_reason":null"#)),
                }
                out.push_str(r#","token_ids":null}]}"#);
            }
            Api::Completions => {
                push(out, format_args!(r#","choices":[{{"index":{index},"text":""#));
                push_word(out, part.seed, token);
                out.push_str(r#"","logprobs":null,"finish_reason":"#);
                match end {
                    None => out.push_str("null"),
                    Some(reason) => push(out, format_args!(r#""{reason}""#)),
                }
                out.push_str(
                    r#","stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"usage":null}"#,
                );
            }
        }
        out.push_str("\n\n");
    }

    /// Appends the chunk with the usage; `cached` has the cached tokens of each answer.
    pub(super) fn push_usage(&self, out: &mut String, cached: &[u32]) {
        self.open_chunk(out);
        let usage = self.usage(cached, "");
        push(
            out,
            format_args!(r#","choices":[],"usage":{usage},"system_fingerprint":"{FINGERPRINT}"}}"#),
        );
        out.push_str("\n\n");
    }

    /// The answer in one piece; `cached` has the cached tokens of each part.
    pub(super) fn whole(&self, cached: &[u32]) -> String {
        let object = if self.api == Api::Chat { "chat.completion" } else { "text_completion" };
        let mut out = String::new();
        self.open(&mut out, object);
        out.push_str(r#","choices":["#);
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            self.push_choice(&mut out, index, part);
        }
        let usage = self.usage(cached, r#","completion_tokens_details":null"#);
        push(
            &mut out,
            format_args!(
                r#"],"service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{usage}"#
            ),
        );
        out.push_str(match self.api {
            Api::Chat => r#","prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null"#,
            Api::Completions => "",
        });
        out.push_str(r#","kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#);
        out
    }

    /// Appends one whole choice.
    fn push_choice(&self, out: &mut String, index: usize, part: &Part) {
        push(out, format_args!(r#"{{"index":{index},"#));
        out.push_str(match self.api {
            Api::Chat => r#""message":{"role":"assistant","content":""#,
            Api::Completions => r#""text":""#,
        });
        for token in 0..part.output_tokens {
            push_word(out, part.seed, token);
        }
        out.push_str(match self.api {
            Api::Chat => {
                r#"","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}"#
            }
            Api::Completions => "\"",
        });
        let reason = finish_reason(part);
        push(
            out,
            format_args!(
                r#","logprobs":null,"finish_reason":"{reason}","stop_reason":null,"token_ids":null"#
            ),
        );
        out.push_str(match self.api {
            Api::Chat => "",
            Api::Completions => r#","prompt_logprobs":null,"prompt_token_ids":null"#,
        });
        out.push_str(r#","routed_experts":null}"#);
    }

    /// Appends the start of a chunk, up to and with the model.
    fn open_chunk(&self, out: &mut String) {
        let object =
            if self.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
        out.push_str("data: ");
        self.open(out, object);
    }

    fn open(&self, out: &mut String, object: &str) {
        let Stamp { id, created, model } = &self.stamp;
        push(
            out,
            format_args!(
                r#"{{"id":"{id}","object":"{object}","created":{created},"model":{model}"#
            ),
        );
    }

    /// The usage, with `rest` before its closing brace. A prompt counts once however many answers
    /// it has.
    fn usage(&self, cached: &[u32], rest: &str) -> String {
        let prompts = self.parts.iter().step_by(self.n);
        let prompt: u64 = prompts.map(|part| u64::from(part.prompt_tokens)).sum();
        let completion: u64 = self.parts.iter().map(|part| u64::from(part.output_tokens)).sum();
        let cached: u64 = cached.iter().step_by(self.n).map(|tokens| u64::from(*tokens)).sum();
        let total = prompt + completion;
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached}}}{rest}}}"#
        )
    }
}

/// The list of the one model that is served.
pub(super) fn models(model: &str, created: u64, max_model_len: u32) -> String {
    let model = quoted(model);
    format!(
        r#"{{"object":"list","data":[{{"id":{model},"object":"model","created":{created},"owned_by":"vllm","root":{model},"parent":null,"max_model_len":{max_model_len},"permission":[]}}]}}"#
    )
}

fn finish_reason(part: &Part) -> &'static str {
    if part.is_cut { "length" } else { "stop" }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Appends formatted text.
fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}
