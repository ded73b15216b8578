//! How long the answers of a model are, and how many bytes of a prompt make a token.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Output tokens taken before the first answer.
const BEFORE_FIRST: f32 = 256.0;
/// Newest answers that lengths are read from.
const WINDOW: usize = 512;
/// Equally likely lengths that stand for the distribution.
pub const LENGTHS: usize = 8;
/// Prompts over which bytes per token are averaged.
const MEMORY: f32 = 300.0;
/// Bytes per token taken before the first prompt whose tokens are known.
pub(crate) const BYTES_PER_TOKEN: f32 = 4.0;

/// Output lengths and prompt density of one model.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OutputLengths {
    newest: VecDeque<u32>,
    prompts: f32,
    bytes_per_token: f32,
}

impl Default for OutputLengths {
    fn default() -> Self {
        Self { newest: VecDeque::new(), prompts: 0.0, bytes_per_token: BYTES_PER_TOKEN }
    }
}

/// What is expected of one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Mean number of output tokens, at least 1.
    pub mean: f32,
    /// Equally likely numbers, ascending; all zero before the first answers.
    pub spread: [f32; LENGTHS],
}

/// The distribution of output lengths, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    spread: [f32; LENGTHS],
    sorted: Vec<u32>,
}

impl OutputLengths {
    /// An answer of `tokens` output tokens has ended.
    pub fn push(&mut self, tokens: u32) {
        if self.newest.len() == WINDOW {
            self.newest.pop_front();
        }
        self.newest.push_back(tokens);
    }

    /// A prompt of `bytes` bytes had `tokens` tokens. Short prompts, which are mostly template, tell
    /// nothing.
    pub fn push_prompt(&mut self, bytes: u32, tokens: u32) {
        const SHORT: u32 = 64;
        if tokens < SHORT || bytes < SHORT {
            return;
        }
        self.prompts = (self.prompts + 1.0).min(MEMORY);
        let ratio = (bytes as f32 / tokens as f32).clamp(0.5, 16.0);
        self.bytes_per_token += (ratio - self.bytes_per_token) / self.prompts;
    }

    /// Folds in the newest answers and the prompts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.newest = newest_of(&self.newest, &other.newest, WINDOW);
        let prompts = self.prompts + other.prompts;
        if prompts > 0.0 {
            let share = other.prompts / prompts;
            self.bytes_per_token += share * (other.bytes_per_token - self.bytes_per_token);
            self.prompts = prompts.min(MEMORY);
        }
    }

    /// Bytes of prompt text per token.
    pub fn bytes_per_token(&self) -> f32 {
        self.bytes_per_token
    }

    /// The distribution now.
    pub fn lengths(&self) -> Lengths {
        Lengths::of(self.newest.iter().copied())
    }
}

/// The newest `most` of two runs of values, oldest first, in turn from the newest on.
pub(crate) fn newest_of<T: Copy>(
    mine: &VecDeque<T>,
    theirs: &VecDeque<T>,
    most: usize,
) -> VecDeque<T> {
    let (mut mine, mut theirs) = (mine.iter().rev(), theirs.iter().rev());
    let mut newest = VecDeque::with_capacity(most);
    while newest.len() < most {
        let before = newest.len();
        for value in [mine.next(), theirs.next()].into_iter().flatten().take(most - before) {
            newest.push_front(*value);
        }
        if newest.len() == before {
            break;
        }
    }
    newest
}

impl Lengths {
    /// The distribution of which `lengths` are a sample.
    pub(crate) fn of(lengths: impl Iterator<Item = u32>) -> Self {
        let mut sorted: Vec<u32> = lengths.collect();
        sorted.sort_unstable();
        let mut spread = [0.0; LENGTHS];
        if !sorted.is_empty() {
            for (at, length) in spread.iter_mut().enumerate() {
                // The middle of each eighth.
                *length = sorted[(2 * at + 1) * sorted.len() / (2 * LENGTHS)] as f32;
            }
        }
        Self { spread, sorted }
    }

    /// Answers behind it.
    pub(crate) fn answers(&self) -> usize {
        self.sorted.len()
    }

    /// What is expected of an answer that may give at most `max_tokens`.
    pub fn expected(&self, max_tokens: Option<u32>) -> Expected {
        let bound = max_tokens.map_or(f32::INFINITY, |max| max as f32);
        let bounded = self.sorted.iter().map(|length| (*length as f32).min(bound));
        let mean = match self.sorted.len() {
            0 => BEFORE_FIRST.min(bound),
            count => bounded.sum::<f32>() / count as f32,
        };
        let enough = self.sorted.len() >= LENGTHS;
        let spread = self.spread.map(|length| if enough { length.min(bound) } else { 0.0 });
        Expected { mean: mean.max(1.0), spread }
    }
}

impl Expected {
    /// What is expected where `own` counts by `share` (`0.0..=1.0`) and `self` by the rest: means and
    /// quantiles are averaged, so that the shape of both is kept.
    pub(crate) fn blend(self, own: Self, share: f32) -> Self {
        let mix = |all: f32, own: f32| all + share * (own - all);
        let known = |of: &Self| of.spread[LENGTHS - 1] > 0.0;
        let spread = if known(&self) && known(&own) {
            std::array::from_fn(|at| mix(self.spread[at], own.spread[at]))
        } else {
            self.spread
        };
        Self { mean: mix(self.mean, own.mean), spread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: impl IntoIterator<Item = u32>) -> Lengths {
        let mut outputs = OutputLengths::default();
        for tokens in of {
            outputs.push(tokens);
        }
        outputs.lengths()
    }

    #[test]
    fn a_bound_is_kept_and_shortens_the_mean() {
        assert!((lengths([]).expected(Some(10)).mean - 10.0).abs() < f32::EPSILON);
        let known = lengths([10, 1_000].repeat(50));
        assert!((known.expected(None).mean - 505.0).abs() < 1.0);
        let bounded = known.expected(Some(100));
        assert!((bounded.mean - 55.0).abs() < 1.0, "{bounded:?}");
        assert!(bounded.spread.iter().all(|length| *length <= 100.0));
    }

    #[test]
    fn the_spread_is_the_middle_of_each_eighth() {
        let spread = lengths(1..=400).expected(None).spread;
        assert!((spread[0] - 26.0).abs() < 2.0 && (spread[7] - 376.0).abs() < 2.0, "{spread:?}");
    }
}
