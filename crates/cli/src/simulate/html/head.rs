//! What a reader must know before any figure: the question, the answer in a sentence, and the caveats.

use std::fmt::Write as _;

use sim::{ClassAbout, PolicyAbout};

use crate::output::escaped;
use crate::simulate::{
    figures::{ATTAINMENT, Load, Spread, seeds, told_seeds},
    plots::{View, named},
};

/// Title, finding, fleet, workload and classes.
pub(super) fn text(view: &View<'_>) -> String {
    let report = view.report;
    let scenario = if report.scenario.is_empty() { "no scenario" } else { &report.scenario };
    let mut text = format!("<h1>Policies on {}</h1>\n", escaped(scenario));
    if !report.about.is_empty() {
        let _ = writeln!(text, "<p>{}</p>", escaped(&report.about));
    }
    let _ = writeln!(text, "<p class=\"finding\">{}</p>", escaped(&finding(view)));
    text + &facts(view)
}

/// What is not modelled or only estimated.
pub(super) fn caveats(view: &View<'_>) -> String {
    if view.report.caveats.is_empty() {
        return String::new();
    }
    let items = view.report.caveats.iter().map(|caveat| format!("<li>{}</li>", escaped(caveat)));
    format!("<h2>To bear in mind</h2>\n<ul>{}</ul>\n", items.collect::<String>())
}

/// The answer in words: who is best, by how much, and how far the best possible is.
fn finding(view: &View<'_>) -> String {
    let Some(load) = view.load() else {
        return searched(view);
    };
    let ranked = |oracle: bool| {
        let policies = view.policies(load).into_iter().filter(|policy| policy.oracle == oracle);
        let found = policies.filter_map(|p| Some((p, load.spread(&p.name, &ATTAINMENT)?)));
        let mut found: Vec<_> = found.collect();
        found.sort_by(|(_, a), (_, b)| b.mean.total_cmp(&a.mean));
        found
    };
    let deployed = ranked(false);
    let Some((best, spread)) = deployed.first() else {
        return "Nothing ended.".to_owned();
    };
    let mut text =
        format!("{}, {} meets the objective of {}", at(view, load), best.name, percent(spread));
    if let Some((next, of_next)) = deployed.get(1) {
        let apart = if spread.overlaps(of_next) { ", within the spread over seeds" } else { "" };
        let _ = write!(text, "; next is {} with {:.1} %{apart}", next.name, of_next.mean);
    }
    if let Some((oracle, of_oracle)) = ranked(true).first() {
        let _ =
            write!(text, "; {}, which no router can match, {:.1} %", oracle.name, of_oracle.mean);
    }
    text + "."
}

fn searched(view: &View<'_>) -> String {
    let report = view.report;
    let oracle = |name: &str| report.policies.iter().any(|p| p.oracle && p.name == name);
    let deployed = report.goodput.iter().filter(|found| !oracle(&found.policy));
    let best = deployed.max_by(|a, b| a.rate_rps.total_cmp(&b.rate_rps));
    let cheapest = report.what_if.iter().find(|tried| tried.holds);
    let target = report.target * 100.0;
    match (best, cheapest) {
        (Some(best), _) => format!(
            "{} holds {target:.0} % up to {:.2} requests/s, the most of those that can be deployed.",
            best.policy, best.rate_rps
        ),
        (None, Some(tried)) => format!(
            "The cheapest fleet that holds {target:.0} % is {} at {:.2} per hour, under {}.",
            tried.fleet, tried.price_per_hour, tried.policy
        ),
        (None, None) if report.what_if.is_empty() => "Nothing ran.".to_owned(),
        (None, None) => format!("No fleet that was tried holds {target:.0} %."),
    }
}

fn at(view: &View<'_>, load: &Load<'_>) -> String {
    let which = match view.loads.len() {
        1 => "",
        _ if view.shown == 0 => ", the least load",
        _ => ", the largest load at which a policy holds the target",
    };
    format!("At {:.1} requests/s{which}", load.rps)
}

fn percent(spread: &Spread) -> String {
    if spread.count < 2 {
        return format!("{:.1} % of the requests", spread.mean);
    }
    format!(
        "{:.1} % of the requests ({:.1} to {:.1} % over seeds)",
        spread.mean, spread.least, spread.most
    )
}

fn facts(view: &View<'_>) -> String {
    let report = view.report;
    let rates: Vec<_> = view.loads.iter().map(|load| format!("{:.1}", load.rps)).collect();
    let mut facts = vec![
        ("Fleet", report.fleet.clone()),
        ("Workload", report.workload.clone()),
        (
            "Target",
            format!("{:.0} % of the requests within their objective", report.target * 100.0),
        ),
    ];
    if !rates.is_empty() {
        facts.push(("Loads", format!("{} requests/s", rates.join(", "))));
    }
    let told: Vec<_> = report.classes.iter().map(told_class).collect();
    facts.extend(told.into_iter().map(|told| ("Class", told)));
    let seeds = seeds(report);
    if !seeds.is_empty() {
        facts.push(("Seeds", told_seeds(&seeds)));
    }
    let mut text = String::from("<dl>");
    for (name, said) in facts.iter().filter(|(_, said)| !said.is_empty()) {
        let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(said));
    }
    text + "</dl>\n"
}

/// A class in words, such as `chat: TTFT within 400 ms, mean ITL within 30 ms; a miss weighs 4`.
fn told_class(class: &ClassAbout) -> String {
    let ceiling = |name: &str, ms: Option<f32>| ms.map(|ms| format!("{name} within {ms} ms"));
    let ceilings = [ceiling("TTFT", class.ttft_ms), ceiling("mean ITL", class.itl_ms)];
    let ceilings: Vec<_> = ceilings.into_iter().flatten().collect();
    let promised =
        if ceilings.is_empty() { "nothing is promised".to_owned() } else { ceilings.join(", ") };
    format!("{}: {promised}; a miss weighs {}", class.name, class.weight)
}

/// Which policy is what, and how it is drawn.
pub(super) fn policies(view: &View<'_>) -> String {
    if view.report.policies.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h2>Policies</h2>\n<div class=\"wide\"><table class=\"plain\">");
    let row = |policy: &PolicyAbout| {
        format!(
            "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n",
            view.inks.swatch(&policy.name),
            escaped(&named(policy)),
            escaped(&policy.about)
        )
    };
    text.extend(view.report.policies.iter().map(row));
    text + "</table></div>\n<p class=\"note\">A policy has the same colour, dash and marker in every plot. \
            Oracles know what no router can know, and are dashed.</p>\n"
}
