//! Sticky until saturated: keeps the endpoints that hold most of the prompt, as long as the wait there is
//! not much longer than elsewhere (llm-d's `prefix-cache-affinity-filter`).
//!
//! The wait is either the uncached prompt tokens in flight over the tokens that an idle endpoint prefills
//! per second, or the predicted TTFT. An endpoint without a prediction waits for ever.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error};
use types::{Accelerator, Request, read_options};

use crate::{
    candidate::{Candidate, Filter, Kind},
    draw, ranges,
};

pub(super) const KIND: Kind<dyn Filter> = Kind {
    name: "prefix-cache-affinity",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(PrefixCacheAffinity { options }))
    },
};

/// What the wait at an endpoint is read from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
enum TtftSource {
    /// Tokens in flight over the peak throughput.
    #[default]
    PrefillThroughput,
    /// The prediction.
    LatencyPredictor,
}

/// Tuning of the filter.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Share of the prompt from which an endpoint is sticky; 0 and less switches the filter off.
    #[serde(deserialize_with = "ranges::at_most_one")]
    affinity_threshold: f32,
    /// Chance to keep all.
    #[serde(deserialize_with = "ranges::share")]
    exploration_probability: f32,
    /// Longest extra wait, in milliseconds, for which it sticks; 0 means for ever.
    #[serde(rename = "maxTTFTPenaltyMs", deserialize_with = "ranges::not_negative")]
    max_ttft_penalty_ms: f32,
    /// What the wait is read from.
    ttft_source: TtftSource,
    /// Prompt tokens per second that an idle endpoint prefills.
    #[serde(deserialize_with = "ranges::positive")]
    peak_prefill_throughput: f32,
    /// The same for accelerator classes that differ from it, by name (`H100-SXM`) or by its first part
    /// (`H100`). llm-d has one number for all.
    #[serde(deserialize_with = "throughputs")]
    peak_prefill_throughput_by_accelerator: BTreeMap<String, f32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            affinity_threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
            ttft_source: TtftSource::default(),
            peak_prefill_throughput: 15_928.0,
            peak_prefill_throughput_by_accelerator: BTreeMap::new(),
        }
    }
}

fn throughputs<'de, D: Deserializer<'de>>(options: D) -> Result<BTreeMap<String, f32>, D::Error> {
    let of = BTreeMap::<String, f32>::deserialize(options)?;
    match of.iter().find(|(_, tokens)| !(tokens.is_finite() && **tokens > 0.0)) {
        Some((name, tokens)) => {
            Err(D::Error::custom(format_args!("{tokens} of `{name}` is not a number above 0")))
        }
        None => Ok(of),
    }
}

impl Options {
    fn throughput(&self, accelerator: &Accelerator) -> f32 {
        let of = &self.peak_prefill_throughput_by_accelerator;
        if of.is_empty() {
            return self.peak_prefill_throughput;
        }
        let name = accelerator.as_str();
        let family = name.split(['-', ' ']).next().unwrap_or_default();
        let found = of.get(name).or_else(|| of.get(family));
        found.copied().unwrap_or(self.peak_prefill_throughput)
    }

    fn ttft_ms(&self, candidate: &Candidate) -> f32 {
        match self.ttft_source {
            TtftSource::PrefillThroughput => {
                let tokens = candidate.load.prefill_tokens;
                tokens / self.throughput(&candidate.endpoint.accelerator) * 1e3
            }
            TtftSource::LatencyPredictor => {
                candidate.prediction.as_ref().map_or(f32::MAX, |p| p.ttft.p50())
            }
        }
    }
}

#[derive(Debug)]
struct PrefixCacheAffinity {
    options: Options,
}

impl Filter for PrefixCacheAffinity {
    fn narrow(&self, request: &Request, candidates: &mut Vec<Candidate>, random: u64) {
        let options = &self.options;
        let explores = draw::unit(random) < f64::from(options.exploration_probability);
        if candidates.len() <= 1 || options.affinity_threshold <= 0.0 || explores {
            return;
        }
        let is_sticky = |c: &Candidate| c.hit_ratio(request) >= options.affinity_threshold;
        let sticky = candidates.iter().filter(|candidate| is_sticky(candidate)).count();
        if sticky == 0 || sticky == candidates.len() {
            return;
        }
        if options.max_ttft_penalty_ms > 0.0 {
            let shortest = |wanted: bool| {
                let of = candidates.iter().filter(|candidate| is_sticky(candidate) == wanted);
                of.map(|candidate| options.ttft_ms(candidate)).fold(f32::MAX, f32::min)
            };
            if shortest(true) - shortest(false) > options.max_ttft_penalty_ms {
                return;
            }
        }
        candidates.retain(is_sticky);
    }

    fn uses_chance(&self) -> bool {
        self.options.exploration_probability > 0.0
    }

    fn wants_predictions(&self) -> bool {
        self.options.ttft_source == TtftSource::LatencyPredictor
            && self.options.max_ttft_penalty_ms > 0.0
    }
}
