//! The metrics page, with the names and labels of vLLM 0.32.

use std::fmt::Write as _;

use super::live::Server;
use crate::{engine::Gauges, profile::BLOCK_TOKENS};

/// A family: name, type and help.
type Family = (&'static str, &'static str, &'static str);
/// Where the one sample of a family comes from.
type Source = fn(&Gauges) -> f64;

/// Families with one sample each.
const PLAIN: [(Family, Source); 8] = [
    (
        ("num_requests_running", "gauge", "Number of requests in model execution batches."),
        |gauges| f64::from(gauges.running),
    ),
    (("num_requests_waiting", "gauge", "Number of requests waiting to be processed."), |gauges| {
        f64::from(gauges.waiting)
    }),
    (("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."), |gauges| {
        gauges.kv_utilization
    }),
    (
        (
            "prefix_cache_queries_total",
            "counter",
            "Prefix cache queries, in terms of number of queried tokens.",
        ),
        |gauges| gauges.counts.prefix_queries as f64,
    ),
    (
        (
            "prefix_cache_hits_total",
            "counter",
            "Prefix cache hits, in terms of number of cached tokens.",
        ),
        |gauges| gauges.counts.prefix_hits as f64,
    ),
    (
        ("num_preemptions_total", "counter", "Cumulative number of preemption from the engine."),
        |gauges| gauges.counts.preemptions as f64,
    ),
    (("prompt_tokens_total", "counter", "Number of prefill tokens processed."), |gauges| {
        gauges.counts.prompt_tokens as f64
    }),
    (("generation_tokens_total", "counter", "Number of generation tokens processed."), |gauges| {
        gauges.counts.generation_tokens as f64
    }),
];
const SUCCESS: Family =
    ("request_success_total", "counter", "Count of successfully processed requests.");
const TTFT: Family =
    ("time_to_first_token_seconds", "histogram", "Histogram of time to first token in seconds.");
const ITL: Family =
    ("inter_token_latency_seconds", "histogram", "Histogram of inter-token latency in seconds.");
const E2E: Family =
    ("e2e_request_latency_seconds", "histogram", "Histogram of e2e request latency in seconds.");
const CACHE: Family = ("cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");

/// The page as of now.
pub(super) fn render(server: &Server) -> String {
    let model = escaped(&server.options.model);
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    let mut page = String::with_capacity(12 << 10);
    let now = server.engine_now();
    let mut core = server.core.lock();
    core.advance(now);
    let gauges = core.engine.gauges();
    for (family, value) in PLAIN {
        push_head(&mut page, family);
        push_sample(&mut page, family, &labels, value(&gauges));
    }
    push_head(&mut page, SUCCESS);
    let stats = &core.stats;
    for (reason, count) in
        [("stop", stats.stopped), ("length", stats.cut), ("abort", gauges.counts.aborted)]
    {
        let labels = format!("engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\"");
        push_sample(&mut page, SUCCESS, &labels, count as f64);
    }
    for (family, histogram) in [(TTFT, &stats.ttft), (ITL, &stats.itl), (E2E, &stats.e2e)] {
        push_head(&mut page, family);
        histogram.render(&mut page, family.0, &model);
    }
    drop(core);
    push_cache_config(&mut page, gauges.kv_blocks);
    page
}

fn push_head(page: &mut String, (name, kind, help): Family) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
}

fn push_sample(page: &mut String, (name, ..): Family, labels: &str, value: f64) {
    let _ = writeln!(page, "vllm:{name}{{{labels}}} {value:?}");
}

/// The information family on the KV cache.
fn push_cache_config(page: &mut String, kv_blocks: u32) {
    push_head(page, CACHE);
    let tokens = u64::from(kv_blocks) * u64::from(BLOCK_TOKENS);
    let labels = format!(
        "block_size=\"{BLOCK_TOKENS}\",cache_dtype=\"auto\",\
         effective_attention_block_size=\"{BLOCK_TOKENS}\",enable_prefix_caching=\"True\",\
         engine=\"0\",gpu_memory_utilization=\"0.9\",kv_cache_size_tokens=\"{tokens}\",\
         num_gpu_blocks=\"{kv_blocks}\",num_gpu_blocks_override=\"None\""
    );
    push_sample(page, CACHE, &labels, 1.0);
}

/// A label value.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
