//! What one simulation came to, as an entry of a report.

use std::{collections::BTreeMap, time::Duration};

use predict::ClassError;

use super::{
    fleet::Fleet,
    report::{ClassRun, Run},
};
use crate::{
    fleet::{ClassDetail, Detail, Simulated},
    report::Latencies,
};

/// Shares at which distributions are told, in percent.
const CDF_PERCENT: [f64; 29] = [
    0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0,
    65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0, 99.5, 99.9,
];

/// What is known of a run beside what came of it.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub(super) policy: &'a str,
    pub(super) seed: u64,
    pub(super) fleet: &'a Fleet,
    pub(super) warm_up: Duration,
}

/// The entry of a simulation.
pub(super) fn judge(setting: &Setting<'_>, simulated: Simulated) -> Run {
    let Simulated { report, detail, errors, steps, .. } = simulated;
    let span = detail.span.saturating_sub(setting.warm_up);
    let rate = |count: u64| {
        if span.is_zero() { 0.0 } else { count as f64 / span.as_secs_f64() }
    };
    let cost = setting.fleet.cost(detail.span, true) - setting.fleet.cost(setting.warm_up, true);
    let met_mtokens = detail.met_output_tokens as f64 / 1e6;
    let weighted = |of: fn(&ClassDetail) -> u64| -> f64 {
        detail.classes.iter().map(|class| f64::from(class.weight) * of(class) as f64).sum()
    };
    Run {
        policy: setting.policy.to_owned(),
        seed: setting.seed,
        offered_rps: rate(detail.all.requests),
        requests: detail.all.requests,
        attainment: ratio(detail.all.met as f64, detail.all.requests as f64),
        weighted_attainment: ratio(weighted(|class| class.met), weighted(|class| class.requests)),
        goodput_rps: rate(detail.all.met),
        ttft_ms: report.ttft_ms,
        itl_ms: report.itl_ms,
        e2e_ms: report.e2e_ms,
        worst_tenth_ratio: detail.all.worst_tenth_ratio,
        by_class: detail.classes.iter().map(class_run).collect(),
        ttft_cdf: cdf(&detail.all.ttft),
        itl_cdf: cdf(&detail.all.itl),
        hit_ratio: ratio(detail.cached_tokens as f64, detail.prompt_tokens as f64),
        utilization: utilization(&detail),
        share: report.share,
        hot_spot_ratio: hot_spot(&detail),
        cost,
        cost_per_met_mtoken: (cost > 0.0 && met_mtokens > 0.0).then(|| cost / met_mtokens),
        errors: report.errors,
        rungs: detail.rungs.iter().map(|(rung, count)| ((*rung).to_owned(), *count)).collect(),
        predicted_ttft_ms: detail.predicted.iter().map(|sample| sample.ttft_ms).collect(),
        predicted_itl_ms: detail.predicted.iter().filter_map(|sample| sample.itl_ms).collect(),
        model_error: model_error(&errors),
        steps,
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn class_run(class: &ClassDetail) -> (String, ClassRun) {
    let run = ClassRun {
        requests: class.requests,
        attainment: ratio(class.met as f64, class.requests as f64),
        ttft_ms: class.ttft.quantiles(),
        itl_ms: class.itl.quantiles(),
        worst_tenth_ratio: class.worst_tenth_ratio,
    };
    (class.name.clone(), run)
}

fn cdf(latencies: &Latencies) -> Vec<(f64, f64)> {
    let point = |percent: f64| Some((latencies.quantile(percent / 100.0)?, percent / 100.0));
    CDF_PERCENT.into_iter().filter_map(point).collect()
}

/// Busy time of each accelerator class over the time until everything had ended.
fn utilization(detail: &Detail) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::<_, (f64, f64)>::new();
    for member in &detail.members {
        let (busy, whole) = sums.entry(member.accelerator.clone()).or_default();
        *busy += member.busy.as_secs_f64();
        *whole += detail.end.as_secs_f64();
    }
    sums.into_iter().map(|(class, (busy, whole))| (class, ratio(busy, whole).min(1.0))).collect()
}

/// The most tokens that an endpoint had, over the mean of its accelerator class.
fn hot_spot(detail: &Detail) -> f64 {
    let mut classes = BTreeMap::<_, (u64, u64, u64)>::new();
    for member in &detail.members {
        let (most, sum, count) = classes.entry(&*member.accelerator).or_default();
        *most = member.tokens.max(*most);
        *sum += member.tokens;
        *count += 1;
    }
    let of = |(most, sum, count): (u64, u64, u64)| ratio((most * count) as f64, sum as f64);
    classes.into_values().map(of).fold(0.0, f64::max)
}

/// Mean error of each class and target, and over all classes by their labels.
fn model_error(errors: &[ClassError]) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut sums = BTreeMap::<_, (f64, f64)>::new();
    for error in errors {
        // The accelerator in `model/accelerator/role`; a model's name may have a slash.
        let class = error.class.rsplit('/').nth(1).unwrap_or(&error.class);
        for (target, of) in [("ttft", &error.ttft), ("itl", &error.itl)] {
            let Some(mape) = of.mean_error.filter(|error| error.is_finite()) else { continue };
            figures.insert(format!("{class} {target}_mape_ratio"), f64::from(mape));
            let (sum, labels) = sums.entry(format!("{target}_mape_ratio")).or_default();
            *sum += f64::from(mape) * f64::from(of.labels);
            *labels += f64::from(of.labels);
        }
    }
    figures.extend(sums.into_iter().map(|(key, (sum, labels))| (key, ratio(sum, labels))));
    figures
}
