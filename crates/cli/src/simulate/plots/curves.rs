//! Lines per policy: figures against the load, and the distributions of latencies.

use std::iter::once;

use sim::{ClassAbout, Run};

use super::{
    Plot, View, at,
    frame::{Chart, Drawn, Frame, band, guide, label, line, marker, whisker},
    keys,
    scale::Scale,
};
use crate::simulate::figures::{ATTAINMENT, GOODPUT, Load, Measure, Spread};

const SIZE: (u32, u32) = (620, 400);
/// Policies up to which the range over seeds is drawn as a band: more of them would hide each other.
const MAX_BANDS: usize = 10;
/// Shares at which a curve carries its policy's marker.
const MARKED: [f64; 3] = [0.25, 0.5, 0.9];

/// Attainment and goodput against the offered load, where there are several loads.
pub(super) fn against_load(view: &View<'_>) -> anyhow::Result<Vec<Plot>> {
    if view.loads.len() < 2 {
        return Ok(Vec::new());
    }
    Ok(vec![attainment(view)?, goodput(view)?])
}

fn attainment(view: &View<'_>) -> anyhow::Result<Plot> {
    let title = "Share of the requests that met their objective, against the offered load";
    let target = view.report.target * 100.0;
    let y = Scale::around(ends(view, &ATTAINMENT).chain(once(target)), 0.0..100.0);
    let x = offered(view);
    let (from, to) = (view.loads[0].rps, view.loads[view.loads.len() - 1].rps);
    let svg = frame(x, y, "offered load, requests/s", "attainment, % of requests").draw(
        title,
        &view.inks,
        |chart| {
            guide(chart, [(from, target), (to, target)])?;
            per_load(view, chart, &ATTAINMENT)
        },
    )?;
    let caption = format!(
        "{} Dashed grey: the target, {target:.0} %.",
        view.seeds("whiskers from the least seed to the most")
    );
    Ok(plot(view, title, svg, caption))
}

fn goodput(view: &View<'_>) -> anyhow::Result<Plot> {
    let title = "Goodput against the offered load: how much of what comes is served in time";
    let (from, to) = (view.loads[0].rps, view.loads[view.loads.len() - 1].rps);
    let y = Scale::around(ends(view, &GOODPUT).chain(once(to)), 0.0..f64::INFINITY);
    let svg = frame(offered(view), y, "offered load, requests/s", "goodput, requests/s").draw(
        title,
        &view.inks,
        |chart| {
            guide(chart, [(from, from), (to, to)])?;
            per_load(view, chart, &GOODPUT)
        },
    )?;
    let caption = format!(
        "Requests per second that met their objective. {} Dashed grey: all that comes.",
        view.seeds("whiskers from the least seed to the most")
    );
    Ok(plot(view, title, svg, caption))
}

fn plot(view: &View<'_>, title: &str, svg: String, caption: String) -> Plot {
    let keys = keys(view, &view.report.policies);
    Plot { title: title.to_owned(), svgs: vec![svg], caption, keys }
}

fn frame<'a>(x: Scale, y: Scale, x_desc: &'a str, y_desc: &'a str) -> Frame<'a> {
    Frame { size: SIZE, left: 64, right: 20, x, y, x_desc, y_desc }
}

fn offered(view: &View<'_>) -> Scale {
    Scale::around(view.loads.iter().map(|load| load.rps), 0.0..f64::INFINITY)
}

/// Least and most of `measure` of every policy at every load.
fn ends(view: &View<'_>, measure: &'static Measure) -> impl Iterator<Item = f64> {
    view.loads.iter().flat_map(move |load| load.all().filter_map(|run| (measure.of)(run)))
}

fn per_load(view: &View<'_>, chart: &mut Chart<'_, '_>, measure: &Measure) -> Drawn {
    for policy in &view.report.policies {
        let ink = view.inks.of(&policy.name);
        let found = |load: &Load<'_>| Some((load.rps, load.spread(&policy.name, measure)?));
        let points: Vec<_> = view.loads.iter().filter_map(found).collect();
        line(chart, points.iter().map(|(rps, spread)| (*rps, spread.mean)).collect(), ink)?;
        for (rps, spread) in points {
            if spread.most > spread.least {
                whisker(chart, ((rps, spread.least), (rps, spread.most)), ink.color, true)?;
            }
            marker(chart, (rps, spread.mean), ink.color, ink.marker)?;
        }
    }
    Ok(())
}

/// A latency whose distribution is drawn.
struct Latency {
    name: &'static str,
    x_desc: &'static str,
    cdf: fn(&Run) -> &[(f64, f64)],
    objective: fn(&ClassAbout) -> Option<f32>,
}

