//! Picks any candidate, whatever its score.

use types::{NoOptions, read_options};

use crate::candidate::{Kind, Picker};

pub(super) const KIND: Kind<dyn Picker> = Kind {
    name: "random",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(Random))
    },
};

#[derive(Debug)]
struct Random;

impl Picker for Random {
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize> {
        (!scores.is_empty()).then(|| (random % scores.len() as u64) as usize)
    }

    fn propensity(&self, scores: &[f32], chosen: usize) -> Option<f32> {
        (chosen < scores.len()).then(|| 1.0 / scores.len() as f32)
    }
}
