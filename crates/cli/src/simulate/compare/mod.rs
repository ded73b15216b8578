//! What changed between two reports of the laboratory, as text that fits a terminal.

mod change;
mod differing;
mod text;

use std::{collections::BTreeMap, fmt::Write as _};

use sim::{Goodput, LabReport};

use self::{
    change::{Change, Verdict, table},
    differing::differing,
    text::{WIDTH, folded, shortened},
};
use super::figures::{Better, Load, MEASURES, Measure, Spread, loads, seeds, told_seeds};

/// Part by which two rates may differ and still be one load: seeds differ in how many requests come.
const SAME_RATE: f64 = 0.05;

/// The comparison: first what was not the same, then what changed for each policy at each load.
pub(super) fn compare(before: &LabReport, after: &LabReport) -> String {
    let mut text = format!("before: {}\nafter:  {}\n", head(before), head(after));
    let differing = differing(before, after);
    if !differing.is_empty() {
        text += "\nNot the same question, so that figures differ for more than one reason:\n";
        for line in differing {
            text += &folded(&format!("  {line}"));
        }
    }
    let (blocks, counts) = at_loads(before, after);
    let (searched, counts) = searches(before, after, counts);
    text += &summary(&counts);
    text + &blocks + &searched + &fleets(before, after)
}

fn head(report: &LabReport) -> String {
    let (policies, loads) = (report.policies.len(), loads(report).len());
    let plural = |count: usize, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    let told = format!(
        "{}: {}, {}, {}",
        report.scenario,
        plural(policies, "policy", "policies"),
        plural(loads, "load", "loads"),
        told_seeds(&seeds(report))
    );
    shortened(&told, WIDTH - 8)
}

/// How many figures changed, by what it means.
type Counts = BTreeMap<Verdict, usize>;

fn summary(counts: &Counts) -> String {
    let count = |verdict| counts.get(&verdict).copied().unwrap_or(0);
    let all: usize = counts.values().sum();
    if all == 0 {
        return "\nNothing stands in both reports.\n".to_owned();
    }
    if count(Verdict::Same) == all {
        return format!("\nNothing changed: all {all} figures are the same.\n");
    }
    let mut parts = Vec::new();
    let pairs = [
        (Verdict::BetterBeyond, Verdict::WorseBeyond, "beyond the spread over seeds"),
        (Verdict::BetterWithin, Verdict::WorseWithin, "within it"),
        (
            Verdict::BetterOneSeed,
            Verdict::WorseOneSeed,
            "with one seed, so that chance is not ruled out",
        ),
    ];
    for (better, worse, which) in pairs {
        if count(better) + count(worse) > 0 {
            parts.push(format!("{} better and {} worse {which}", count(better), count(worse)));
        }
    }
    parts.push(format!("{} the same", count(Verdict::Same)));
    folded(&format!(
        "\nOf {all} figures: {}. Beyond: no seed of one report is within the range of the other.",
        parts.join("; ")
    ))
}

fn at_loads(before: &LabReport, after: &LabReport) -> (String, Counts) {
    let (was, is) = (loads(before), loads(after));
    let mut text = String::new();
    let mut counts = Counts::new();
    for load in &was {
        let Some(same) = nearest(load, &is) else {
            let _ = writeln!(text, "\nAt {:.2} requests/s: only before", load.rps);
            continue;
        };
        text += "\n";
        text += &rates(load.rps, same.rps);
        let mut policies = Vec::new();
        for policy in &before.policies {
            let changes: Vec<_> = MEASURES
                .iter()
                .filter_map(|measure| {
                    let was = load.spread(&policy.name, measure)?;
                    Some(Change::of(measure, was, same.spread(&policy.name, measure)?))
                })
                .collect();
            for change in &changes {
                *counts.entry(change.verdict).or_default() += 1;
            }
            policies.push((policy.name.as_str(), changes));
        }
        text += &table(&policies);
    }
    for load in is.iter().filter(|load| nearest(load, &was).is_none()) {
        let _ = writeln!(text, "\nAt {:.2} requests/s: only after", load.rps);
    }
    (text, counts)
}

fn rates(before: f64, after: f64) -> String {
    if format!("{before:.2}") == format!("{after:.2}") {
        return format!("At {before:.2} requests/s\n");
    }
    format!("At {before:.2} requests/s before and {after:.2} after\n")
}

