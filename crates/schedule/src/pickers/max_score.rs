//! Picks the best score; among equals, one at random.

use types::{NoOptions, read_options};

use crate::candidate::{Kind, Picker};

pub(crate) const KIND: Kind<dyn Picker> = Kind {
    name: "max-score",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(MaxScore))
    },
};

#[derive(Debug)]
struct MaxScore;

impl Picker for MaxScore {
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize> {
        let best = scores.iter().copied().max_by(f32::total_cmp)?;
        let is_best = |score: &f32| score.total_cmp(&best).is_eq();
        let equals = scores.iter().filter(|score| is_best(score)).count() as u64;
        let wanted = (random % equals) as usize;
        let places = scores.iter().enumerate().filter(|(_, score)| is_best(score));
        places.map(|(at, _)| at).nth(wanted)
    }

    fn propensity(&self, scores: &[f32], chosen: usize) -> Option<f32> {
        let best = scores.iter().copied().max_by(f32::total_cmp)?;
        let is_best = |score: &f32| score.total_cmp(&best).is_eq();
        let equals = scores.iter().filter(|score| is_best(score)).count();
        Some(if is_best(scores.get(chosen)?) { 1.0 / equals as f32 } else { 0.0 })
    }
}
