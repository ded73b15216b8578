//! Draws two candidates at random and picks the better one; of two equals, the one drawn first.

use types::{NoOptions, read_options};

use crate::candidate::{Kind, Picker};

pub(super) const KIND: Kind<dyn Picker> = Kind {
    name: "power-of-two",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(PowerOfTwo))
    },
};

#[derive(Debug)]
struct PowerOfTwo;

impl Picker for PowerOfTwo {
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize> {
        let count = scores.len() as u64;
        if count < 2 {
            return (count == 1).then_some(0);
        }
        let first = random % count;
        // Any of the others: those from `first` on are one further.
        let other = random / count % (count - 1);
        let other = if other < first { other } else { other + 1 };
        let (first, other) = (first as usize, other as usize);
        Some(if scores[other] > scores[first] { other } else { first })
    }

    fn propensity(&self, scores: &[f32], chosen: usize) -> Option<f32> {
        let own = *scores.get(chosen)?;
        let count = scores.len();
        if count == 1 {
            return Some(1.0);
        }
        // Of the pairs in order it wins those with a worse one, and as the first those with an equal.
        let worse = scores.iter().filter(|score| **score < own).count();
        let no_better = scores.iter().filter(|score| **score <= own).count() - 1;
        Some((worse + no_better) as f32 / (count * (count - 1)) as f32)
    }
}
