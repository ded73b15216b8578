//! Picks at random in proportion to `exp(score / temperature)`; at a temperature of 0, one of the best.

use serde::Deserialize;
use types::read_options;

use super::max_score;
use crate::{
    candidate::{Kind, Picker},
    draw, ranges,
};

pub(super) const KIND: Kind<dyn Picker> = Kind {
    name: "softmax",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        if options.temperature > 0.0 {
            Ok(Box::new(Softmax { temperature: f64::from(options.temperature) }))
        } else {
            (max_score::KIND.build)(&serde_json::Value::Null)
        }
    },
};

/// Tuning of the picker.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Difference in score that is worth a factor of e. Default: 0.
    #[serde(deserialize_with = "ranges::not_negative")]
    temperature: f32,
}

#[derive(Debug)]
struct Softmax {
    temperature: f64,
}

impl Picker for Softmax {
    fn pick(&self, scores: &[f32], random: u64) -> Option<usize> {
        let best = scores.iter().copied().max_by(f32::total_cmp)?;
        // Against the best, so that its own weight is 1 and nothing overflows.
        let weight = |at: usize| libm::exp(f64::from(scores[at] - best) / self.temperature);
        draw::weighted(random, scores.len(), weight)
    }

    fn propensity(&self, scores: &[f32], chosen: usize) -> Option<f32> {
        let best = scores.iter().copied().max_by(f32::total_cmp)?;
        let weight = |score: &f32| libm::exp(f64::from(score - best) / self.temperature);
        let total: f64 = scores.iter().map(weight).sum();
        Some((weight(scores.get(chosen)?) / total) as f32)
    }
}
