//! What a request will ask of the endpoint it goes to, and how long answers go on that outlive most
//! others.

use types::Slo;

/// Lengths that stand for a distribution of output tokens.
pub(crate) const SPREAD: usize = 8;
/// Bounds of the exponent of a tail, so that it grows by a tenth to the whole of what was given.
const TAIL_SHAPE: (f32, f32) = (2.0, 11.0);

/// What a request will ask of the endpoint it goes to.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens expected to be cached there.
    pub cached_tokens: u32,
    /// Output tokens expected.
    pub output_tokens: f32,
    /// Equally likely numbers of output tokens, ascending; all zero where only the mean is known.
    pub output_spread: [f32; SPREAD],
    /// Most output tokens that the caller lets it give.
    pub max_output_tokens: Option<u32>,
    /// What its caller was promised.
    pub slo: Slo,
    /// What a miss of it weighs beside those of others, 1 unless said otherwise.
    pub weight: f32,
    /// When its first token is to be assumed, for an answer whose tokens will not be seen.
    pub assumed_ttft_ms: Option<f32>,
    /// Time between tokens that is assumed for it where no stream of the endpoint shows one.
    pub assumed_itl_ms: Option<f32>,
}

impl Default for Demand {
    /// An empty request that is promised nothing and weighs 1.
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0.0,
            output_spread: [0.0; SPREAD],
            max_output_tokens: None,
            slo: Slo::default(),
            weight: 1.0,
            assumed_ttft_ms: None,
            assumed_itl_ms: None,
        }
    }
}

impl Demand {
    /// Prompt tokens that must be computed; the last is always computed.
    pub fn uncached_tokens(&self) -> u32 {
        self.prompt_tokens.saturating_sub(self.cached_tokens).max(1)
    }

    /// Token pairs that attention must visit to prefill the uncached part: `q·(k + q/2)` for `q`
    /// uncached tokens after `k` cached ones.
    pub fn prefill_pairs(&self) -> f64 {
        let uncached = f64::from(self.uncached_tokens());
        uncached * (f64::from(self.cached_tokens) + uncached / 2.0)
    }
}

/// How answers go on that outlive most others.
///
/// Lengths are skewed, so their tail is taken as Pareto's, `P(X > x) = (x / from)^-a`: the longer an
/// answer has gone on, the longer it goes on, `x / (a − 1)` in the mean. The exponent follows from the
/// two longest lengths of the spread, which one answer in 16 and three in 16 exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Length that one answer in eight exceeds.
    from: f32,
    /// Mean length of those.
    mean: f32,
    /// Tokens still expected per token given, beyond.
    growth: f32,
}

impl Tail {
    /// The tail of the lengths in `demand`, if it has any.
    pub(crate) fn of(demand: &Demand) -> Option<Self> {
        let [.., next, longest] = demand.output_spread;
        if longest <= 0.0 {
            return None;
        }
        let steps = (longest / next.max(1.0)).max(1.0).ln();
        let shape = (3.0_f32.ln() / steps).clamp(TAIL_SHAPE.0, TAIL_SHAPE.1);
        let from = (longest * 0.5_f32.powf(1.0 / shape)).max(next);
        let growth = 1.0 / (shape - 1.0);
        Some(Self { from, mean: from * (1.0 + growth), growth })
    }

    /// Tokens still expected of an answer of the longest eighth that has given so many.
    pub(crate) fn rest(self, given: f32) -> f32 {
        if given < self.from { self.mean - given } else { given * self.growth }
    }
}
