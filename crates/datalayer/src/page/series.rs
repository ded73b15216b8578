//! Which metric name of which engine means what.

use super::Engine;

/// What a series tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Series {
    Running,
    Waiting,
    /// Waiting requests of SGLang's decode workers that have no KV blocks yet.
    WaitingForBlocks,
    /// Waiting requests of SGLang's decode workers whose KV is on its way.
    WaitingForKv,
    KvUtilization,
    /// The name that an engine used before; it counts only where the new one is absent.
    KvUtilizationBefore,
    BlockTokens,
    Blocks,
    /// Requests preempted since the start.
    Preemptions,
    /// Block size and count as labels.
    CacheInfo,
    /// One of vLLM's sleep states.
    Sleep,
    /// Triton's requests, by type.
    TritonRequests,
    /// Triton's KV-cache blocks, by type.
    TritonBlocks,
}

/// How the names of an engine are spelled on a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Colon,
    Underscore,
    /// Under Ray, which puts its own prefix first.
    RayColon,
    /// Likewise.
    RayUnderscore,
    /// No prefix, as NIM does.
    Bare,
}

type Names = &'static [(&'static str, Series)];

const VLLM: Names = &[
    ("num_requests_running", Series::Running),
    ("num_requests_waiting", Series::Waiting),
    ("kv_cache_usage_perc", Series::KvUtilization),
    ("gpu_cache_usage_perc", Series::KvUtilizationBefore),
    ("num_preemptions_total", Series::Preemptions),
    ("cache_config_info", Series::CacheInfo),
    ("engine_sleep_state", Series::Sleep),
];

const SGLANG: Names = &[
    ("num_running_reqs", Series::Running),
    ("num_queue_reqs", Series::Waiting),
    ("num_decode_prealloc_queue_reqs", Series::WaitingForBlocks),
    ("num_decode_transfer_queue_reqs", Series::WaitingForKv),
    ("token_usage", Series::KvUtilization),
    ("num_retracted_reqs_total", Series::Preemptions),
    ("num_retracted_requests_total", Series::Preemptions),
    ("page_size", Series::BlockTokens),
    ("num_pages", Series::Blocks),
    ("cache_config_info", Series::CacheInfo),
];

const TRTLLM_SERVE: Names = &[
    ("num_requests_running", Series::Running),
    ("num_requests_waiting", Series::Waiting),
    ("kv_cache_utilization", Series::KvUtilization),
    ("kv_cache_tokens_per_block", Series::BlockTokens),
    ("kv_cache_max_blocks", Series::Blocks),
];

const TRITON: Names = &[
    ("request_metrics", Series::TritonRequests),
    ("kv_cache_block_metrics", Series::TritonBlocks),
];

const TGI: Names = &[("batch_current_size", Series::Running), ("queue_size", Series::Waiting)];

const LLAMA_CPP: Names = &[
    ("requests_processing", Series::Running),
    ("requests_deferred", Series::Waiting),
    ("kv_cache_usage_ratio", Series::KvUtilization),
];

/// Engine and spelling that the start of `line` suggests, and the line without the prefix.
///
/// Most lines of a page end here, so the first byte decides.
#[inline]
pub(super) fn dialect(line: &[u8]) -> Option<(Engine, Form, &[u8])> {
    match line.first()? {
        b'v' => prefixed(Engine::Vllm, line, b"vllm"),
        b's' => prefixed(Engine::Sglang, line, b"sglang"),
        b't' => prefixed(Engine::TrtllmServe, line, b"trtllm")
            .or_else(|| prefixed(Engine::Tgi, line, b"tgi")),
        b'l' => prefixed(Engine::LlamaCpp, line, b"llamacpp"),
        b'r' => match prefixed(Engine::Vllm, line, b"ray_vllm")? {
            (engine, Form::Colon, rest) => Some((engine, Form::RayColon, rest)),
            (engine, _, rest) => Some((engine, Form::RayUnderscore, rest)),
        },
        b'n' => match line.strip_prefix(b"nv_trt_llm_") {
            Some(rest) => Some((Engine::Triton, Form::Underscore, rest)),
            None => Some((Engine::Vllm, Form::Bare, line)),
        },
        b'k' | b'g' | b'c' | b'e' => Some((Engine::Vllm, Form::Bare, line)),
        _ => None,
    }
}

#[inline]
fn prefixed<'a>(engine: Engine, line: &'a [u8], prefix: &[u8]) -> Option<(Engine, Form, &'a [u8])> {
    let (mark, rest) = line.strip_prefix(prefix)?.split_first()?;
    match mark {
        b':' => Some((engine, Form::Colon, rest)),
        b'_' => Some((engine, Form::Underscore, rest)),
        _ => None,
    }
}

/// The series of `engine` whose whole name `text` starts with, and what follows.
#[inline]
pub(super) fn find(engine: Engine, text: &[u8]) -> Option<(Series, &[u8])> {
    let names = match engine {
        Engine::Vllm => VLLM,
        Engine::Sglang => SGLANG,
        Engine::TrtllmServe => TRTLLM_SERVE,
        Engine::Triton => TRITON,
        Engine::Tgi => TGI,
        Engine::LlamaCpp => LLAMA_CPP,
    };
    names.iter().find_map(|(name, series)| {
        // The byte behind the name tells most lines apart without a comparison.
        let (start, rest) = text.split_at_checked(name.len())?;
        let whole = matches!(rest.first()?, b'{' | b' ' | b'\t') && start == name.as_bytes();
        whole.then_some((*series, rest))
    })
}
