//! What a policy would have attained, from decisions that another one made.
//!
//! With reward `y` (1 where the objective was kept), chance `p` with which the logged choice was made, chance
//! `s` with which the target makes the same, reward model `q` and weight `w = s / p`:
//!
//! - direct: the mean of `Σ s(c) q(c)` over the candidates `c`;
//! - inverse propensity: `Σ w y / Σ w`, self-normalised, with `w` cut at `√n` (truncated importance sampling,
//!   Ionides 2008);
//! - doubly robust: the direct estimate plus `Σ w (y − q) / Σ w` (Dudík, Langford, Li 2011, self-normalised).
//!
//! Intervals are of 95 % and by the jackknife over blocks of time, since neighbours in time share their load.

use serde::Serialize;

/// Most blocks of time, and the rows that each has at least.
const MOST_BLOCKS: usize = 25;
const BLOCK_ROWS: usize = 20;
/// Least effective sample size, in rows and as a share of them.
const LEAST_ROWS: f64 = 100.0;
const LEAST_SHARE: f64 = 0.01;
/// Share of the decisions whose propensity must be known.
const LEAST_KNOWN: f64 = 0.9;
/// How far the mean weight, which is 1 where the log might have made every choice of the target, may be off
/// beyond chance.
const WEIGHT_SLACK: f64 = 0.05;
/// Standard errors that chance explains.
const BEYOND_CHANCE: f64 = 3.0;

/// One logged decision and what the target makes of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Case {
    /// 1 where the objective was kept, else 0.
    pub(super) reward: f64,
    /// Chance with which the log chose as it did, where known.
    pub(super) propensity: Option<f64>,
    /// Chance with which the target chooses the same.
    pub(super) same: f64,
    /// What the reward model says of the log's choice.
    pub(super) model_logged: f64,
    /// What it says of the target's.
    pub(super) model_target: f64,
}

/// A share with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Estimate {
    /// The estimate, 0..=1.
    pub(super) value: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// What the log tells of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Estimates {
    /// Share of the decisions that the policy makes as the log did.
    pub(super) agreement: f64,
    /// `(Σ w)² / Σ w²`.
    pub(super) effective_rows: f64,
    /// Largest weight, before it is cut.
    pub(super) largest_weight: f64,
    /// Mean weight, before they are cut; 1 where the log might have made every choice of the policy.
    pub(super) mean_weight: f64,
    /// By the reward model alone.
    pub(super) direct: Estimate,
    /// By weights alone; `None` where there is too little support.
    pub(super) inverse_propensity: Option<Estimate>,
    /// By both; `None` likewise.
    pub(super) doubly_robust: Option<Estimate>,
    /// Why there is too little support, if there is.
    pub(super) too_little_support: Option<String>,
}

/// Sums over rows: of one block, or of all but one.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    rows: f64,
    /// Rows whose propensity is known.
    known: f64,
    reward: f64,
    same: f64,
    model_logged: f64,
    model_target: f64,
    /// Weights before they are cut.
    whole_weight: f64,
    weight: f64,
    weight_squared: f64,
    weighted_reward: f64,
    weighted_error: f64,
}

impl Sums {
    fn of(cases: &[Case], most: f64) -> Self {
        cases.iter().fold(Self::default(), |sums, case| sums.plus(&Self::one(case, most), 1.0))
    }

    fn one(case: &Case, most: f64) -> Self {
        let whole = case.propensity.map_or(0.0, |propensity| case.same / propensity);
        let weight = whole.min(most);
        Self {
            rows: 1.0,
            known: f64::from(u8::from(case.propensity.is_some())),
            reward: case.reward,
            same: case.same,
            model_logged: case.model_logged,
            model_target: case.model_target,
            whole_weight: whole,
            weight,
            weight_squared: weight * weight,
            weighted_reward: weight * case.reward,
            weighted_error: weight * (case.reward - case.model_logged),
        }
    }

    fn plus(self, other: &Self, sign: f64) -> Self {
        Self {
            rows: self.rows + sign * other.rows,
            known: self.known + sign * other.known,
            reward: self.reward + sign * other.reward,
            same: self.same + sign * other.same,
            model_logged: self.model_logged + sign * other.model_logged,
            model_target: self.model_target + sign * other.model_target,
            whole_weight: self.whole_weight + sign * other.whole_weight,
            weight: self.weight + sign * other.weight,
            weight_squared: self.weight_squared + sign * other.weight_squared,
            weighted_reward: self.weighted_reward + sign * other.weighted_reward,
            weighted_error: self.weighted_error + sign * other.weighted_error,
        }
    }

    fn inverse_propensity(&self) -> f64 {
        ratio(self.weighted_reward, self.weight)
    }

    fn doubly_robust(&self) -> f64 {
        ratio(self.model_target, self.rows) + ratio(self.weighted_error, self.weight)
    }

