//! The filters. A new one is a file in this folder and two lines here.

mod decode;
mod prefix_cache_affinity;
mod slo_headroom_tier;

use crate::candidate::{Filter, Kind};

/// Every filter a profile may name.
pub const FILTERS: &[Kind<dyn Filter>] =
    &[decode::KIND, prefix_cache_affinity::KIND, slo_headroom_tier::KIND];
