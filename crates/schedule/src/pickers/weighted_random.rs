//! Picks at random, in proportion to scores; if all are zero, any.

use types::{NoOptions, read_options};

use crate::candidate::{Kind, Picker};

pub(super) const KIND: Kind<dyn Picker> = Kind {
    name: "weighted-random",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(WeightedRandom))
    },
};

#[derive(Debug)]
struct WeightedRandom;

impl Picker for WeightedRandom {
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize> {
        let last = scores.len().checked_sub(1)?;
        let weight = |score: &f32| f64::from(score.max(0.0));
        let total: f64 = scores.iter().map(weight).sum();
        if total <= 0.0 {
            return Some((random % scores.len() as u64) as usize);
        }
        let mut left = random as f64 / u64::MAX as f64 * total;
        let stops = |score: &f32| {
            left -= weight(score);
            left <= 0.0 && *score > 0.0
        };
        Some(scores.iter().position(stops).unwrap_or(last))
    }
}
