//! The pickers. A new one is a file in this folder and two lines here.

mod max_score;
mod power_of_two;
mod random;
mod softmax;
mod weighted_random;

use crate::candidate::{Kind, Picker};

/// Every picker a profile may name.
pub const PICKERS: &[Kind<dyn Picker>] =
    &[max_score::KIND, power_of_two::KIND, random::KIND, softmax::KIND, weighted_random::KIND];
