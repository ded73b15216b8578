//! What predictions were worth: relative errors, pinball loss and coverage, by class, regime, target and
//! learner.

use std::collections::BTreeMap;

use predict::{Judged, LEVELS, Labelled, Target};
use serde::Serialize;

/// Names of the promised quantiles, by [`LEVELS`].
const QUANTILES: [&str; LEVELS.len()] = ["p50", "p90", "p95", "p99"];
/// What stands for all of a dimension.
pub(super) const ALL: &str = "all";
/// The targets, in the order of reports.
pub(super) const TARGETS: [Target; 2] = [Target::Ttft, Target::Itl];
/// What is served, among the learners.
const SERVED: &str = "served";

/// Relative errors of one learner's points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PointError {
    /// Name; `served` first.
    pub(super) name: &'static str,
    /// Rows for which it said something.
    pub(super) n: usize,
    /// Mean absolute relative error.
    pub(super) mape_ratio: Option<f64>,
    /// Median absolute relative error.
    pub(super) median_ape_ratio: Option<f64>,
}

/// What the predictions of a group of rows were worth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    /// `model/accelerator/role`, or `all`.
    pub(super) class: String,
    /// How busy the endpoint was, or `all`.
    pub(super) regime: &'static str,
    /// `ttft` or `itl`.
    pub(super) target: &'static str,
    /// Rows judged.
    pub(super) n: usize,
    /// Mean absolute relative error of the promised median.
    pub(super) mape_ratio: Option<f64>,
    /// Median absolute relative error of the promised median.
    pub(super) median_ape_ratio: Option<f64>,
    /// Sum of the promised medians over the sum of what came, less one.
    pub(super) bias_ratio: Option<f64>,
    /// Mean pinball loss of the promised p90, in milliseconds.
    pub(super) pinball_p90_ms: Option<f64>,
    /// The same of the p90 that residuals alone would have promised.
    pub(super) pinball_p90_uncorrected_ms: Option<f64>,
    /// Share of what came within each promised quantile.
    pub(super) coverage_ratio: BTreeMap<&'static str, f64>,
    /// Every learner, the served prediction first.
    pub(super) learners: Vec<PointError>,
}

/// Promises and what came, in one stretch of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stretch {
    /// `ttft` or `itl`.
    pub(super) target: &'static str,
    /// `model/accelerator/role`.
    pub(super) class: String,
    /// Start, in seconds from the first decision.
    pub(super) from_s: f64,
    /// Rows judged.
    pub(super) n: usize,
    /// Median of what came.
    pub(super) observed_p50_ms: f64,
    /// Median of the promised medians.
    pub(super) predicted_p50_ms: f64,
    /// Median of the promised p90s.
    pub(super) predicted_p90_ms: f64,
    /// Share of what came within the promised p90.
    pub(super) coverage_p90_ratio: f64,
}

/// Around a change: the rows decided in a window of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Around {
    /// `ttft` or `itl`.
    pub(super) target: &'static str,
    /// Start of the window, in seconds from the change.
    pub(super) from_s: f64,
    /// Its end.
    pub(super) to_s: f64,
    /// Rows judged.
    pub(super) n: usize,
    /// See [`Figures::bias_ratio`].
    pub(super) bias_ratio: Option<f64>,
    /// Median of promised over observed, less one.
    pub(super) median_bias_ratio: Option<f64>,
    /// Share of what came within the promised p90.
    pub(super) coverage_p90_ratio: Option<f64>,
}

/// What was judged, with the class of every row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcomes<'a> {
    pub(super) rows: &'a [Labelled],
    pub(super) judged: &'a [Judged],
}

