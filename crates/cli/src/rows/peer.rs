//! Reads a row as llm-d's latency predictor keeps them: gauges at dispatch and one latency a row.
//!
//! Such rows have no times and stand in the order of completion. Row `i` counts as decided at `i`, and
//! its latency as known `2 · running` rows later, which is an upper bound: while one request runs, the
//! others that run may each end and be followed by one more. One label at least comes a row later, since
//! no row is its own past.

use features::{Column, FeatureRow, WIDTH};
use predict::{ClassKey, Label, Labelled};
use types::{Accelerator, Role};

use super::fields::{Fields, Problem};

/// KV tokens of an engine, where only its utilization is told: of no consequence to what is predicted,
/// since its models learn the scale.
const KV_CAPACITY_TOKENS: f64 = 100_000.0;

/// Whether `fields` is a row of this form.
pub(super) fn fits(fields: &Fields) -> bool {
    fields.has("actual_ttft_ms") || fields.has("actual_tpot_ms")
}

/// Reads row `at`, counted from 0.
pub(super) fn row(fields: &Fields, at: usize) -> Result<Labelled, Problem> {
    let count = |name: &str| fields.within(name, f64::from(u32::MAX));
    let prompt = count("input_token_length")?;
    let waiting = count("num_request_waiting")?;
    let running = count("num_request_running")?;
    let utilization = fields.within("kv_cache_percentage", 1.0)?;
    let cached_share = fields.within("prefix_cache_score", 1.0)?;
    let ahead = fields.number("prefill_tokens_in_flight")?.unwrap_or(0.0).max(0.0);
    let uncached = (prompt * (1.0 - cached_share)).max(1.0);
    // Tokens in flight belong to one request at least, told as waiting or not.
    let ahead_requests = if ahead > 0.0 { waiting.max(1.0) } else { waiting };
    let row = [
        (Column::Prompt, prompt),
        (Column::Uncached, uncached),
        (Column::UncachedPairs, uncached * (prompt - uncached / 2.0).max(0.0) / 1e6),
        (Column::AheadRequests, ahead_requests),
        (Column::AheadTokens, ahead),
        (Column::AheadContext, ahead),
        (Column::Decoding, running),
        (Column::DecodeTokens, utilization * KV_CAPACITY_TOKENS),
        (Column::Running, running),
        (Column::Waiting, waiting),
        (Column::KvUtilization, utilization),
    ]
    .into_iter()
    .fold(FeatureRow::from([0.0; WIDTH]), |row, (column, value)| row.with(column, value as f32));
    let decided_at_ms = at as f64;
    let known_at_ms = decided_at_ms + (2.0 * running).max(1.0);
    let label = |name: &str| {
        let ms = fields.number(name)?.unwrap_or(0.0);
        if ms < 0.0 || ms > f64::from(f32::MAX) {
            return Err(Problem::new(name, format!("is {ms}, which is no latency")));
        }
        Ok((ms > 0.0).then_some(Label { ms: ms as f32, known_at_ms }))
    };
    Ok(Labelled {
        decided_at_ms,
        class: ClassKey {
            model: "unknown".into(),
            accelerator: Accelerator::new("unknown"),
            role: Role::Both,
        },
        slot: 0,
        row,
        ttft: label("actual_ttft_ms")?,
        itl: label("actual_tpot_ms")?,
        itl_so_far: Vec::new(),
        steps: Vec::new(),
        e2e: None,
        output_tokens: 0,
    })
}
