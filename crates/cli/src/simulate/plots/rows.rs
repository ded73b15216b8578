//! One row per policy: what a figure came to, with its range over seeds.

use std::collections::BTreeSet;

use sim::{LabReport, PolicyAbout, Run};

use super::{
    Plot, View, at,
    frame::{Chart, Drawn, Frame, guide, label, lying, marker, whisker},
    ink::{GLYPHS, Marker, glyph},
    named,
    scale::Scale,
};
use crate::simulate::figures::{COST, HIT_RATIO, HOT_SPOT, Load, Measure, Spread, WORST_TENTH};

const WIDTH: u32 = 620;
/// Height of a row, of one with several markers, and of all that is not a row.
const ROW: u32 = 24;
const TALL_ROW: u32 = 34;
const AROUND: u32 = 64;
/// Letters of a name that are shown beside its row, and the width of one.
const MAX_LETTERS: usize = 28;
const LETTER: u32 = 7;

/// A plot of rows without its contents.
struct Rows<'a> {
    title: String,
    names: Vec<String>,
    x: Scale,
    x_desc: &'a str,
    /// A value that is drawn as an upright line.
    mark: Option<f64>,
    row: u32,
}

impl Rows<'_> {
    fn draw(
        self,
        view: &View<'_>,
        fill: impl FnOnce(&mut Chart<'_, '_>) -> Drawn,
    ) -> anyhow::Result<String> {
        let names: Vec<_> = self.names.iter().map(|name| shortened(name)).collect();
        let count = names.len();
        let letters = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let from = self.x.clone();
        let frame = Frame {
            size: (WIDTH, AROUND + self.row * count as u32),
            left: letters as u32 * LETTER + 26,
            right: 70,
            y: Scale::rows(count),
            x: self.x,
            x_desc: self.x_desc,
            y_desc: "",
        };
        frame.draw(&self.title, &view.inks, |chart| {
            if let Some(mark) = self.mark.filter(|mark| from.holds(*mark)) {
                guide(chart, [(mark, -0.5), (mark, count as f64 - 0.5)])?;
            }
            for (row, name) in names.iter().enumerate() {
                label(chart, (f64::MIN, row as f64), (-8, 0), name)?;
            }
            fill(chart)
        })
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_LETTERS {
        return name.to_owned();
    }
    name.chars().take(MAX_LETTERS - 1).chain(['…']).collect()
}

/// A figure that is drawn for the load shown.
struct Drawing {
    measure: &'static Measure,
    title: &'static str,
    x_desc: &'static str,
    caption: &'static str,
    mark: Option<f64>,
    /// The figure is a part of a whole, in percent.
    is_part: bool,
}

const DRAWINGS: [Drawing; 4] = [
    Drawing {
        measure: &WORST_TENTH,
        title: "How late the worst tenth of the requests were",
        x_desc: "latency of the worst tenth, multiples of the objective",
        caption: "Mean, over the worst tenth of the requests, of TTFT or mean ITL, whichever is later for \
                  its objective. Dashed grey: just in time. Further left is better.",
        mark: Some(1.0),
        is_part: false,
    },
    Drawing {
        measure: &HIT_RATIO,
        title: "How much of the prompts was found in prefix caches",
        x_desc: "prefix hits, % of prompt tokens",
        caption: "More is less work, but not by itself better: a warm endpoint may be a busy one.",
        mark: None,
        is_part: true,
    },
    Drawing {
        measure: &HOT_SPOT,
        title: "Hot spots: how unevenly the work was spread",
        x_desc: "work of the busiest endpoint, multiples of the mean",
        caption: "Work is prompt tokens not found in a cache, and output tokens; the mean is that of the \
                  endpoints of its accelerator class. Dashed grey: even. Further left is more even.",
        mark: Some(1.0),
        is_part: false,
    },
    Drawing {
        measure: &COST,
        title: "What a million output tokens cost that came in time",
        x_desc: "price per million tokens in time, currency of the scenario",
        caption: "Counted are output tokens of requests that met their objective; paid for is the whole \
                  fleet. Further left is better.",
        mark: None,
        is_part: false,
    },
];

