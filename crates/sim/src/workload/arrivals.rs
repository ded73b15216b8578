//! When requests arrive, whatever becomes of them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::draw::Draw;

/// Steps that a day of the sine is cut into.
const SINE_STEPS: f64 = 288.0;
/// Most arrivals of one trace.
const MOST_ARRIVALS: usize = 50_000_000;

/// How arrivals follow each other. Where the rate changes, `cv` is that of the gaps at an even rate.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrivals {
    /// Independent of each other: exponential gaps.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gamma gaps.
    Gamma {
        /// Coefficient of variation of the gaps: above 1 is burstier than Poisson.
        cv: f64,
    },
    /// A sine around the rate, which starts at the mean and rises.
    Diurnal {
        /// Length of a day in seconds.
        period_s: f64,
        /// Height of the sine as a share of the rate, 0 to 1.
        amplitude: f64,
        /// Coefficient of variation of the gaps.
        #[serde(default = "one")]
        cv: f64,
    },
    /// Another rate from an instant on.
    Step {
        /// Second from which on.
        at_s: f64,
        /// Factor on the rate.
        factor: f64,
        /// Coefficient of variation of the gaps.
        #[serde(default = "one")]
        cv: f64,
    },
    /// A flash crowd: another rate for a while.
    Flash {
        /// Second at which it begins.
        at_s: f64,
        /// Seconds that it lasts.
        for_s: f64,
        /// Factor on the rate.
        factor: f64,
        /// Coefficient of variation of the gaps.
        #[serde(default = "one")]
        cv: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Arrivals {
    /// What is wrong, as `key.field: …`.
    pub(super) fn check(&self, key: &str) -> Result<(), String> {
        let within = |field: &str, value: f64, range: std::ops::RangeInclusive<f64>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (from, to) = range.into_inner();
            Err(format!("{key}.{field}: must be from {from} to {to}, not {value}"))
        };
        if let Some(cv) = self.cv() {
            within("cv", cv, 0.0..=20.0)?;
        }
        match *self {
            Self::Poisson | Self::Constant | Self::Gamma { .. } => Ok(()),
            Self::Diurnal { period_s, amplitude, .. } => {
                within("amplitude", amplitude, 0.0..=1.0)?;
                within("period_s", period_s, 1.0..=1e7)
            }
            Self::Step { at_s, factor, .. } => {
                within("at_s", at_s, 0.0..=1e9)?;
                within("factor", factor, 0.0..=1e4)
            }
            Self::Flash { at_s, for_s, factor, .. } => {
                within("at_s", at_s, 0.0..=1e9)?;
                within("for_s", for_s, 0.0..=1e9)?;
                within("factor", factor, 0.0..=1e4)
            }
        }
    }

    fn cv(&self) -> Option<f64> {
        match *self {
            Self::Poisson | Self::Constant => None,
            Self::Gamma { cv }
            | Self::Diurnal { cv, .. }
            | Self::Step { cv, .. }
            | Self::Flash { cv, .. } => Some(cv),
        }
    }

    /// For a person.
    pub(super) fn about(&self) -> String {
        match self {
            Self::Poisson => "Poisson".to_owned(),
            Self::Constant => "equal gaps".to_owned(),
            Self::Gamma { cv } => format!("gamma gaps with CV {cv}"),
            Self::Diurnal { period_s, amplitude, .. } => {
                format!("a sine of {amplitude} of the rate every {period_s} s")
            }
            Self::Step { at_s, factor, .. } => format!("{factor} times the rate from {at_s} s on"),
            Self::Flash { at_s, for_s, factor, .. } => {
                format!("{factor} times the rate for {for_s} s from {at_s} s on")
            }
        }
    }

    /// These arrivals at `rate` requests per second.
    pub(super) fn pace(&self, rate: f64) -> Pace {
        let cv = self.cv().unwrap_or(if *self == Self::Constant { 0.0 } else { 1.0 });
        let pattern = match *self {
            Self::Poisson | Self::Constant | Self::Gamma { .. } => Pattern::Steps(Vec::new()),
            Self::Diurnal { period_s, amplitude, .. } => Pattern::Sine { period_s, amplitude },
            Self::Step { at_s, factor, .. } => Pattern::Steps(vec![(at_s, 1.0), (FOREVER, factor)]),
            Self::Flash { at_s, for_s, factor, .. } => {
                Pattern::Steps(vec![(at_s, 1.0), (at_s + for_s, factor)])
            }
        };
        Pace { rate, cv, pattern }
    }
}

/// Later than every horizon, in seconds.
const FOREVER: f64 = 1e12;

/// A rate over time, and how arrivals scatter around it.
#[derive(Debug)]
pub(super) struct Pace {
    /// Requests per second where the factor is 1.
    pub(super) rate: f64,
    /// Coefficient of variation of the gaps at an even rate.
    pub(super) cv: f64,
    /// Factor on the rate over time.
    pub(super) pattern: Pattern,
}

#[derive(Debug)]
pub(super) enum Pattern {
    /// The second until which each factor holds; 1 after the last.
    Steps(Vec<(f64, f64)>),
    /// Factors that hold for `step_s` each, again and again.
    Table { step_s: f64, factors: Vec<f64> },
    /// One period and the height of the sine.
    Sine { period_s: f64, amplitude: f64 },
}

