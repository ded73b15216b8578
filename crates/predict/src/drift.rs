//! Notices within about a second of tokens that an engine has changed.
//!
//! Each sample of an endpoint's step time is held against the class's step model, and the logarithm of
//! their ratio, less the endpoint's own bias, summed both ways beyond an allowance (two-sided CUSUM, Page
//! 1954). A sum over the threshold is a change: the mean residual since the sum left zero is its size.

use std::collections::{BTreeMap, BTreeSet};

use regress::{Kind, Regressor, Scale};
use serde_json::Value;

use crate::{load::LoadError, sound::check_latency};

/// Terms of the step model: `[1, streams, KV tokens in thousands]`.
pub(crate) const STEP_WIDTH: usize = 3;
/// Residual that is taken for noise.
const ALLOWANCE: f32 = 0.1;
/// Sum of residuals beyond it that is a change.
const THRESHOLD: f32 = 0.5;
/// Samples of a class before its endpoints are watched.
const BEFORE: u32 = 60;
/// What is kept of an endpoint's bias when a sample comes.
const BIAS_MEMORY: f32 = 0.97;

/// The terms of a step sample.
pub(crate) fn terms(sample: &Step) -> [f32; STEP_WIDTH] {
    [1.0, sample.streams, sample.kv_tokens / 1e3]
}

/// Steps of an endpoint that did nothing but decode, as its streams showed them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Mean time of a step.
    pub step_ms: f32,
    /// Streams decoding.
    pub streams: f32,
    /// KV tokens that those hold.
    pub kv_tokens: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    bias: f32,
    up: Sum,
    down: Sum,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    over: f32,
    residuals: f32,
    samples: f32,
}

impl Sum {
    /// Adds a residual; the mean of those since the sum left zero if it is a change.
    fn add(&mut self, residual: f32) -> Option<f32> {
        self.over += residual - ALLOWANCE;
        if self.over <= 0.0 {
            *self = Self::default();
            return None;
        }
        self.residuals += residual;
        self.samples += 1.0;
        (self.over > THRESHOLD).then(|| self.residuals / self.samples)
    }
}

/// The step model of a class and the endpoints watched by it.
#[derive(Debug)]
pub(crate) struct Drift {
    model: Option<Box<dyn Regressor>>,
    samples: u32,
    watched: BTreeMap<u32, Watched>,
    changes: u64,
}

impl Drift {
    pub(crate) fn new(model: Option<Box<dyn Regressor>>) -> Self {
        Self { model, samples: 0, watched: BTreeMap::new(), changes: 0 }
    }

    /// Takes a sample of endpoint `slot`; the size of the change (log) if it shows one.
    pub(crate) fn observe(&mut self, slot: u32, sample: &Step) -> Option<f32> {
        let others = [sample.streams, sample.kv_tokens];
        if check_latency(sample.step_ms).is_err() || !others.iter().all(|x| x.is_finite()) {
            return None;
        }
        let terms = terms(sample);
        let model = self.model.as_mut()?;
        let expected = model.predict_one(&terms);
        self.samples = self.samples.saturating_add(1);
        model.learn_one(&terms, sample.step_ms);
        if self.samples < BEFORE || expected <= 0.0 {
            return None;
        }
        let watched = self.watched.entry(slot).or_default();
        let residual = (sample.step_ms / expected).ln().clamp(-2.0, 2.0) - watched.bias;
        let shift = watched.up.add(residual).or_else(|| watched.down.add(-residual).map(|r| -r));
        if let Some(shift) = shift {
            *watched = Watched { bias: watched.bias + shift, ..Watched::default() };
            self.changes += 1;
            return Some(shift);
        }
        watched.bias += (1.0 - BIAS_MEMORY) * residual;
        None
    }

    /// Starts from the step model of a class `1 / scale` times as slow, at the weight of `strength`
    /// samples. Endpoints are watched from as many samples as without it: it may be off.
    pub(crate) fn start_from(&mut self, saved: &Value, scale: f32, strength: f32) {
        let row = vec![1.0; STEP_WIDTH];
        let scale = Scale { labels: f64::from(strength), label: f64::from(scale), row };
        if let Some(model) = &mut self.model {
            // One that it does not fit stays as it is, and learns from nothing.
            let _ = model.start_from(saved, &scale);
        }
    }

    /// The step model and how many samples it has seen.
    pub(crate) fn save(&self) -> (Option<Value>, u32) {
        (self.model.as_ref().map(|model| model.save()), self.samples)
    }

    /// Takes over a step model of the regressor `kind`.
    pub(crate) fn restore(
        &mut self,
        kind: &Kind,
        (model, samples): (Option<Value>, u32),
    ) -> Result<(), LoadError> {
        if let Some(model) = model {
            self.model = Some((kind.load)(model)?);
            self.samples = samples;
        }
        Ok(())
    }

    /// Folds in what `other` has learned of steps, and watches what it watches.
    pub(crate) fn merge(&mut self, other: &Self) -> regress::Result<()> {
        if let (Some(mine), Some(theirs)) = (&mut self.model, &other.model) {
            mine.merge(&theirs.save())?;
            self.samples = self.samples.saturating_add(other.samples);
        }
        self.watched.extend(&other.watched);
        self.changes += other.changes;
        Ok(())
    }

    pub(crate) fn keep_only(&mut self, live: &BTreeSet<u32>) {
        self.watched.retain(|slot, _| live.contains(slot));
    }

    /// Changes noticed since the start.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift() -> Drift {
        let kind = regress::kind("rls").unwrap();
        Drift::new((kind.build)(STEP_WIDTH, &Value::Null).ok())
    }

    /// A step of an engine that is `slower` than it was; noise of five percent.
    fn step(i: u32, slower: f32) -> Step {
        let streams = (i % 17) as f32 + 1.0;
        let noise = 1.0 + ((i * 7919 % 21) as f32 - 10.0) / 200.0;
        let step_ms = slower * noise * (7.0 + 0.05 * streams);
        Step { step_ms, streams, kv_tokens: 900.0 * streams }
    }

    #[test]
    fn a_slowdown_is_noticed_within_three_samples_with_its_size() {
        let mut drift = drift();
        for i in 0..300 {
            assert_eq!(drift.observe(0, &step(i, 1.0)), None, "{i}");
        }
        let noticed = (0..3).find_map(|i| drift.observe(0, &step(300 + i, 1.6)));
        assert!((noticed.unwrap() - 1.6_f32.ln()).abs() < 0.1, "{noticed:?}");
        assert_eq!(drift.changes(), 1);
    }

    #[test]
    fn noise_is_no_change() {
        let mut drift = drift();
        for i in 0..5_000 {
            drift.observe(i % 3, &step(i, 1.0));
        }
        assert_eq!(drift.changes(), 0);
    }
}