/// The figures above for `load`.
pub(super) fn figures(view: &View<'_>, load: &Load<'_>) -> anyhow::Result<Vec<Plot>> {
    let drawn = DRAWINGS.iter().filter_map(|drawing| figure(view, load, drawing).transpose());
    drawn.collect()
}

fn figure(view: &View<'_>, load: &Load<'_>, of: &Drawing) -> anyhow::Result<Option<Plot>> {
    let found: Vec<_> = view
        .policies(load)
        .into_iter()
        .filter_map(|policy| Some((policy, load.spread(&policy.name, of.measure)?)))
        .collect();
    if found.is_empty() {
        return Ok(None);
    }
    let ends = found.iter().flat_map(|(_, spread)| [spread.least, spread.most]).chain(of.mark);
    let rows = Rows {
        title: format!("{}, {}", of.title, at(load)),
        names: found.iter().map(|(policy, _)| named(policy)).collect(),
        x: if of.is_part { Scale::around(ends, 0.0..100.0) } else { Scale::around_ratios(ends) },
        x_desc: of.x_desc,
        mark: of.mark,
        row: ROW,
    };
    let title = rows.title.clone();
    let svg = rows.draw(view, |chart| {
        for (row, (policy, spread)) in found.iter().enumerate() {
            let ink = view.inks.of(&policy.name);
            lying(chart, (spread, row as f64), ink.color, ink.marker)?;
            label(chart, (f64::MAX, row as f64), (8, 0), &of.measure.told(spread.mean))?;
        }
        Ok(())
    })?;
    let seeds = view.seeds("whiskers from the least seed to the most");
    let caption = format!("{} {seeds}", of.caption);
    Ok(Some(Plot { title, svgs: vec![svg], caption, keys: Vec::new() }))
}

/// A figure that a run has several of, by name.
struct Several<'a> {
    title: String,
    x_desc: &'a str,
    caption: &'a str,
    names: Vec<String>,
    mark: Option<f64>,
    of: fn(&Run, &str) -> Option<f64>,
}

/// Attainment of each class of callers.
pub(super) fn by_class(view: &View<'_>, load: &Load<'_>) -> anyhow::Result<Option<Plot>> {
    let several = Several {
        title: format!("Attainment of each class of callers, {}", at(load)),
        x_desc: "attainment, % of the requests of the class",
        caption: "Shows whether one class pays for another. Dashed grey: the target.",
        names: named_classes(view.report, load),
        mark: Some(view.report.target * 100.0),
        of: |run, class| {
            let class = run.by_class.get(class).filter(|class| class.requests > 0)?;
            Some(class.attainment * 100.0)
        },
    };
    draw_several(view, load, several)
}

/// Share of the time that each accelerator class was busy.
pub(super) fn utilization(view: &View<'_>, load: &Load<'_>) -> anyhow::Result<Option<Plot>> {
    let names: BTreeSet<_> = load.all().flat_map(|run| run.utilization.keys()).cloned().collect();
    let several = Several {
        title: format!("How busy each accelerator class was, {}", at(load)),
        x_desc: "time in which steps ran, %",
        caption: "An idle class beside a busy one is capacity that the policy does not find.",
        names: names.into_iter().collect(),
        mark: None,
        of: |run, class| run.utilization.get(class).map(|busy| busy * 100.0),
    };
    draw_several(view, load, several)
}