impl Outcomes<'_> {
    /// Every class with a judged row, in order.
    pub(super) fn classes(&self) -> Vec<String> {
        let mut classes: Vec<_> = self.judged.iter().map(|j| self.class(j)).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    pub(super) fn class(&self, judged: &Judged) -> String {
        self.rows[judged.row].class.to_string()
    }

    /// Instant of the first decision.
    pub(super) fn start_ms(&self) -> f64 {
        self.rows.iter().map(|row| row.decided_at_ms).fold(f64::INFINITY, f64::min)
    }

    /// Judged rows of one target, of one class if it is named.
    pub(super) fn of(&self, target: Target, class: Option<&str>) -> Vec<&Judged> {
        let wanted =
            |j: &&Judged| j.target == target && class.is_none_or(|class| self.class(j) == class);
        self.judged.iter().filter(wanted).collect()
    }

    /// By class, regime and target.
    pub(super) fn groups(&self) -> Vec<Figures> {
        let mut groups = BTreeMap::<_, Vec<&Judged>>::new();
        for judged in self.judged {
            let key = (self.class(judged), judged.target, judged.regime);
            groups.entry(key).or_default().push(judged);
        }
        groups
            .into_iter()
            .map(|((class, target, regime), rows)| figures(class, regime.as_str(), target, &rows))
            .collect()
    }

    /// By class and target, where there are several classes; then by target.
    pub(super) fn totals(&self) -> Vec<Figures> {
        let classes = self.classes();
        let own = if classes.len() > 1 { &*classes } else { &[] };
        let mut totals = Vec::new();
        for target in TARGETS {
            for class in own {
                totals.push(figures(class.clone(), ALL, target, &self.of(target, Some(class))));
            }
            totals.push(figures(ALL.to_owned(), ALL, target, &self.of(target, None)));
        }
        totals.retain(|total| total.n > 0);
        totals
    }

    /// How promises followed what came, by class and target, in `count` equal stretches of time.
    pub(super) fn timeline(&self, count: usize) -> Vec<Stretch> {
        let mut timeline = Vec::new();
        for target in TARGETS {
            for class in self.classes() {
                let rows = self.of(target, Some(&class));
                timeline.extend(stretches(&rows, self.start_ms(), count).into_iter().map(
                    |(from_s, rows)| Stretch {
                        target: target.as_str(),
                        class: class.clone(),
                        from_s,
                        n: rows.len(),
                        observed_p50_ms: median_of(&rows, |j| j.observed_ms),
                        predicted_p50_ms: median_of(&rows, |j| j.promised.p50()),
                        predicted_p90_ms: median_of(&rows, |j| j.promised.p90()),
                        coverage_p90_ratio: covered(&rows, 1).unwrap_or(f64::NAN),
                    },
                ));
            }
        }
        timeline
    }

    /// What happened before and after `change_ms`: the 50 s before it, the 50 s and 60 s after it, and
    /// every 10 s up to 90 s.
    pub(super) fn around(&self, change_ms: f64) -> Vec<Around> {
        let tens = (0..9_u8).map(|ten| (f64::from(ten) * 10.0, f64::from(ten) * 10.0 + 10.0));
        let windows: Vec<_> =
            [(-50.0, 0.0), (0.0, 50.0), (0.0, 60.0)].into_iter().chain(tens).collect();
        let mut around = Vec::new();
        for target in TARGETS {
            for (from_s, to_s) in &windows {
                let mut rows = self.of(target, None);
                rows.retain(|j| (*from_s..*to_s).contains(&((j.decided_at_ms - change_ms) / 1e3)));
                let factor = |j: &Judged| j.promised.p50() / j.observed_ms;
                around.push(Around {
                    target: target.as_str(),
                    from_s: *from_s,
                    to_s: *to_s,
                    n: rows.len(),
                    bias_ratio: bias(&rows),
                    median_bias_ratio: (!rows.is_empty()).then(|| median_of(&rows, factor) - 1.0),
                    coverage_p90_ratio: covered(&rows, 1),
                });
            }
        }
        around
    }

    /// Labels of a target that were learned but not judged, since too little was known when they were
    /// decided.
    pub(super) fn warm_up(&self, target: Target) -> usize {
        let labels = self.rows.iter().filter(|row| {
            let label = match target {
                Target::Ttft => row.ttft,
                Target::Itl => row.itl,
            };
            label.is_some()
        });
        labels.count() - self.of(target, None).len()
    }
}