const LATENCIES: [Latency; 2] = [
    Latency {
        name: "Time to first token (TTFT)",
        x_desc: "TTFT, milliseconds (logarithmic)",
        cdf: |run| &run.ttft_cdf,
        objective: |class| class.ttft_ms,
    },
    Latency {
        name: "Mean time between tokens (ITL)",
        x_desc: "mean ITL of a request, milliseconds (logarithmic)",
        cdf: |run| &run.itl_cdf,
        objective: |class| class.itl_ms,
    },
];

/// The distributions of TTFT and ITL at `load`.
pub(super) fn latencies(view: &View<'_>, load: &Load<'_>) -> anyhow::Result<Vec<Plot>> {
    let drawn =
        LATENCIES.iter().filter_map(|latency| distribution(view, load, latency).transpose());
    drawn.collect()
}

fn distribution(
    view: &View<'_>,
    load: &Load<'_>,
    latency: &Latency,
) -> anyhow::Result<Option<Plot>> {
    let policies = view.policies(load);
    let curves: Vec<_> = policies
        .iter()
        .map(|policy| (view.inks.of(&policy.name), curve(load.runs(&policy.name), latency.cdf)))
        .filter(|(_, curve)| !curve.is_empty())
        .collect();
    if curves.is_empty() {
        return Ok(None);
    }
    let title = format!("{}: share of the requests within it, {}", latency.name, at(load));
    let objectives: Vec<_> = view
        .report
        .classes
        .iter()
        .filter_map(|class| Some((class.name.as_str(), f64::from((latency.objective)(class)?))))
        .collect();
    let ends = curves.iter().flat_map(|(_, curve)| curve.iter().flat_map(|p| [p.least, p.most]));
    let x = Scale::log_around(ends.chain(objectives.iter().map(|(_, ms)| *ms)));
    let (y, ends) = (Scale::linear(0.0, 100.0), x.clone());
    let with_bands = curves.len() <= MAX_BANDS;
    let svg =
        frame(x, y, latency.x_desc, "requests within it, %").draw(&title, &view.inks, |chart| {
            draw_objectives(chart, &objectives, &ends)?;
            for (ink, curve) in &curves {
                if with_bands {
                    let least = curve.iter().map(|p| (p.least, p.percent));
                    let most = curve.iter().rev().map(|p| (p.most, p.percent));
                    band(chart, least.chain(most).collect(), *ink)?;
                }
                line(chart, curve.iter().map(|p| (p.mean, p.percent)).collect(), *ink)?;
                for share in MARKED {
                    if let Some(p) = curve.iter().find(|p| p.percent >= share * 100.0 - 1e-6) {
                        marker(chart, (p.mean, p.percent), ink.color, ink.marker)?;
                    }
                }
            }
            Ok(())
        })?;
    let range = if with_bands { "bands from the least seed to the most" } else { "no range drawn" };
    let mut caption = view.seeds(range);
    if !objectives.is_empty() {
        caption += " Dashed grey: the objective of each class of callers.";
    }
    let keys = keys(view, policies);
    Ok(Some(Plot { title, svgs: vec![svg], caption, keys }))
}

fn draw_objectives(chart: &mut Chart<'_, '_>, objectives: &[(&str, f64)], x: &Scale) -> Drawn {
    for (at, (class, ms)) in objectives.iter().enumerate() {
        guide(chart, [(*ms, 0.0), (*ms, 100.0)])?;
        // One below the other, as objectives may be close together.
        let beside = if x.part(*ms) > 0.8 { -5 } else { 5 };
        label(chart, (*ms, 4.0 + 6.0 * (at % 8) as f64), (beside, 0), class)?;
    }
    Ok(())
}

/// A point of a distribution over seeds.
struct Point {
    percent: f64,
    mean: f64,
    least: f64,
    most: f64,
}

/// The distribution over seeds, share by share. A run with fewer shares, as one in which nothing
/// succeeded, is left out.
fn curve(runs: &[&Run], cdf: fn(&Run) -> &[(f64, f64)]) -> Vec<Point> {
    let shares = runs.iter().map(|run| cdf(run).len()).max().unwrap_or(0);
    let runs: Vec<_> = runs.iter().map(|run| cdf(run)).filter(|c| c.len() == shares).collect();
    let point = |at: usize| {
        // The axis is logarithmic, and so is the mean.
        let logs = runs.iter().map(|cdf| cdf[at].0.max(1e-3).ln());
        let spread = Spread::of(logs)?;
        Some(Point {
            percent: runs.first()?[at].1 * 100.0,
            mean: spread.mean.exp(),
            least: spread.least.exp(),
            most: spread.most.exp(),
        })
    };
    (0..shares).filter_map(point).collect()
}
