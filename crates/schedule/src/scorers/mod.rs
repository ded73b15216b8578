//! The scorers. A new one is a file in this folder and two lines here.

mod kv_cache_utilization;
mod no_hit_lru;
mod prefix_cache;
mod queue;

use crate::candidate::{Kind, Scorer};

/// Every scorer a profile may name.
pub const SCORERS: &[Kind<dyn Scorer>] =
    &[kv_cache_utilization::KIND, no_hit_lru::KIND, prefix_cache::KIND, queue::KIND];
