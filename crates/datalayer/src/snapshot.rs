//! What an endpoint's own metrics page said last.

use types::Time;

/// Last known state of an endpoint, as it told it. What it did not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When the page was received; `None` before the first.
    pub scraped_at: Option<Time>,
    /// Requests executing.
    pub running: Option<u32>,
    /// Requests queued on the endpoint.
    pub waiting: Option<u32>,
    /// Share of KV-cache blocks in use, `0.0..=1.0`.
    pub kv_utilization: Option<f32>,
    /// Tokens per KV-cache block.
    pub kv_block_tokens: Option<u32>,
    /// KV-cache blocks in all.
    pub kv_blocks: Option<u32>,
    /// Requests preempted (retracted) since the engine started.
    pub preemptions: Option<u32>,
}

impl Snapshot {
    /// Milliseconds since the page was received; `None` before the first.
    pub fn age_ms(&self, now: Time) -> Option<f32> {
        self.scraped_at.map(|at| now.ms_since(at))
    }

    /// KV-cache capacity in tokens, where the engine tells it.
    pub fn kv_capacity_tokens(&self) -> Option<u64> {
        Some(u64::from(self.kv_block_tokens?) * u64::from(self.kv_blocks?))
    }
}