/// `rows` by equal stretches of time, each with its start in seconds from `start_ms`; empty ones are
/// left out.
pub(super) fn stretches<'a>(
    rows: &[&'a Judged],
    start_ms: f64,
    count: usize,
) -> Vec<(f64, Vec<&'a Judged>)> {
    let last = rows.iter().map(|j| j.decided_at_ms - start_ms).fold(0.0, f64::max);
    let width = (last / count as f64).max(1e-9) * (1.0 + 1e-9);
    let mut found = BTreeMap::<usize, Vec<&Judged>>::new();
    for judged in rows {
        let at = ((judged.decided_at_ms - start_ms) / width) as usize;
        found.entry(at).or_default().push(judged);
    }
    found.into_iter().map(|(at, rows)| (at as f64 * width / 1e3, rows)).collect()
}

fn figures(class: String, regime: &'static str, target: Target, rows: &[&Judged]) -> Figures {
    let served = rows.iter().map(|j| error(j.promised.p50(), j.observed_ms)).collect();
    let (mape_ratio, median_ape_ratio) = errors(served);
    let names: Vec<_> =
        rows.first().map(|j| j.models.iter().map(|(name, _)| *name).collect()).unwrap_or_default();
    let one = |(at, name): (usize, &&'static str)| {
        let said = |j: &&Judged| Some(error(j.models[at].1?, j.observed_ms));
        let off: Vec<_> = rows.iter().filter_map(said).collect();
        let n = off.len();
        let (mape_ratio, median_ape_ratio) = errors(off);
        PointError { name, n, mape_ratio, median_ape_ratio }
    };
    let first = PointError { name: SERVED, n: rows.len(), mape_ratio, median_ape_ratio };
    let coverage = QUANTILES.iter().enumerate();
    Figures {
        class,
        regime,
        target: target.as_str(),
        n: rows.len(),
        mape_ratio,
        median_ape_ratio,
        bias_ratio: bias(rows),
        pinball_p90_ms: mean(rows.iter().map(|j| pinball(j, j.promised.p90())).collect()),
        pinball_p90_uncorrected_ms: mean(
            rows.iter().map(|j| pinball(j, j.uncorrected_p90_ms)).collect(),
        ),
        coverage_ratio: coverage
            .filter_map(|(at, name)| Some((*name, covered(rows, at)?)))
            .collect(),
        learners: std::iter::once(first).chain(names.iter().enumerate().map(one)).collect(),
    }
}

fn error(predicted: f32, observed: f32) -> f64 {
    f64::from((predicted / observed - 1.0).abs())
}

/// Mean and median.
fn errors(mut off: Vec<f64>) -> (Option<f64>, Option<f64>) {
    off.sort_unstable_by(f64::total_cmp);
    let median = off.get(off.len() / 2).copied();
    (mean(off), median)
}

fn mean(values: Vec<f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.into_iter().sum::<f64>() / count as f64)
}