impl Pattern {
    /// The factor at `at` and until when it holds.
    fn at(&self, at: f64) -> (f64, f64) {
        match self {
            Self::Steps(steps) => {
                let step = steps.iter().find(|(until, _)| at < *until);
                step.map_or((1.0, FOREVER), |(until, factor)| (*factor, *until))
            }
            Self::Table { step_s, factors } => {
                let step = whole_steps(at, *step_s);
                let factor = factors.get(step as usize % factors.len().max(1));
                (factor.copied().unwrap_or(1.0), (step + 1.0) * step_s)
            }
            Self::Sine { period_s, amplitude } => {
                let step_s = period_s / SINE_STEPS;
                let step = whole_steps(at, step_s);
                let angle = std::f64::consts::TAU * (step + 0.5) / SINE_STEPS;
                (1.0 + amplitude * libm::sin(angle), (step + 1.0) * step_s)
            }
        }
    }
}

/// Which step of `step_s` the second `at` lies in, such that the step ends after it.
fn whole_steps(at: f64, step_s: f64) -> f64 {
    let step = libm::floor(at / step_s);
    if (step + 1.0) * step_s <= at { step + 1.0 } else { step }
}

impl Pace {
    /// Arrivals before `horizon`, in order.
    ///
    /// Gaps are drawn at an even rate and then stretched, so that the expected number of arrivals
    /// between two instants is the integral of the rate.
    pub(super) fn times(&self, draw: &mut Draw, horizon: Duration) -> Vec<Duration> {
        let end = horizon.as_secs_f64();
        let mut times = Vec::new();
        let mut at = 0.0;
        while times.len() < MOST_ARRIVALS {
            let mut left = draw.gap(self.cv);
            loop {
                let (factor, until) = self.pattern.at(at);
                let rate = factor * self.rate;
                let due = at + left / rate;
                if due <= until {
                    at = due;
                    break;
                }
                left -= (until - at) * rate;
                at = until;
                if at >= end {
                    break;
                }
            }
            if at >= end {
                break;
            }
            times.push(Duration::from_nanos((at * 1e9) as u64));
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: &Arrivals, rate: f64, horizon_s: u64) -> Vec<f64> {
        let horizon = Duration::from_secs(horizon_s);
        let times = arrivals.pace(rate).times(&mut Draw::new(5, 1), horizon);
        assert!(times.is_sorted() && times.iter().all(|at| *at < horizon));
        times.iter().map(Duration::as_secs_f64).collect()
    }

    fn rate_in(times: &[f64], from: f64, to: f64) -> f64 {
        times.iter().filter(|at| (from..to).contains(*at)).count() as f64 / (to - from)
    }

    #[test]
    fn the_rate_and_the_variation_of_gaps_are_those_asked_for() {
        for (arrivals, cv) in [
            (Arrivals::Poisson, 1.0),
            (Arrivals::Constant, 0.0),
            (Arrivals::Gamma { cv: 3.0 }, 3.0),
            (Arrivals::Gamma { cv: 0.5 }, 0.5),
        ] {
            let times = times(&arrivals, 20.0, 5_000);
            let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean * 20.0 - 1.0).abs() < 0.03, "{arrivals:?}: {mean}");
            assert!((variance.sqrt() / mean - cv).abs() < 0.08, "{arrivals:?}");
        }
    }

    #[test]
    fn a_day_rises_and_falls_around_its_mean() {
        let day = Arrivals::Diurnal { period_s: 1_000.0, amplitude: 0.8, cv: 1.0 };
        let times = times(&day, 50.0, 1_000);
        assert!((rate_in(&times, 0.0, 1_000.0) / 50.0 - 1.0).abs() < 0.03);
        assert!(rate_in(&times, 200.0, 300.0) > 1.7 * 50.0);
        assert!(rate_in(&times, 700.0, 800.0) < 0.3 * 50.0);
    }

    #[test]
    fn a_flash_crowd_comes_and_goes_and_a_step_stays() {
        let flash = Arrivals::Flash { at_s: 100.0, for_s: 50.0, factor: 4.0, cv: 1.0 };
        let times_of_flash = times(&flash, 20.0, 300);
        assert!((rate_in(&times_of_flash, 0.0, 100.0) / 20.0 - 1.0).abs() < 0.1);
        assert!((rate_in(&times_of_flash, 100.0, 150.0) / 80.0 - 1.0).abs() < 0.1);
        assert!((rate_in(&times_of_flash, 150.0, 300.0) / 20.0 - 1.0).abs() < 0.1);
        let step = Arrivals::Step { at_s: 100.0, factor: 0.0, cv: 1.0 };
        let times_of_step = times(&step, 20.0, 300);
        assert!(times_of_step.iter().all(|at| *at < 100.0) && times_of_step.len() > 1_500);
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_key() {
        let wrong = Arrivals::Gamma { cv: -1.0 }.check("generate.arrivals").unwrap_err();
        assert_eq!(wrong, "generate.arrivals.cv: must be from 0 to 20, not -1");
        let wrong = Arrivals::Diurnal { period_s: 10.0, amplitude: 2.0, cv: 1.0 };
        let wrong = wrong.check("generate.arrivals").unwrap_err();
        assert_eq!(wrong, "generate.arrivals.amplitude: must be from 0 to 1, not 2");
    }
}