/// The load of `among` that is the same as `load`, if one is.
fn nearest<'a, 'b>(load: &Load<'_>, among: &'b [Load<'a>]) -> Option<&'b Load<'a>> {
    let off = |other: &Load<'_>| (other.rps - load.rps).abs();
    let near = among.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
    (off(near) <= SAME_RATE * load.rps.max(near.rps)).then_some(near)
}

/// The largest rate, judged by its interval rather than by the range over seeds.
const RATE: Measure = Measure {
    name: "largest rate that holds",
    unit: "requests/s",
    better: Better::More,
    digits: 2,
    of: |_| None,
};

fn searches(before: &LabReport, after: &LabReport, mut counts: Counts) -> (String, Counts) {
    let spread = |found: &Goodput| {
        let (least, most) = found.interval_rps;
        // The interval is there with one seed too: it is then the last bracket of the search.
        Spread { mean: found.rate_rps, least, most, count: 2 }
    };
    let mut policies = Vec::new();
    for was in &before.goodput {
        if let Some(is) = after.goodput.iter().find(|found| found.policy == was.policy) {
            let change = Change::of(&RATE, spread(was), spread(is));
            *counts.entry(change.verdict).or_default() += 1;
            policies.push((was.policy.as_str(), vec![change]));
        }
    }
    if policies.is_empty() {
        return (String::new(), counts);
    }
    let text = format!("\nGoodput found by search, with its interval\n{}", table(&policies));
    (text, counts)
}

fn fleets(before: &LabReport, after: &LabReport) -> String {
    if before.what_if.is_empty() && after.what_if.is_empty() {
        return String::new();
    }
    let cheapest = |report: &LabReport| {
        let holding = report.what_if.iter().filter(|tried| tried.holds);
        let cheapest = holding.min_by(|a, b| a.price_per_hour.total_cmp(&b.price_per_hour));
        cheapest.map_or_else(
            || "none".to_owned(),
            |tried| {
                format!(
                    "{} at {:.2} per hour, under {}",
                    tried.fleet, tried.price_per_hour, tried.policy
                )
            },
        )
    };
    let (was, is) = (cheapest(before), cheapest(after));
    if was == is {
        return folded(&format!("\nCheapest fleet that holds the target, before and after: {was}"));
    }
    folded(&format!("\nCheapest fleet that holds the target: {was} -> {is}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::made;

    fn fits(text: &str) {
        let wide = text.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(wide, None);
    }

    #[test]
    fn a_report_is_the_same_as_itself() {
        let report = made::report();
        let text = compare(&report, &report);
        fits(&text);
        assert!(text.contains("Nothing changed: all "), "{text}");
        assert!(!text.contains("Not the same question"));
        assert!(text.contains("nothing changed: slackline, "));
    }

    #[test]
    fn a_change_is_told_apart_from_the_spread_over_seeds() {
        let before = made::report();
        let mut after = before.clone();
        for run in after.runs.iter_mut().filter(|run| run.policy == "llm-d tuned") {
            run.hit_ratio += 0.2;
            run.hot_spot_ratio += 0.001;
        }
        let text = compare(&before, &after);
        fits(&text);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
        let hits = line("prefix hits, % of prompt tokens");
        assert!(hits.contains("+20.0") && hits.contains("better, beyond"), "{hits}");
        let spots = line("hot spot, x mean of its class");
        assert!(spots.contains("+0.00") && spots.contains("worse, within"), "{spots}");
        assert!(text.contains("14 more the same"), "{text}");
        assert!(text.contains("4 better and 0 worse beyond the spread over seeds"), "{text}");
        assert!(text.contains("0 better and 4 worse within it"), "{text}");
    }

    #[test]
    fn what_is_not_the_same_question_is_said_first() {
        let before = made::report();
        let mut after = before.clone();
        after.scenario = "other".to_owned();
        after.fleet = "8 H100-SXM llama-3.1-8b".to_owned();
        after.workload = "ServeGen ".repeat(40);
        after.target = 0.95;
        after.classes[0].ttft_ms = Some(500.0);
        after.policies[1].about = "Something else.".to_owned();
        after.policies[2].name = "new".to_owned();
        let text = compare(&before, &after);
        fits(&text);
        let first = text.find("Not the same question").unwrap();
        assert!(first < text.find("\nAt ").unwrap());
        for said in [
            "scenario: mixed-fleet -> other",
            "8 H100-SXM llama-3.1-8b",
            "target: 0.9 -> 0.95",
            "TTFT 500 ms",
            "policy slackline without harm: ",
            "policies only before: llm-d tuned",
            "policies only after: new",
        ] {
            assert!(text.contains(said), "no `{said}` in {text}");
        }
    }

    #[test]
    fn one_seed_says_nothing_of_chance() {
        let before = made::single();
        let mut after = before.clone();
        after.runs[0].attainment -= 0.1;
        let text = compare(&before, &after);
        fits(&text);
        assert!(text.contains("0 better and 1 worse with one seed"), "{text}");
        assert!(text.contains("-10.0  worse\n"), "{text}");
    }

    #[test]
    fn loads_that_only_one_report_has_are_named() {
        let mut after = made::report();
        for run in &mut after.runs {
            run.offered_rps *= 1.5;
        }
        let text = compare(&made::report(), &after);
        fits(&text);
        assert!(text.contains("requests/s: only before"), "{text}");
        assert!(text.contains("requests/s: only after"), "{text}");
    }

    #[test]
    fn the_largest_rate_is_judged_by_its_interval() {
        let before = made::report();
        let mut after = before.clone();
        let found = &mut after.goodput[0];
        found.rate_rps += 3.0;
        found.interval_rps = (found.interval_rps.0 + 3.0, found.interval_rps.1 + 3.0);
        after.what_if.clear();
        let text = compare(&before, &after);
        fits(&text);
        let line = text.lines().find(|line| line.contains("largest rate that holds")).unwrap();
        assert!(line.contains("+3.00") && line.ends_with("better, beyond"), "{line}");
        assert!(
            text.contains("Cheapest fleet that holds the target: 4 H100-SXM at 11.60"),
            "{text}"
        );
        assert!(text.contains("-> none"), "{text}");
    }

    #[test]
    fn empty_reports_and_long_names_are_no_trouble() {
        fits(&compare(&LabReport::default(), &LabReport::default()));
        let mut before = made::report();
        for run in &mut before.runs {
            run.policy = run.policy.repeat(12);
            run.ttft_ms.p99 = run.ttft_ms.p99.map(|ms| ms * 1e6);
        }
        for policy in &mut before.policies {
            policy.name = policy.name.repeat(12);
        }
        let mut after = before.clone();
        for run in &mut after.runs {
            run.attainment *= 0.9;
            run.ttft_ms.p99 = run.ttft_ms.p99.map(|ms| ms * 1.1);
        }
        fits(&compare(&before, &after));
    }
}