/// Median over `rows`; not a number if there are none.
pub(super) fn median_of(rows: &[&Judged], of: impl Fn(&Judged) -> f32) -> f64 {
    let mut values: Vec<_> = rows.iter().map(|j| f64::from(of(j))).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn bias(rows: &[&Judged]) -> Option<f64> {
    let sum = |of: fn(&Judged) -> f32| rows.iter().map(|j| f64::from(of(j))).sum::<f64>();
    let observed = sum(|j| j.observed_ms);
    (observed > 0.0).then(|| sum(|j| j.promised.p50()) / observed - 1.0)
}

/// Share of `rows` within the promised quantile at position `at` of [`LEVELS`].
pub(super) fn covered(rows: &[&Judged], at: usize) -> Option<f64> {
    let within = rows.iter().filter(|j| j.observed_ms <= j.promised.0[at]).count();
    (!rows.is_empty()).then(|| within as f64 / rows.len() as f64)
}

/// Pinball loss of the p90 `promise`.
fn pinball(judged: &Judged, promise: f32) -> f64 {
    let over = f64::from(judged.observed_ms - promise);
    if over > 0.0 { 0.9 * over } else { -0.1 * over }
}

#[cfg(test)]
mod tests {
    use features::{FeatureRow, WIDTH};
    use predict::{ClassKey, Label, Quantiles, Regime};
    use types::{Accelerator, Role};

    use super::*;

    fn row(accelerator: &str, at_ms: f64) -> Labelled {
        let label = |ms| Some(Label { ms, known_at_ms: at_ms + 500.0 });
        Labelled {
            decided_at_ms: at_ms,
            class: ClassKey {
                model: "m".into(),
                accelerator: Accelerator::new(accelerator),
                role: Role::Both,
            },
            slot: 0,
            row: FeatureRow::from([0.0; WIDTH]),
            ttft: label(100.0),
            itl: None,
            itl_so_far: Vec::new(),
            steps: Vec::new(),
            e2e: None,
            output_tokens: 0,
        }
    }

    fn judged(row: usize, rows: &[Labelled], p50: f32, p90: f32) -> Judged {
        Judged {
            decided_at_ms: rows[row].decided_at_ms,
            row,
            target: Target::Ttft,
            regime: Regime::Idle,
            observed_ms: 100.0,
            promised: Quantiles([p50, p90, p90, p90]),
            uncorrected_p90_ms: p90,
            models: vec![("mean", Some(150.0)), ("rls", None)],
        }
    }

    fn near(value: Option<f64>, expected: f64) {
        assert!((value.unwrap() - expected).abs() < 1e-6, "{value:?} {expected}");
    }

    #[test]
    fn errors_loss_and_coverage_are_those_of_the_textbook() {
        let rows: Vec<_> = (0..4_u8).map(|at| row("a", f64::from(at) * 1e3)).collect();
        let judged: Vec<_> = [(90.0, 120.0), (110.0, 130.0), (80.0, 90.0), (200.0, 300.0)]
            .into_iter()
            .enumerate()
            .map(|(at, (p50, p90))| judged(at, &rows, p50, p90))
            .collect();
        let outcomes = Outcomes { rows: &rows, judged: &judged };
        let totals = outcomes.totals();
        assert_eq!(totals.len(), 1);
        let total = &totals[0];
        near(total.mape_ratio, (0.1 + 0.1 + 0.2 + 1.0) / 4.0);
        near(total.median_ape_ratio, 0.2);
        near(total.bias_ratio, 480.0 / 400.0 - 1.0);
        near(total.pinball_p90_ms, (2.0 + 3.0 + 9.0 + 20.0) / 4.0);
        near(total.coverage_ratio.get("p90").copied(), 0.75);
        assert_eq!(total.learners[0].name, "served");
        near(total.learners[1].mape_ratio, 0.5);
        assert_eq!((total.learners[2].n, total.learners[2].mape_ratio), (0, None));
    }

    #[test]
    fn rows_that_were_not_judged_are_warm_up() {
        let rows = [row("a", 0.0), row("b", 1.0), row("b", 2.0)];
        let judged = [judged(2, &rows, 90.0, 120.0)];
        let outcomes = Outcomes { rows: &rows, judged: &judged };
        assert_eq!(outcomes.warm_up(Target::Ttft), 2);
        assert_eq!(outcomes.warm_up(Target::Itl), 0);
        assert_eq!(outcomes.classes(), ["m/b/both"]);
    }

    #[test]
    fn stretches_of_time_hold_every_row_once() {
        let rows: Vec<_> = (0..50_u8).map(|at| row("a", f64::from(at) * 100.0)).collect();
        let judged: Vec<_> = (0..50).map(|at| judged(at, &rows, 90.0, 120.0)).collect();
        let timeline = Outcomes { rows: &rows, judged: &judged }.timeline(10);
        assert_eq!(timeline.iter().map(|stretch| stretch.n).sum::<usize>(), 50);
        assert_eq!(timeline.len(), 10);
    }
}
