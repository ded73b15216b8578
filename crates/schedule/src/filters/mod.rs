//! The filters. A new one is a file in this folder and two lines here.

mod decode;

use crate::candidate::{Filter, Kind};

/// Every filter a profile may name.
pub const FILTERS: &[Kind<dyn Filter>] = &[decode::KIND];
