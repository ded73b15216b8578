//! The figures of a run, each with its name, unit, direction and spread over seeds.

use sim::Run;

/// Which way a figure gets better.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::simulate) enum Better {
    More,
    Less,
}

/// One figure of a run.
#[derive(Debug)]
pub(in crate::simulate) struct Measure {
    /// What it is called.
    pub name: &'static str,
    /// Unit that it is given in.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Digits after the point.
    pub digits: usize,
    /// The figure of a run in its unit; `None` where nothing was measured.
    pub of: fn(&Run) -> Option<f64>,
}

impl Measure {
    /// The figure over all of `runs`.
    pub(in crate::simulate) fn spread(&self, runs: &[&Run]) -> Option<Spread> {
        Spread::of(runs.iter().filter_map(|run| (self.of)(run)))
    }

    /// `value` with the digits of the figure, none after the point from a thousand on, and in powers of ten
    /// where it is beyond all reason.
    pub(in crate::simulate) fn told(&self, value: f64) -> String {
        if value.abs() >= 1e7 {
            return format!("{value:.2e}");
        }
        let digits = if value.abs() < 999.5 { self.digits } else { 0 };
        format!("{value:.digits$}")
    }
}

pub(in crate::simulate) const ATTAINMENT: Measure = Measure {
    name: "attainment",
    unit: "%",
    better: Better::More,
    digits: 1,
    of: |run| ended(run).then_some(run.attainment * 100.0),
};
pub(in crate::simulate) const WEIGHTED_ATTAINMENT: Measure = Measure {
    name: "attainment by weight",
    unit: "%",
    better: Better::More,
    digits: 1,
    of: |run| ended(run).then_some(run.weighted_attainment * 100.0),
};
const WORST_CLASS: Measure = Measure {
    name: "worst class",
    unit: "%",
    better: Better::More,
    digits: 1,
    of: |run| {
        let classes = run.by_class.values().filter(|class| class.requests > 0);
        classes.map(|class| class.attainment * 100.0).min_by(f64::total_cmp)
    },
};
pub(in crate::simulate) const GOODPUT: Measure = Measure {
    name: "goodput",
    unit: "requests/s",
    better: Better::More,
    digits: 2,
    of: |run| ended(run).then_some(run.goodput_rps),
};
pub(in crate::simulate) const WORST_TENTH: Measure = Measure {
    name: "worst tenth",
    unit: "x objective",
    better: Better::Less,
    digits: 2,
    of: |run| run.worst_tenth_ratio,
};
pub(in crate::simulate) const HIT_RATIO: Measure = Measure {
    name: "prefix hits",
    unit: "% of prompt tokens",
    better: Better::More,
    digits: 1,
    of: |run| ended(run).then_some(run.hit_ratio * 100.0),
};
pub(in crate::simulate) const HOT_SPOT: Measure = Measure {
    name: "hot spot",
    unit: "x mean of its class",
    better: Better::Less,
    digits: 2,
    of: |run| ended(run).then_some(run.hot_spot_ratio),
};
pub(in crate::simulate) const COST: Measure = Measure {
    name: "cost",
    unit: "per million met tokens",
    better: Better::Less,
    digits: 2,
    of: |run| run.cost_per_met_mtoken,
};
const FAILED: Measure = Measure {
    name: "failed",
    unit: "%",
    better: Better::Less,
    digits: 2,
    of: |run| {
        let failed: u64 = run.errors.values().sum();
        ended(run).then(|| failed as f64 / run.requests as f64 * 100.0)
    },
};

/// Every figure that is told of a run, in the order in which people ask.
pub(in crate::simulate) const MEASURES: [&Measure; 16] = [
    &ATTAINMENT,
    &WEIGHTED_ATTAINMENT,
    &WORST_CLASS,
    &GOODPUT,
    &millis("TTFT p50", |run| run.ttft_ms.p50),
    &millis("TTFT p90", |run| run.ttft_ms.p90),
    &millis("TTFT p99", |run| run.ttft_ms.p99),
    &millis("ITL p50", |run| run.itl_ms.p50),
    &millis("ITL p90", |run| run.itl_ms.p90),
    &millis("ITL p99", |run| run.itl_ms.p99),
    &millis("E2E p90", |run| run.e2e_ms.p90),
    &WORST_TENTH,
    &HIT_RATIO,
    &HOT_SPOT,
    &COST,
    &FAILED,
];

const fn millis(name: &'static str, of: fn(&Run) -> Option<f64>) -> Measure {
    Measure { name, unit: "ms", better: Better::Less, digits: 1, of }
}

fn ended(run: &Run) -> bool {
    run.requests > 0
}

/// Mean and range of a figure over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::simulate) struct Spread {
    pub mean: f64,
    pub least: f64,
    pub most: f64,
    /// Values that it was found from, at least one.
    pub count: usize,
}

impl Spread {
    /// Over `values`, less those that are no number; `None` without any.
    pub(in crate::simulate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        // Rounding may not carry the mean of equal values out of their range.
        let mean = (values.iter().sum::<f64>() / values.len() as f64).clamp(least, most);
        Some(Self { mean, least, most, count: values.len() })
    }

    /// Whether some value of one lies within the range of the other.
    pub(in crate::simulate) fn overlaps(&self, other: &Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_leaves_out_what_is_no_number() {
        let spread = Spread::of([2.0, f64::NAN, 4.0, f64::INFINITY]).unwrap();
        assert_eq!(spread, Spread { mean: 3.0, least: 2.0, most: 4.0, count: 2 });
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn ranges_that_touch_overlap() {
        let spread = |least, most| Spread { mean: least, least, most, count: 2 };
        assert!(spread(1.0, 2.0).overlaps(&spread(2.0, 3.0)));
        assert!(!spread(1.0, 2.0).overlaps(&spread(2.1, 3.0)));
    }

    #[test]
    fn a_run_in_which_nothing_ended_has_no_figures() {
        let run = Run::default();
        assert!(MEASURES.iter().all(|measure| (measure.of)(&run).is_none()));
    }
}