    fn effective_rows(&self) -> f64 {
        ratio(self.weight * self.weight, self.weight_squared)
    }
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

/// Sums of all rows, and of each block of time.
#[derive(Debug)]
struct Blocks {
    all: Sums,
    each: Vec<Sums>,
}

impl Blocks {
    fn of(cases: &[Case]) -> Self {
        let most = (cases.len() as f64).sqrt();
        let count = (cases.len() / BLOCK_ROWS).clamp(2, MOST_BLOCKS);
        let rows = cases.len().div_ceil(count).max(1);
        let each: Vec<_> = cases.chunks(rows).map(|block| Sums::of(block, most)).collect();
        let all = each.iter().fold(Sums::default(), |sums, block| sums.plus(block, 1.0));
        Self { all, each }
    }

    /// Standard error of `of`, by leaving out one block after the other.
    fn error(&self, of: impl Fn(&Sums) -> f64) -> f64 {
        let count = self.each.len() as f64;
        let without: Vec<_> = self.each.iter().map(|b| of(&self.all.plus(b, -1.0))).collect();
        let mean = without.iter().sum::<f64>() / count;
        let squares: f64 = without.iter().map(|value| (value - mean).powi(2)).sum();
        (squares * (count - 1.0) / count).sqrt()
    }

    /// `of` with its interval; `rows` is how many rows it rests on.
    fn estimate(&self, of: impl Fn(&Sums) -> f64, rows: f64) -> Estimate {
        // Rows that all came out alike are no certainty: of `n`, the next may differ with a chance of 3 / n.
        let error = self.error(&of).max(1.5 / rows.max(1.0));
        let reach = student(self.each.len() - 1) * error;
        let value = of(&self.all);
        let share = |value: f64| value.clamp(0.0, 1.0);
        Estimate { value: share(value), low: share(value - reach), high: share(value + reach) }
    }
}

/// The 97.5 % quantile of Student's t, by the first terms of its expansion in `1 / degrees`.
fn student(degrees: usize) -> f64 {
    const Z: f64 = 1.959_964;
    let n = degrees.max(1) as f64;
    let (z3, z5) = (Z.powi(3), Z.powi(5));
    Z + (z3 + Z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n * n)
}

/// What the log itself attained, and what the reward model says of it.
pub(super) fn logged(cases: &[Case]) -> (Estimate, Estimate) {
    let blocks = Blocks::of(cases);
    let share = |of: fn(&Sums) -> f64| blocks.estimate(of, blocks.all.rows);
    (share(|sums| ratio(sums.reward, sums.rows)), share(|sums| ratio(sums.model_logged, sums.rows)))
}

/// What `cases`, in the order of time, tell of the target.
pub(super) fn estimates(cases: &[Case]) -> Estimates {
    let blocks = Blocks::of(cases);
    let all = &blocks.all;
    let whole = cases.iter().filter_map(|case| Some(case.same / case.propensity?));
    let largest_weight = whole.fold(0.0, f64::max);
    let effective_rows = all.effective_rows();
    let too_little_support = too_little(&blocks);
    let supported = |of: fn(&Sums) -> f64| {
        too_little_support.is_none().then(|| blocks.estimate(of, effective_rows))
    };
    Estimates {
        agreement: ratio(all.same, all.rows),
        effective_rows,
        largest_weight,
        mean_weight: ratio(all.whole_weight, all.known),
        direct: blocks.estimate(|sums| ratio(sums.model_target, sums.rows), all.rows),
        inverse_propensity: supported(Sums::inverse_propensity),
        doubly_robust: supported(Sums::doubly_robust),
        too_little_support,
    }
}

/// Why the log does not support the target, if it does not.
fn too_little(blocks: &Blocks) -> Option<String> {
    let all = &blocks.all;
    if all.known < LEAST_KNOWN * all.rows {
        let share = 100.0 * (1.0 - ratio(all.known, all.rows));
        return Some(format!(
            "with which chance {share:.0} % of the logged decisions were made is not known"
        ));
    }
    let mean_weight = |sums: &Sums| ratio(sums.whole_weight, sums.known);
    let (mean, error) = (mean_weight(all), blocks.error(mean_weight));
    if mean + BEYOND_CHANCE * error < 1.0 - WEIGHT_SLACK {
        return Some(format!(
            "the log could have made only {:.0} % of its choices: log with some chance (explore, or random)",
            mean * 100.0
        ));
    }
    let rows = all.effective_rows();
    if rows < LEAST_ROWS.max(LEAST_SHARE * all.rows) {
        return Some(format!("the log is worth {rows:.0} of its {:.0} decisions", all.rows));
    }
    (mean - BEYOND_CHANCE * error > 1.0 + WEIGHT_SLACK).then(|| {
        format!("weights are {mean:.2} in the mean, not 1: the recorded chances cannot be right")
    })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    const ARMS: usize = 5;

    /// Chance that `arm` keeps the objective in a state `x` of 0..1.
    fn truth(x: f64, arm: usize) -> f64 {
        0.2 + 0.6 * (x - arm as f64 / 4.0).abs()
    }

    /// A log of `rows` decisions, one of which in `1 / explore` is any and the others that for which the
    /// state is worst; the target takes the best. The model of the reward is off by `bias`.
    fn log(seed: u64, rows: usize, explore: f64, bias: f64) -> (Vec<Case>, f64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut attained = 0.0;
        let arms = |x: f64| (0..ARMS).map(move |arm| (truth(x, arm), arm));
        let cases = (0..rows).map(|_| {
            let x: f64 = random.random();
            let best = arms(x).max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, arm)| arm);
            let worst = arms(x).min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, arm)| arm);
            let any = random.random_range(0..ARMS);
            let chosen = if random.random_bool(explore) { any } else { worst };
            let by_habit = if chosen == worst { 1.0 - explore } else { 0.0 };
            attained += truth(x, best) / rows as f64;
            Case {
                reward: f64::from(u8::from(random.random_bool(truth(x, chosen)))),
                propensity: Some(by_habit + explore / ARMS as f64),
                same: f64::from(u8::from(chosen == best)),
                model_logged: truth(x, chosen) + bias,
                model_target: truth(x, best) + bias,
            }
        });
        (cases.collect(), attained)
    }

    fn holds(estimate: Estimate, truth: f64) -> bool {
        (estimate.low..=estimate.high).contains(&truth)
    }

    #[test]
    fn intervals_hold_the_truth_nineteen_times_in_twenty() {
        let (mut told, mut by_propensity, mut robust) = (0, 0, 0);
        for seed in 0..200 {
            let (cases, truth) = log(seed, 2_000, 0.5, 0.0);
            let found = estimates(&cases);
            let both = found.inverse_propensity.zip(found.doubly_robust);
            // By chance the sample of a log may show too little of what the target wants.
            let Some((weighted, both)) = both else { continue };
            told += 1;
            by_propensity += u32::from(holds(weighted, truth));
            robust += u32::from(holds(both, truth));
        }
        assert!(told >= 196, "{told} of 200");
        for held in [by_propensity, robust] {
            assert!(held * 100 >= told * 92, "{held} of {told}");
        }
    }

    #[test]
    fn outcomes_set_a_wrong_model_right() {
        let (cases, truth) = log(3, 8_000, 0.5, -0.2);
        let found = estimates(&cases);
        assert!(!holds(found.direct, truth) && found.direct.value < truth - 0.15, "{found:?}");
        assert!(holds(found.doubly_robust.unwrap(), truth), "{found:?} {truth}");
        let (own, model) = logged(&cases);
        assert!(
            (own.value - model.value - 0.2).abs() < 0.03,
            "the check shows it: {own:?} {model:?}"
        );
    }

    #[test]
    fn a_log_that_left_nothing_to_chance_supports_only_its_own_choices() {
        let (mut cases, _) = log(1, 4_000, 0.5, 0.0);
        for case in &mut cases {
            case.propensity = Some(1.0);
        }
        let found = estimates(&cases);
        let why = found.too_little_support.unwrap();
        assert!(why.contains("could have made only"), "{why}");
        assert_eq!((found.inverse_propensity, found.doubly_robust), (None, None));
        for case in &mut cases {
            (case.same, case.model_target) = (1.0, case.model_logged);
        }
        let found = estimates(&cases);
        let (own, _) = logged(&cases);
        assert!((found.doubly_robust.unwrap().value - own.value).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_log_with_too_little_chance_in_it_says_what_it_is_worth() {
        let (cases, _) = log(5, 1_000, 0.1, 0.0);
        let found = estimates(&cases);
        assert!(found.effective_rows < 100.0 && found.largest_weight > 40.0, "{found:?}");
        assert!(found.too_little_support.is_some() && found.doubly_robust.is_none());
    }

    #[test]
    fn chances_that_are_unknown_or_cannot_be_right_are_told() {
        let (cases, _) = log(2, 4_000, 0.5, 0.0);
        let told = |change: fn(f64) -> Option<f64>| {
            let changed =
                |case: &Case| Case { propensity: case.propensity.and_then(change), ..*case };
            estimates(&cases.iter().map(changed).collect::<Vec<_>>()).too_little_support.unwrap()
        };
        assert!(told(|_| None).contains("100 % of the logged decisions were made is not known"));
        assert!(told(|chance| Some(chance / 2.0)).contains("cannot be right"));
    }

    #[test]
    fn rows_that_all_came_out_alike_are_no_certainty() {
        let all =
            vec![Case { reward: 1.0, propensity: Some(1.0), same: 1.0, ..Case::default() }; 300];
        let (own, _) = logged(&all);
        assert!(own.value > 0.999 && (0.985..0.995).contains(&own.low), "{own:?}");
    }
}