/// Classes of callers in the scenario's order, then any that only runs know.
fn named_classes(report: &LabReport, load: &Load<'_>) -> Vec<String> {
    let mut names: Vec<_> = report.classes.iter().map(|class| class.name.clone()).collect();
    for name in load.all().flat_map(|run| run.by_class.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn draw_several(
    view: &View<'_>,
    load: &Load<'_>,
    several: Several<'_>,
) -> anyhow::Result<Option<Plot>> {
    let found = |policy: &PolicyAbout| {
        let runs = load.runs(&policy.name);
        let spread =
            |name: &String| Spread::of(runs.iter().filter_map(|run| (several.of)(run, name)));
        several.names.iter().map(spread).collect::<Vec<_>>()
    };
    let policies = view.policies(load);
    let found: Vec<_> = policies.iter().map(|policy| found(policy)).collect();
    let ends = found.iter().flatten().flatten().flat_map(|spread| [spread.least, spread.most]);
    if ends.clone().next().is_none() {
        return Ok(None);
    }
    let rows = Rows {
        title: several.title,
        names: policies.iter().map(|policy| named(policy)).collect(),
        x: Scale::around(ends.chain(several.mark), 0.0..100.0),
        x_desc: several.x_desc,
        mark: several.mark,
        row: if several.names.len() > 1 { TALL_ROW } else { ROW },
    };
    let title = rows.title.clone();
    let count = several.names.len();
    let svg = rows.draw(view, |chart| {
        for (row, (policy, found)) in policies.iter().zip(&found).enumerate() {
            let color = view.inks.of(&policy.name).color;
            for (at, spread) in found.iter().enumerate() {
                // Side by side within the row, so that equal ones do not hide each other.
                let y = row as f64 + ((at as f64 + 0.5) / count as f64 - 0.5) * 0.7;
                if let Some(spread) = spread {
                    lying(chart, (spread, y), color, GLYPHS[at % GLYPHS.len()])?;
                }
            }
        }
        Ok(())
    })?;
    let seeds = view.seeds("whiskers from the least seed to the most");
    let caption = format!("{} {seeds}", several.caption);
    let key = |(at, name)| (glyph(GLYPHS[at % GLYPHS.len()]), name);
    let keys = several.names.into_iter().enumerate().map(key).collect();
    Ok(Some(Plot { title, svgs: vec![svg], caption, keys }))
}

/// The largest rate that each policy carries, where it was searched for.
pub(super) fn goodput(view: &View<'_>) -> anyhow::Result<Option<Plot>> {
    let found = &view.report.goodput;
    if found.is_empty() {
        return Ok(None);
    }
    let ends = found.iter().flat_map(|of| {
        of.by_seed.iter().copied().chain([of.rate_rps, of.interval_rps.0, of.interval_rps.1])
    });
    let rows = Rows {
        title: format!(
            "Largest rate at which each policy keeps {:.0} % of the requests within their objective",
            view.report.target * 100.0
        ),
        names: found.iter().map(|of| view.name(&of.policy)).collect(),
        x: Scale::around(ends, 0.0..f64::INFINITY),
        x_desc: "rate found by search, requests/s",
        mark: None,
        row: ROW,
    };
    let title = rows.title.clone();
    let svg = rows.draw(view, |chart| {
        for (row, of) in found.iter().enumerate() {
            let (y, ink) = (row as f64, view.inks.of(&of.policy));
            let (low, high) = of.interval_rps;
            whisker(chart, ((low, y), (high, y)), ink.color, false)?;
            for rate in &of.by_seed {
                marker(chart, (*rate, y - 0.28), ink.color, Marker::Tick)?;
            }
            marker(chart, (of.rate_rps, y), ink.color, ink.marker)?;
            label(chart, (f64::MAX, y), (8, 0), &format!("{:.2}", of.rate_rps))?;
        }
        Ok(())
    })?;
    let caption = "Marker: mean over seeds. Whiskers: where that mean lies with 95 % confidence, or within \
                   the last bracket of the search with one seed. Ticks above: the rate found with each seed."
        .to_owned();
    Ok(Some(Plot { title, svgs: vec![svg], caption, keys: Vec::new() }))
}
