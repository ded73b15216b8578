//! Spreads prompts that nobody holds: the endpoint that got such a prompt longest ago scores best
//! (llm-d's `no-hit-lru-scorer`). With a hit anywhere, all score a half.
//!
//! Ranks are taken among the candidates at hand, so that an endpoint that is gone takes none.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;
use types::{Request, read_options};

use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "no-hit-lru",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(NoHitLru {
            used: Mutex::new(Used { seen: LruCache::new(options.lru_size), turn: 0 }),
        }))
    },
};

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Endpoints remembered.
    lru_size: NonZeroUsize,
}

impl Default for Options {
    fn default() -> Self {
        const SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);
        Self { lru_size: SIZE }
    }
}

#[derive(Debug)]
struct NoHitLru {
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    /// Slot of an endpoint and the turn at which it last got a prompt that nobody held.
    seen: LruCache<u32, u64>,
    turn: u64,
}

fn is_cold(candidates: &[Candidate]) -> bool {
    candidates.iter().all(|candidate| candidate.hit_blocks == 0)
}

impl Scorer for NoHitLru {
    fn score(&self, _request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        if !is_cold(candidates) {
            scores.fill(0.5);
            return;
        }
        let last = (candidates.len() as f32 - 1.0).max(1.0);
        let used = self.used.lock();
        // Never used first, in the order given; then by how long ago.
        let turn = |at: usize| used.seen.peek(&candidates[at].endpoint.slot).copied().unwrap_or(0);
        let mut order: Vec<(u64, usize)> = (0..candidates.len()).map(|at| (turn(at), at)).collect();
        order.sort_unstable();
        for (rank, (_, at)) in order.into_iter().enumerate() {
            scores[at] = 1.0 - rank as f32 / last;
        }
        if let [only] = scores {
            *only = 1.0;
        }
    }

    fn dispatched(&self, _request: &Request, chosen: &Candidate) {
        if chosen.hit_blocks == 0 {
            let mut used = self.used.lock();
            used.turn += 1;
            let turn = used.turn;
            used.seen.put(chosen.endpoint.slot, turn);
        }
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
