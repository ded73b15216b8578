//! How long answers are, and how many bytes of a prompt make a token.

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

    /// Bytes of prompt text per token.
    pub fn bytes_per_token(&self) -> f32 {
        self.bytes_per_token
    }

    /// The distribution now.
    pub fn lengths(&self) -> Lengths {
        let mut sorted: Vec<u32> = self.newest.iter().copied().collect();
        sorted.sort_unstable();
        let mut spread = [0.0; LENGTHS];
        if sorted.len() >= LENGTHS {
            for (at, length) in spread.iter_mut().enumerate() {
                // The middle of each eighth.
                *length = sorted[(2 * at + 1) * sorted.len() / (2 * LENGTHS)] as f32;
            }
        }
        Lengths { spread, sorted }
    }
}

impl Lengths {
    /// What is expected of an answer that may give at most `max_tokens`.
    pub fn expected(&self, max_tokens: Option<u32>) -> Expected {
        let bound = max_tokens.map_or(f32::INFINITY, |max| max as f32);
        let bounded = self.sorted.iter().map(|length| (*length as f32).min(bound));
        let mean = match self.sorted.len() {
            0 => BEFORE_FIRST.min(bound),
            count => bounded.sum::<f32>() / count as f32,
        };
        Expected { mean: mean.max(1.0), spread: self.spread.map(|length| length.min(bound)) }
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
