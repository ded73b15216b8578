//! The figures as tables: every policy at every load, what searches found, and how decisions were made.

use std::{collections::BTreeMap, fmt::Write as _};

use sim::{PolicyAbout, Run};

use crate::output::escaped;
use crate::simulate::{
    figures::{Better, GOODPUT, Load, MEASURES, Measure, Spread, WEIGHTED_ATTAINMENT},
    plots::{View, named, numbered},
};

/// The figures of the load that the page is about.
pub(super) fn main(view: &View<'_>) -> String {
    let Some(load) = view.load() else { return String::new() };
    format!(
        "<h2>Main figures at {:.1} requests/s</h2>\n{}<p class=\"note\">Mean over seeds, and below it the \
         least and the most. Bold: the best of the policies that can be deployed. Of \
         oracle: goodput as a part of that of the best oracle.</p>\n",
        load.rps,
        figures(view, load)
    )
}

/// The same of every other load, folded away.
pub(super) fn other_loads(view: &View<'_>) -> String {
    if view.loads.len() < 2 {
        return String::new();
    }
    let mut text = String::from("<h2>Figures at the other loads</h2>\n");
    for (_, load) in view.loads.iter().enumerate().filter(|(at, _)| *at != view.shown) {
        let _ = writeln!(
            text,
            "<details><summary>At {:.1} requests/s</summary>{}</details>",
            load.rps,
            figures(view, load)
        );
    }
    text
}

/// A column: a measure, with the figure of the best policy that can be deployed.
struct Column {
    measure: &'static Measure,
    best: Option<f64>,
}

