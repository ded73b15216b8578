//! What was predicted when a request was placed, against what came.

use sim::Run;

use super::{
    Plot, View, at,
    frame::{Frame, cloud, guide},
    scale::Scale,
};
use crate::simulate::figures::{Load, seeds, told_seeds};

const SIZE: (u32, u32) = (420, 400);
/// Dots of one plot at most: more are thinned evenly.
const MAX_DOTS: usize = 400;

/// A latency that is predicted.
struct Latency {
    name: &'static str,
    x_desc: &'static str,
    y_desc: &'static str,
    /// (predicted, came), milliseconds.
    of: fn(&Run) -> &[(f32, f32)],
}

const LATENCIES: [Latency; 2] = [
    Latency {
        name: "TTFT",
        x_desc: "TTFT that came, ms (logarithmic)",
        y_desc: "predicted TTFT, ms (logarithmic)",
        of: |run| &run.predicted_ttft_ms,
    },
    Latency {
        name: "ITL",
        x_desc: "mean ITL that came, ms (logarithmic)",
        y_desc: "predicted ITL, ms (logarithmic)",
        of: |run| &run.predicted_itl_ms,
    },
];

/// TTFT and ITL of every policy that predicts, at `load`.
pub(super) fn all(view: &View<'_>, load: &Load<'_>) -> anyhow::Result<Vec<Plot>> {
    let policies = view.policies(load);
    let drawn = policies.iter().filter_map(|policy| of(view, load, &policy.name).transpose());
    drawn.collect()
}

fn of(view: &View<'_>, load: &Load<'_>, policy: &str) -> anyhow::Result<Option<Plot>> {
    let title = format!("Predicted against actual TTFT and ITL of {policy}, {}", at(load));
    let mut told = Vec::new();
    let mut svgs = Vec::new();
    for latency in &LATENCIES {
        let pairs = pairs(load.runs(policy), latency.of);
        if let Some(error) = median_error(&pairs) {
            told.push(format!(
                "{} was off by {:.0} % in the median of {} samples",
                latency.name,
                error * 100.0,
                pairs.len()
            ));
            svgs.push(scatter(view, policy, &pairs, latency)?);
        }
    }
    if svgs.is_empty() {
        return Ok(None);
    }
    let caption = format!(
        "Dashed grey: predicted as it came; above it the prediction was too high. {}. From {}, \
         {MAX_DOTS} dots at most.",
        told.join(", "),
        told_seeds(&seeds(view.report))
    );
    Ok(Some(Plot { title, svgs, caption, keys: Vec::new() }))
}

/// The samples of all seeds, less those that a logarithmic axis has no place for.
fn pairs(runs: &[&Run], of: fn(&Run) -> &[(f32, f32)]) -> Vec<(f64, f64)> {
    let all = runs.iter().flat_map(|run| of(run)).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    all.filter(|(a, b)| [a, b].iter().all(|ms| ms.is_finite() && **ms > 0.0)).collect()
}

/// Median of how far predictions were off, as a part of what came.
fn median_error(pairs: &[(f64, f64)]) -> Option<f64> {
    let mut errors: Vec<_> = pairs.iter().map(|(said, came)| (said / came - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied()
}

fn scatter(
    view: &View<'_>,
    policy: &str,
    pairs: &[(f64, f64)],
    latency: &Latency,
) -> anyhow::Result<String> {
    let scale = Scale::log_around(pairs.iter().flat_map(|(said, came)| [*said, *came]));
    let (from, to) = (scale.from(), scale.to());
    let frame = Frame {
        size: SIZE,
        left: 64,
        right: 16,
        x: scale.clone(),
        y: scale,
        x_desc: latency.x_desc,
        y_desc: latency.y_desc,
    };
    let color = view.inks.of(policy).color;
    let every = pairs.len().div_ceil(MAX_DOTS).max(1);
    let title = format!("Predicted against actual {} of {policy}", latency.name);
    frame.draw(&title, &view.inks, |chart| {
        let dots = pairs.iter().step_by(every).map(|(said, came)| (*came, *said));
        cloud(chart, dots, color)?;
        guide(chart, [(from, from), (to, to)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_error_is_a_part_of_what_came() {
        let pairs = [(110.0, 100.0), (150.0, 100.0), (80.0, 100.0)];
        assert!((median_error(&pairs).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(median_error(&[]), None);
    }
}
