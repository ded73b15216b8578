//! Which runs of a report stand side by side: those of one load, each with another seed.

use std::collections::BTreeMap;

use sim::{LabReport, Run};

use super::{ATTAINMENT, Measure, Spread};

/// Seeds that are named one by one at most.
const NAMED_SEEDS: usize = 8;

/// The runs at one rate.
#[derive(Debug, Default)]
pub(in crate::simulate) struct Load<'a> {
    /// Requests offered per second, mean over its runs.
    pub rps: f64,
    runs: BTreeMap<&'a str, Vec<&'a Run>>,
}

impl<'a> Load<'a> {
    /// The runs of `policy`, one per seed.
    pub(in crate::simulate) fn runs(&self, policy: &str) -> &[&'a Run] {
        self.runs.get(policy).map_or(&[], Vec::as_slice)
    }

    /// A figure of `policy` over its seeds.
    pub(in crate::simulate) fn spread(&self, policy: &str, measure: &Measure) -> Option<Spread> {
        measure.spread(self.runs(policy))
    }

    /// Every run.
    pub(in crate::simulate) fn all(&self) -> impl Iterator<Item = &'a Run> {
        self.runs.values().flatten().copied()
    }
}

/// The loads of `report`, least first. Seeds differ in how many requests happen to come, so that the
/// rate itself does not tell: the next load of a policy begins where a seed comes again.
pub(in crate::simulate) fn loads(report: &LabReport) -> Vec<Load<'_>> {
    let mut loads = Vec::<Load<'_>>::new();
    let mut seen = BTreeMap::<(&str, u64), usize>::new();
    for run in &report.runs {
        let at = seen.entry((&run.policy, run.seed)).or_default();
        if loads.len() <= *at {
            loads.resize_with(*at + 1, Load::default);
        }
        loads[*at].runs.entry(&run.policy).or_default().push(run);
        *at += 1;
    }
    for load in &mut loads {
        load.rps = Spread::of(load.all().map(|run| run.offered_rps)).map_or(0.0, |rps| rps.mean);
    }
    loads.sort_by(|a, b| a.rps.total_cmp(&b.rps));
    loads
}

/// The load that tells policies apart: the largest at which one that can be deployed holds the target,
/// else the least.
pub(in crate::simulate) fn shown(report: &LabReport, loads: &[Load<'_>]) -> usize {
    let holds = |load: &Load<'_>| {
        report.policies.iter().filter(|policy| !policy.oracle).any(|policy| {
            let found = load.spread(&policy.name, &ATTAINMENT);
            found.is_some_and(|found| found.mean >= report.target * 100.0)
        })
    };
    loads.iter().rposition(holds).unwrap_or(0)
}

/// Every seed of `report`, in the order of its runs, or of its search where nothing else ran.
pub(in crate::simulate) fn seeds(report: &LabReport) -> Vec<u64> {
    let ran = report.runs.iter().map(|run| run.seed);
    let searched = report.goodput.iter().flat_map(|found| found.tried.iter().map(|tried| tried.0));
    let mut seeds = Vec::new();
    for seed in ran.chain(searched) {
        if !seeds.contains(&seed) {
            seeds.push(seed);
        }
    }
    seeds
}

/// `seeds` in words, such as `3 seeds (1, 2, 3)`.
pub(in crate::simulate) fn told_seeds(seeds: &[u64]) -> String {
    let mut named: Vec<_> = seeds.iter().take(NAMED_SEEDS).map(u64::to_string).collect();
    match seeds {
        [] => return "no seed".to_owned(),
        [seed] => return format!("one seed ({seed})"),
        _ if seeds.len() > NAMED_SEEDS => named.push("...".to_owned()),
        _ => {}
    }
    format!("{} seeds ({})", seeds.len(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::made;

    #[test]
    fn runs_of_one_load_are_found_though_their_rates_differ_by_seed() {
        let report = made::report();
        let loads = loads(&report);
        assert_eq!(loads.len(), made::LOADS.len());
        for (load, rps) in loads.iter().zip(made::LOADS) {
            assert!((load.rps / rps - 1.0).abs() < 0.05, "{} for {rps}", load.rps);
            let seeds: Vec<_> = load.runs("slackline").iter().map(|run| run.seed).collect();
            assert_eq!(seeds, made::SEEDS);
        }
    }

    #[test]
    fn the_load_shown_is_the_largest_that_a_policy_holds() {
        let mut report = made::report();
        report.target = 0.95;
        let at = shown(&report, &loads(&report));
        assert!(at > 0 && at + 1 < made::LOADS.len(), "{at}");
        report.target = 1.1;
        assert_eq!(shown(&report, &loads(&report)), 0);
        assert_eq!(shown(&LabReport::default(), &[]), 0);
    }

    #[test]
    fn seeds_are_named_unless_there_are_many() {
        assert_eq!(told_seeds(&[7]), "one seed (7)");
        assert_eq!(told_seeds(&[1, 2]), "2 seeds (1, 2)");
        let many: Vec<_> = (1..=20).collect();
        assert_eq!(told_seeds(&many), "20 seeds (1, 2, 3, 4, 5, 6, 7, 8, ...)");
    }
}