fn figures(view: &View<'_>, load: &Load<'_>) -> String {
    let policies = view.policies(load);
    let columns: Vec<_> = MEASURES
        .into_iter()
        .filter(|measure| is_told(measure, load))
        .map(|measure| Column { measure, best: best(&policies, load, measure) })
        .collect();
    let oracle = best_oracle(&policies, load);
    let mut text = String::from("<div class=\"wide\"><table><tr><th>policy</th>");
    for column in &columns {
        let (name, unit) = (column.measure.name, column.measure.unit);
        let _ = write!(text, "<th>{name}<small>{unit}</small></th>");
    }
    if oracle.is_some() {
        text += "<th>of oracle<small>% of its goodput</small></th>";
    }
    text += "</tr>\n";
    for policy in policies {
        text += if policy.oracle { "<tr class=\"oracle\">" } else { "<tr>" };
        let (swatch, name) = (view.inks.swatch(&policy.name), escaped(&named(policy)));
        let _ = write!(text, "<td>{swatch} {name}</td>");
        for column in &columns {
            text += &cell(column, load.spread(&policy.name, column.measure));
        }
        if let Some(oracle) = oracle {
            let goodput = load.spread(&policy.name, &GOODPUT);
            let part = goodput.map(|goodput| format!("{:.1}", goodput.mean / oracle * 100.0));
            let _ = write!(text, "<td>{}</td>", part.as_deref().unwrap_or("-"));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// Weights that change nothing are not worth a column.
fn is_told(measure: &Measure, load: &Load<'_>) -> bool {
    let same = |run: &Run| (run.attainment - run.weighted_attainment).abs() < 1e-9;
    measure.name != WEIGHTED_ATTAINMENT.name || !load.all().all(same)
}

fn best(policies: &[&PolicyAbout], load: &Load<'_>, measure: &Measure) -> Option<f64> {
    let deployed = policies.iter().filter(|policy| !policy.oracle);
    let means: Vec<_> =
        deployed.filter_map(|p| Some(load.spread(&p.name, measure)?.mean)).collect();
    // Nobody is the best of one.
    let several = means.len() > 1;
    match measure.better {
        Better::More => means.into_iter().reduce(f64::max),
        Better::Less => means.into_iter().reduce(f64::min),
    }
    .filter(|_| several)
}

/// Goodput of the best oracle, if one ran and met any objective.
fn best_oracle(policies: &[&PolicyAbout], load: &Load<'_>) -> Option<f64> {
    let oracles = policies.iter().filter(|policy| policy.oracle);
    let found = oracles.filter_map(|p| Some(load.spread(&p.name, &GOODPUT)?.mean));
    found.reduce(f64::max).filter(|goodput| *goodput > 0.0)
}

fn cell(column: &Column, spread: Option<Spread>) -> String {
    let Some(spread) = spread else { return "<td>-</td>".to_owned() };
    let told = |value| column.measure.told(value);
    let is_best = column.best.is_some_and(|best| told(best) == told(spread.mean));
    let class = if is_best { " class=\"best\"" } else { "" };
    let range = if spread.count > 1 {
        format!("<small>{} to {}</small>", told(spread.least), told(spread.most))
    } else {
        String::new()
    };
    format!("<td{class}>{}{range}</td>", told(spread.mean))
}

/// What the search for the largest rate and the one for the cheapest fleet found.
pub(super) fn searches(view: &View<'_>) -> String {
    let mut text = String::new();
    if !view.report.goodput.is_empty() {
        text += "<h2>Goodput found by search</h2>\n<div class=\"wide\"><table><tr><th>policy</th>\
                 <th>largest rate<small>requests/s</small></th><th>interval<small>95 %, requests/s</small></th>\
                 <th>goodput<small>requests/s</small></th><th>worst class<small>attainment there, %</small></th>\
                 <th>worst tenth<small>x objective</small></th><th>rates tried</th></tr>\n";
        for found in &view.report.goodput {
            let tenth =
                found.worst_tenth_ratio.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{:.2}</td><td>{:.2} to {:.2}</td><td>{:.2}</td><td>{:.1}</td>\
                 <td>{tenth}</td><td>{}</td></tr>",
                escaped(&view.name(&found.policy)),
                found.rate_rps,
                found.interval_rps.0,
                found.interval_rps.1,
                found.goodput_rps,
                found.worst_class_attainment * 100.0,
                found.tried.len()
            );
        }
        text += "</table></div>\n";
    }
    text + &fleets(view)
}

fn fleets(view: &View<'_>) -> String {
    let tried = &view.report.what_if;
    if tried.is_empty() {
        return String::new();
    }
    let numbers = numbered(view);
    let mut text = format!(
        "<h2>Fleets tried</h2>\n<p>{}</p>\n<div class=\"wide\"><table><tr><th>fleet</th><th>policy</th>\
         <th>price<small>per hour</small></th><th>attainment<small>%</small></th><th>holds</th></tr>\n",
        escaped(&cheapest(view))
    );
    for fleet in tried {
        let number = numbers.get(&*fleet.fleet).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "<tr{}><td>{number}. {}</td><td class=\"text\">{}</td><td>{:.2}</td><td>{:.1}</td><td>{}</td></tr>",
            if fleet.holds { " class=\"holds\"" } else { "" },
            escaped(&fleet.fleet),
            escaped(&fleet.policy),
            fleet.price_per_hour,
            fleet.attainment * 100.0,
            if fleet.holds { "yes" } else { "no" }
        );
    }
    text + "</table></div>\n"
}

fn cheapest(view: &View<'_>) -> String {
    let target = view.report.target * 100.0;
    let holding = view.report.what_if.iter().filter(|tried| tried.holds);
    let cheapest = holding.min_by(|a, b| a.price_per_hour.total_cmp(&b.price_per_hour));
    cheapest.map_or_else(
        || format!("None of them holds {target:.0} % with every seed."),
        |tried| {
            format!(
                "The cheapest that holds {target:.0} % with every seed: {} at {:.2} per hour, under {}.",
                tried.fleet, tried.price_per_hour, tried.policy
            )
        },
    )
}

/// Rungs that decided and failures, summed over the seeds of the load shown.
pub(super) fn decisions(view: &View<'_>) -> String {
    let Some(load) = view.load() else { return String::new() };
    let mut text = String::new();
    for (title, of) in [
        ("Which rung decided", (|run| &run.rungs) as fn(&Run) -> &BTreeMap<String, u64>),
        ("What failed", |run| &run.errors),
    ] {
        let rows: String = view
            .policies(load)
            .into_iter()
            .filter_map(|policy| {
                let told = sums(load.runs(&policy.name), of)?;
                let name = escaped(&named(policy));
                Some(format!(
                    "<tr><td>{name}</td><td class=\"text\">{}</td></tr>\n",
                    escaped(&told)
                ))
            })
            .collect();
        if !rows.is_empty() {
            let _ = write!(
                text,
                "<h2>{title} at {:.1} requests/s</h2>\n<div class=\"wide\"><table><tr><th>policy</th>\
                 <th>requests of all seeds</th></tr>\n{rows}</table></div>\n",
                load.rps
            );
        }
    }
    text
}

fn sums(runs: &[&Run], of: fn(&Run) -> &BTreeMap<String, u64>) -> Option<String> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (name, count) in runs.iter().flat_map(|run| of(run)) {
        *sums.entry(name).or_default() += count;
    }
    let told: Vec<_> = sums.iter().map(|(name, count)| format!("{name} {count}")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}
