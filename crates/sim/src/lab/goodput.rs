//! The largest rate at which a policy holds the target, by bisection over the logarithm of the rate.
//!
//! Every policy meets the same requests of a seed, so that policies are compared on equal ground.

use super::{
    pool::{self, Tick},
    report::{Goodput, Run},
    run::{Lab, LabError, Policy},
    spec::Judge,
};

/// Factor between rates while nothing brackets the largest that holds.
const STRIDE: f64 = 2.0;
/// Rates tried on the way to a bracket.
const MOST_STRIDES: usize = 12;
/// Two-sided 95 % quantile of Student's t, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more.
const T_95_MANY: f64 = 1.96;

/// What the search with one seed came to.
#[derive(Debug, Default)]
struct Found {
    /// Largest rate that holds and least that does not.
    bracket: (f64, f64),
    /// The run at the former; `None` where none held.
    best: Option<Run>,
    tried: Vec<(u64, f64, f64)>,
}

impl Lab {
    /// The largest rate of each policy that holds the target, over the seeds.
    pub fn goodput(&self, tick: Tick<'_>) -> Result<Vec<Goodput>, LabError> {
        let seeds = &self.spec.seeds.0;
        let found = pool::map(self.jobs, self.policies.len() * seeds.len(), tick, |at| {
            self.search(&self.policies[at / seeds.len()], seeds[at % seeds.len()])
        })?;
        let by_policy = self.policies.iter().zip(found.chunks(seeds.len()));
        Ok(by_policy.map(|(policy, found)| summary(&policy.name, found)).collect())
    }

    fn search(&self, policy: &Policy, seed: u64) -> Result<Found, LabError> {
        let mut found = Found::default();
        let mut held: Option<f64> = None;
        let mut failed: Option<f64> = None;
        let mut load = 1.0;
        for step in 0.. {
            let (run, ..) = self.play(&self.fleet, policy, load, seed)?;
            found.tried.push((seed, run.offered_rps, run.attainment));
            if self.holds(&run) {
                held = Some(load);
                found.bracket.0 = run.offered_rps;
                found.best = Some(run);
            } else {
                failed = Some(load);
                found.bracket.1 = run.offered_rps;
            }
            load = match (held, failed) {
                (Some(held), Some(failed)) if failed / held <= 1.0 + self.spec.goodput.within => {
                    break;
                }
                (Some(held), Some(failed)) => (held * failed).sqrt(),
                _ if step >= MOST_STRIDES => break,
                (Some(held), None) => held * STRIDE,
                (None, _) => load / STRIDE,
            };
        }
        // A rate that was never seen to fail bounds nothing.
        found.bracket.1 = found.bracket.1.max(found.bracket.0);
        Ok(found)
    }

    /// Whether `run` holds the target of the scenario.
    pub(super) fn holds(&self, run: &Run) -> bool {
        let target = self.spec.goodput.target;
        let attainment = match self.spec.goodput.judge {
            Judge::Overall => run.attainment,
            Judge::EachClass => worst_class(run),
        };
        run.requests > 0 && attainment >= target
    }
}

/// Attainment of the class that has the least; of all where no request came.
pub(super) fn worst_class(run: &Run) -> f64 {
    let classes = run.by_class.values().filter(|class| class.requests > 0);
    classes.map(|class| class.attainment).fold(1.0, f64::min).min(1.0)
}

fn summary(policy: &str, found: &[Found]) -> Goodput {
    let mean_of = |of: fn(&Found) -> f64| mean(&found.iter().map(of).collect::<Vec<_>>());
    let by_seed: Vec<_> = found.iter().map(|found| found.bracket.0).collect();
    let spread = half_width(&by_seed);
    let best = |of: fn(&Run) -> f64| {
        mean(&found.iter().map(|found| found.best.as_ref().map_or(0.0, of)).collect::<Vec<_>>())
    };
    let worst: Vec<_> =
        found.iter().filter_map(|found| found.best.as_ref()?.worst_tenth_ratio).collect();
    Goodput {
        policy: policy.to_owned(),
        goodput_rps: best(|run| run.goodput_rps),
        rate_rps: mean(&by_seed),
        interval_rps: (
            (mean_of(|found| found.bracket.0) - spread).max(0.0),
            mean_of(|found| found.bracket.1) + spread,
        ),
        by_seed,
        worst_class_attainment: best(worst_class),
        worst_tenth_ratio: (!worst.is_empty()).then(|| mean(&worst)),
        tried: found.iter().flat_map(|found| found.tried.iter().copied()).collect(),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half of the 95 % interval of the mean; zero with fewer than two values.
fn half_width(values: &[f64]) -> f64 {
    let count = values.len();
    if count < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    T_95.get(count - 2).unwrap_or(&T_95_MANY) * deviation / (count as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(low: f64, high: f64) -> Found {
        Found { bracket: (low, high), ..Found::default() }
    }

    #[test]
    fn one_seed_has_the_bracket_as_its_interval() {
        let goodput = summary("p", &[found(10.0, 10.2)]);
        assert_eq!(goodput.interval_rps, (10.0, 10.2));
        assert_eq!(goodput.by_seed, [10.0]);
    }

    #[test]
    fn seeds_widen_the_interval_by_students_t() {
        let goodput = summary("p", &[found(9.0, 9.2), found(11.0, 11.2)]);
        assert!((goodput.rate_rps - 10.0).abs() < 1e-9);
        // Deviation 1.414, over the root of 2, times 12.706.
        assert!((goodput.interval_rps.1 - (10.2 + 12.706)).abs() < 1e-3);
        assert!(goodput.interval_rps.0.abs() < 1e-9);
    }
}
