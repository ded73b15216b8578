//! The one list of features. Order is part of every saved model: append, never reorder.
//!
//! What an engine does not tell is replaced by what we know ourselves (our own counts), never by zero.

use datalayer::{Demand, Load, Snapshot};
use types::Time;

/// What a feature may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What the request will ask of the endpoint.
    pub demand: &'a Demand,
    /// What its page said last.
    pub snapshot: &'a Snapshot,
    /// What we have in flight there.
    pub load: &'a Load,
    /// The instant of the decision.
    pub now: Time,
}

/// One column of a row.
#[derive(Debug)]
pub struct Feature {
    /// Name in saved models, metrics and notebooks; ends in its unit.
    pub name: &'static str,
    /// Its value for one request on one endpoint.
    pub of: fn(View<'_>) -> f32,
}

/// The columns by name, in row order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum Column {
    /// Prompt tokens.
    Prompt,
    /// Prompt tokens that must be computed.
    Uncached,
    /// Attention pairs of those, in millions.
    UncachedPairs,
    /// Requests ahead that have no first token yet.
    AheadRequests,
    /// Uncached tokens of those, dead-reckoned.
    AheadTokens,
    /// Attention pairs of those, in millions.
    AheadPairs,
    /// Streams decoding.
    Decoding,
    /// KV tokens that those hold.
    DecodeTokens,
    /// Prompt tokens of requests ahead, cached ones too.
    AheadContext,
    /// Tokens by which this request would overfill the KV cache.
    KvExcess,
    /// Output tokens that running streams are still expected to give.
    Remaining,
    /// Requests executing, as scraped; else our own count.
    Running,
    /// Requests queued, as scraped; else our own count.
    Waiting,
    /// KV utilization, as scraped; else our own reckoning, or 0.5.
    KvUtilization,
    /// Age of the scrape.
    SnapshotAge,
    /// Recent time between tokens.
    Step,
    /// Time since the last token of any stream.
    SinceToken,
    /// Uncached tokens arriving per second.
    ArrivingTokens,
    /// Longest wait of a request ahead.
    OldestWait,
    /// Output tokens expected of this request.
    Output,
    /// Recent prefill time per uncached token, in microseconds.
    PrefillPerToken,
    /// Requests arriving per second.
    ArrivingRequests,
}

/// Version of recorded rows: of the features, of what each means, and of the labels beside them. It
/// rises whenever a row of before would be misread.
pub const SCHEMA_VERSION: u32 = 2;

/// Number of features in a row.
pub const WIDTH: usize = 22;

/// Age given to a scrape that never came, in milliseconds.
const NEVER_SCRAPED_MS: f32 = 60_000.0;

/// Every feature, in row order.
pub const SCHEMA: [Feature; WIDTH] = [
    Feature { name: "prompt_tokens", of: |v| v.demand.prompt_tokens as f32 },
    Feature { name: "uncached_tokens", of: |v| v.demand.uncached_tokens() as f32 },
    Feature { name: "uncached_megapairs", of: |v| (v.demand.prefill_pairs() / 1e6) as f32 },
    Feature { name: "ahead_requests", of: |v| v.load.prefilling as f32 },
    Feature { name: "ahead_tokens", of: |v| v.load.prefill_tokens },
    Feature { name: "ahead_megapairs", of: |v| (v.load.prefill_pairs / 1e6) as f32 },
    Feature { name: "decoding_requests", of: |v| v.load.decoding as f32 },
    Feature { name: "decode_tokens", of: |v| v.load.decode_tokens as f32 },
    Feature { name: "ahead_context_tokens", of: |v| v.load.prefill_context_tokens as f32 },
    Feature { name: "kv_excess_tokens", of: kv_excess_tokens },
    Feature { name: "remaining_tokens", of: |v| v.load.remaining_tokens },
    Feature { name: "running_requests", of: running_requests },
    Feature { name: "waiting_requests", of: waiting_requests },
    Feature { name: "kv_utilization_ratio", of: kv_utilization_ratio },
    Feature {
        name: "snapshot_age_ms",
        of: |v| v.snapshot.age_ms(v.now).unwrap_or(NEVER_SCRAPED_MS).min(NEVER_SCRAPED_MS),
    },
    Feature { name: "step_ms", of: |v| v.load.step_ms.unwrap_or(0.0) },
    Feature {
        name: "since_token_ms",
        of: |v| v.load.since_token_ms.unwrap_or(NEVER_SCRAPED_MS).min(NEVER_SCRAPED_MS),
    },
    Feature { name: "arriving_tokens_per_s", of: |v| v.load.arriving_tokens_per_s },
    Feature { name: "oldest_wait_ms", of: |v| v.load.oldest_wait_ms },
    Feature { name: "expected_output_tokens", of: |v| v.demand.output_tokens },
    Feature {
        name: "prefill_us_per_token",
        of: |v| v.load.prefill_ms_per_token.unwrap_or(0.0) * 1e3,
    },
    Feature { name: "arriving_requests_per_s", of: |v| v.load.arriving_per_s },
];

