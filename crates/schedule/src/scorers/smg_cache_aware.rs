//! Prefers endpoints by our reading of the policy `cache_aware` of SGLang's router (SMG): while the load is
//! even, the one that holds most of the prompt, or where none holds enough, the one that was sent the
//! least text; while it is uneven, the one with the fewest requests.
//!
//! Uneven means that the most and the fewest requests in flight differ by more than one threshold and by
//! more than a factor, both. Their tree of texts is approximated by the bytes of prompt that were sent to an
//! endpoint and that it did not hold; nothing is forgotten while an endpoint is there.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;
use types::{Request, read_options};

use super::{range, score_least};
use crate::{
    candidate::{Candidate, Kind, Scorer},
    ranges,
};

/// Endpoints whose texts are counted.
const MAX_ENDPOINTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(8_191);

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "smg-cache-aware",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(SmgCacheAware { options, sent: Mutex::new(LruCache::new(MAX_ENDPOINTS)) }))
    },
};

/// Tuning of the scorer, by the names and defaults of their command line.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names of their command line")]
struct Options {
    /// Share of the prompt that an endpoint must hold more of to be chosen for it.
    #[serde(deserialize_with = "ranges::share")]
    cache_threshold: f32,
    /// Difference in requests beyond which the load may be uneven.
    balance_abs_threshold: u32,
    /// Factor beyond which it then is.
    #[serde(deserialize_with = "ranges::not_negative")]
    balance_rel_threshold: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_threshold: 0.3, balance_abs_threshold: 64, balance_rel_threshold: 1.5 }
    }
}

#[derive(Debug)]
struct SmgCacheAware {
    options: Options,
    /// Bytes of new prompt text sent, by slot of the endpoint.
    sent: Mutex<LruCache<u32, f64>>,
}

impl SmgCacheAware {
    fn is_uneven(&self, candidates: &[Candidate]) -> bool {
        let (fewest, most) = range(candidates, |candidate| candidate.in_flight() as f32);
        most - fewest > self.options.balance_abs_threshold as f32
            && most > fewest * self.options.balance_rel_threshold
    }
}

impl Scorer for SmgCacheAware {
    fn score(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        if self.is_uneven(candidates) {
            score_least(candidates, scores, |candidate| candidate.in_flight() as f32);
            return;
        }
        let (_, held) = range(candidates, |candidate| candidate.hit_ratio(request));
        if held > self.options.cache_threshold {
            for (score, candidate) in scores.iter_mut().zip(candidates) {
                *score = candidate.hit_ratio(request);
            }
            return;
        }
        let sent = self.sent.lock();
        score_least(candidates, scores, |candidate| {
            sent.peek(&candidate.endpoint.slot).map_or(0.0, |bytes| *bytes as f32)
        });
    }

    fn dispatched(&self, request: &Request, chosen: &Candidate) {
        let new = f64::from(request.prompt_bytes) * f64::from(1.0 - chosen.hit_ratio(request));
        *self.sent.lock().get_or_insert_mut(chosen.endpoint.slot, || 0.0) += new;
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
