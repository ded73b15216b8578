//! Picks at random, in proportion to scores; if all are zero, any. llm-d's `weighted-random-picker` takes the
//! largest of `u^(1/score)` for uniform `u`, which draws the first one in the same proportion.

use types::{NoOptions, read_options};

use crate::{
    candidate::{Kind, Picker},
    draw,
};

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
        let weight = |at: usize| f64::from(scores[at].max(0.0));
        let drawn = draw::weighted(random, scores.len(), weight);
        drawn.or_else(|| (!scores.is_empty()).then(|| (random % scores.len() as u64) as usize))
    }

    fn propensity(&self, scores: &[f32], chosen: usize) -> Option<f32> {
        let weight = |score: &f32| f64::from(score.max(0.0));
        let total: f64 = scores.iter().map(weight).sum();
        let own = weight(scores.get(chosen)?);
        Some(if total > 0.0 { (own / total) as f32 } else { 1.0 / scores.len() as f32 })
    }
}
