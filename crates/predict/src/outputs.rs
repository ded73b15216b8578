//! How long answers are, and how many bytes of a prompt make a token: moving means.

/// Mean taken before the first answer.
const BEFORE_FIRST: f32 = 256.0;
/// Answers over which the mean moves.
const MEMORY: f32 = 300.0;

/// Output lengths and prompt density of one model.
#[derive(Clone, Copy, Debug)]
pub struct OutputLengths {
    count: f32,
    mean: f32,
    prompts: f32,
    bytes_per_token: f32,
}

/// Bytes per token taken before the first prompt whose tokens are known.
const BYTES_PER_TOKEN: f32 = 4.0;

impl Default for OutputLengths {
    fn default() -> Self {
        Self { count: 0.0, mean: BEFORE_FIRST, prompts: 0.0, bytes_per_token: BYTES_PER_TOKEN }
    }
}

impl OutputLengths {
    /// An answer of `tokens` output tokens has ended.
    pub fn push(&mut self, tokens: u32) {
        self.count = (self.count + 1.0).min(MEMORY);
        self.mean += (tokens as f32 - self.mean) / self.count;
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

    /// Output tokens expected of an answer that may give at most `max_tokens`; at least one.
    pub fn expected(&self, max_tokens: Option<u32>) -> f32 {
        let bound = max_tokens.map_or(f32::INFINITY, |max| max as f32);
        self.mean.min(bound).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_and_the_mean_is_learned() {
        let mut outputs = OutputLengths::default();
        assert!((outputs.expected(Some(10)) - 10.0).abs() < f32::EPSILON);
        for _ in 0..1_000 {
            outputs.push(40);
        }
        assert!((outputs.expected(None) - 40.0).abs() < 1.0);
    }
}
