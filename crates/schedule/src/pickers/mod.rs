//! The pickers. A new one is a file in this folder and two lines here.

mod max_score;
mod random;
mod weighted_random;

use crate::candidate::{Kind, Picker};

/// Every picker a profile may name.
pub const PICKERS: &[Kind<dyn Picker>] = &[max_score::KIND, random::KIND, weighted_random::KIND];