/// KV tokens held or claimed by what is in flight.
fn claimed_tokens(v: View<'_>) -> f32 {
    v.load.decode_tokens as f32 + v.load.prefill_context_tokens as f32
}

fn kv_excess_tokens(v: View<'_>) -> f32 {
    v.snapshot.kv_capacity_tokens().map_or(0.0, |capacity| {
        let wanted = claimed_tokens(v) + v.demand.prompt_tokens as f32;
        (wanted - capacity as f32).max(0.0)
    })
}

fn running_requests(v: View<'_>) -> f32 {
    v.snapshot.running.unwrap_or(v.load.decoding) as f32
}

fn waiting_requests(v: View<'_>) -> f32 {
    v.snapshot.waiting.unwrap_or(v.load.prefilling) as f32
}

fn kv_utilization_ratio(v: View<'_>) -> f32 {
    let reckoned = || {
        v.snapshot
            .kv_capacity_tokens()
            .map(|capacity| (claimed_tokens(v) / capacity.max(1) as f32).min(1.0))
    };
    v.snapshot.kv_utilization.or_else(reckoned).unwrap_or(0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FeatureRow;

    #[test]
    fn columns_and_schema_have_one_order() {
        let demand = Demand { prompt_tokens: 100, cached_tokens: 36, ..Demand::default() };
        let load = Load { decoding: 3, prefilling: 2, arriving_per_s: 7.0, ..Load::default() };
        let snapshot = Snapshot { kv_utilization: Some(0.25), ..Snapshot::default() };
        let row = FeatureRow::extract(View {
            demand: &demand,
            snapshot: &snapshot,
            load: &load,
            now: Time::ZERO,
        });
        let of = |column| row.get(column).to_bits();
        assert_eq!(of(Column::Uncached), 64.0_f32.to_bits());
        assert_eq!(of(Column::Decoding), 3.0_f32.to_bits());
        assert_eq!(of(Column::KvUtilization), 0.25_f32.to_bits());
        assert_eq!(of(Column::ArrivingRequests), 7.0_f32.to_bits());
        assert_eq!(Column::ArrivingRequests as usize, WIDTH - 1);
    }

    #[test]
    fn what_the_engine_does_not_tell_is_not_zero() {
        let load = Load { decoding: 3, prefilling: 2, ..Load::default() };
        let row = FeatureRow::extract(View {
            demand: &Demand::default(),
            snapshot: &Snapshot::default(),
            load: &load,
            now: Time::ZERO,
        });
        assert_eq!(row.get(Column::Running).to_bits(), 3.0_f32.to_bits());
        assert_eq!(row.get(Column::Waiting).to_bits(), 2.0_f32.to_bits());
        assert!(row.get(Column::SnapshotAge) >= NEVER_SCRAPED_MS);
    }

    #[test]
    fn excess_is_what_does_not_fit_the_cache() {
        let demand = Demand { prompt_tokens: 1_000, ..Demand::default() };
        let load = Load { decode_tokens: 900, prefill_context_tokens: 300, ..Load::default() };
        let snapshot =
            Snapshot { kv_block_tokens: Some(16), kv_blocks: Some(100), ..Snapshot::default() };
        let view = View { demand: &demand, snapshot: &snapshot, load: &load, now: Time::ZERO };
        assert!((kv_excess_tokens(view) - 600.0).abs() < f32::EPSILON);
    }
}
