//! The laboratory's report as text that fits a terminal.

use std::fmt::Write as _;

use sim::{FleetTried, Goodput, LabReport, Run, Timed};

/// Widest line.
const WIDTH: usize = 110;
/// Widest name of a policy that is shown whole where there is room.
const MOST_NAME: usize = 24;
/// Lines of a search for the cheapest fleet.
const MOST_FLEETS: usize = 30;

/// The whole report.
pub(super) fn text(report: &LabReport) -> String {
    let mut text = head(report);
    for rate in loads(report) {
        let _ = writeln!(text, "\n{}", rate.title);
        text += &policies(report, &rate.runs);
    }
    if !report.goodput.is_empty() {
        text += &goodput(report);
    }
    if !report.what_if.is_empty() {
        text += &what_if(report);
    }
    for caveat in &report.caveats {
        text += &folded(&format!("note: {caveat}"));
    }
    text
}

/// What decisions took.
pub(super) fn timing(timed: &[Timed]) -> String {
    let header = ["TIME PER DECISION", "DECISIONS", "MEAN us"].map(str::to_owned);
    let rows = timed.iter().map(|of| {
        let mean = of.time.as_secs_f64() * 1e6 / of.decisions.max(1) as f64;
        [of.policy.clone(), of.decisions.to_string(), format!("{mean:.1}")]
    });
    format!("\n{}", aligned(std::iter::once(header).chain(rows)))
}

fn head(report: &LabReport) -> String {
    let mut text = folded(&format!("{}: {}", report.scenario, report.about));
    text += &folded(&format!("fleet: {}", report.fleet));
    text += &folded(&format!("workload: {}", report.workload));
    let class = |class: &sim::ClassAbout| {
        let limit = |name, limit: Option<f32>| limit.map(|ms| format!(" {name} {ms} ms"));
        let limits = [limit("TTFT", class.ttft_ms), limit("ITL", class.itl_ms)];
        let limits: String = limits.into_iter().flatten().collect();
        let weight = if (class.weight - 1.0).abs() < f32::EPSILON {
            String::new()
        } else {
            format!(" weight {}", class.weight)
        };
        format!("{}{limits}{weight}", class.name)
    };
    let classes: Vec<_> = report.classes.iter().map(class).collect();
    text + &folded(&format!("classes: {}", classes.join("; ")))
}

/// Runs at one rate.
struct Load<'a> {
    title: String,
    runs: Vec<&'a Run>,
}

/// The runs of each rate. Every policy has as many, in the order of rates and seeds.
fn loads(report: &LabReport) -> Vec<Load<'_>> {
    let policies = report.policies.len().max(1);
    let each = report.runs.len() / policies;
    let mut seeds: Vec<_> = report.runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = seeds.len().max(1);
    let of = |load: usize| {
        let here = |(at, run)| ((at % each) / seeds == load).then_some(run);
        let runs: Vec<_> = report.runs.iter().enumerate().filter_map(here).collect();
        let rate = mean(runs.iter().map(|run| run.offered_rps));
        let requests = mean(runs.iter().map(|run| run.requests as f64));
        let word = if seeds == 1 { "seed" } else { "seeds" };
        let title = format!("{rate:.2} requests/s offered, {requests:.0} requests, {seeds} {word}");
        Load { title, runs }
    };
    (0..each.div_ceil(seeds)).map(of).collect()
}

fn policies(report: &LabReport, runs: &[&Run]) -> String {
    let of =
        |name: &str| runs.iter().filter(|run| run.policy == *name).copied().collect::<Vec<_>>();
    let attained = |runs: &[&Run]| mean(runs.iter().map(|run| run.attainment));
    let oracles = report.policies.iter().filter(|policy| policy.oracle);
    let best = oracles.map(|policy| attained(&of(&policy.name))).reduce(f64::max);
    let header = [
        "POLICY", "SLO %", "±", "GOOD/s", "TTFT50", "90", "99", "ITL50", "99", "CLASS", "TENTH",
        "HIT", "USE", "$/Mtok", "REGRET",
    ];
    let rows = report.policies.iter().map(|policy| {
        let runs = of(&policy.name);
        let quantile =
            |of: fn(&Run) -> Option<f64>| millis(mean_of(runs.iter().map(|run| of(run))));
        let worst = mean(runs.iter().map(|run| worst_class(run)));
        let tenth = mean_of(runs.iter().map(|run| run.worst_tenth_ratio));
        let cost = mean_of(runs.iter().map(|run| run.cost_per_met_mtoken));
        let used = mean(runs.iter().map(|run| mean(run.utilization.values().copied())));
        let regret = best.map(|best| format!("{:.1}", (best - attained(&runs)) * 100.0));
        let name = if policy.oracle { format!("{}*", policy.name) } else { policy.name.clone() };
        [
            name,
            format!("{:.1}", attained(&runs) * 100.0),
            spread(&runs),
            format!("{:.2}", mean(runs.iter().map(|run| run.goodput_rps))),
            quantile(|run| run.ttft_ms.p50),
            quantile(|run| run.ttft_ms.p90),
            quantile(|run| run.ttft_ms.p99),
            quantile(|run| run.itl_ms.p50),
            quantile(|run| run.itl_ms.p99),
            format!("{:.1}", worst * 100.0),
            tenth.map_or_else(dash, |ratio| format!("{ratio:.1}x")),
            format!("{:.0}", mean(runs.iter().map(|run| run.hit_ratio)) * 100.0),
            format!("{:.0}", used * 100.0),
            cost.map_or_else(dash, |cost| format!("{cost:.2}")),
            regret.unwrap_or_else(dash),
        ]
    });
    let mut text = aligned(std::iter::once(header.map(str::to_owned)).chain(rows));
    if best.is_some() {
        text += "* an oracle: knows what no router can know. REGRET: points of attainment below the best.\n";
    }
    text + &failures(report, runs)
}

/// Failed requests by policy, where there are any.
fn failures(report: &LabReport, runs: &[&Run]) -> String {
    let mut text = String::new();
    for policy in &report.policies {
        let mut sums = std::collections::BTreeMap::<&str, u64>::new();
        for run in runs.iter().filter(|run| run.policy == policy.name) {
            for (kind, count) in &run.errors {
                *sums.entry(kind).or_default() += count;
            }
        }
        if !sums.is_empty() {
            let all: Vec<_> = sums.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            text += &folded(&format!("{} failed: {}", policy.name, all.join(", ")));
        }
    }
    text
}

fn goodput(report: &LabReport) -> String {
    let header = ["LARGEST RATE THAT HOLDS", "RATE/s", "95 % INTERVAL", "GOOD/s", "CLASS", "TENTH"];
    let row = |found: &Goodput| {
        [
            found.policy.clone(),
            format!("{:.2}", found.rate_rps),
            format!("{:.2} to {:.2}", found.interval_rps.0, found.interval_rps.1),
            format!("{:.2}", found.goodput_rps),
            format!("{:.1}", found.worst_class_attainment * 100.0),
            found.worst_tenth_ratio.map_or_else(dash, |ratio| format!("{ratio:.1}x")),
        ]
    };
    let rows = report.goodput.iter().map(row);
    let table = aligned(std::iter::once(header.map(str::to_owned)).chain(rows));
    format!("\nAttainment of {:.1} % is held up to:\n{table}", report.target * 100.0)
}

fn what_if(report: &LabReport) -> String {
    let cheapest = report.what_if.iter().find(|tried| tried.holds);
    let mut text = match cheapest {
        Some(tried) => folded(&format!(
            "\nThe cheapest fleet that holds {:.1} % with every seed: {} at {:.2} per hour ({})",
            report.target * 100.0,
            tried.fleet,
            tried.price_per_hour,
            tried.policy
        )),
        None => format!("\nNo fleet that was tried holds {:.1} %.\n", report.target * 100.0),
    };
    let header = ["FLEET TRIED", "PRICE/h", "SLO %", "HOLDS"].map(str::to_owned);
    let row = |tried: &FleetTried| {
        [
            shortened(&tried.fleet, 78),
            format!("{:.2}", tried.price_per_hour),
            format!("{:.1}", tried.attainment * 100.0),
            if tried.holds { "yes" } else { "no" }.to_owned(),
        ]
    };
    let rows = report.what_if.iter().take(MOST_FLEETS).map(row);
    text += &aligned(std::iter::once(header).chain(rows));
    if report.what_if.len() > MOST_FLEETS {
        let _ = writeln!(text, "and {} more", report.what_if.len() - MOST_FLEETS);
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

/// Half the distance between the best and the worst seed, in points.
fn spread(runs: &[&Run]) -> String {
    if runs.len() < 2 {
        return dash();
    }
    let attained = || runs.iter().map(|run| run.attainment);
    let range = attained().fold(0.0, f64::max) - attained().fold(1.0, f64::min);
    format!("{:.1}", range * 50.0)
}

fn worst_class(run: &Run) -> f64 {
    let classes = run.by_class.values().filter(|class| class.requests > 0);
    classes.map(|class| class.attainment).reduce(f64::min).unwrap_or(run.attainment)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    mean_of(values.map(Some)).unwrap_or_default()
}

/// Mean of those that are there.
fn mean_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, count) = values.flatten().fold((0.0, 0), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Whole milliseconds from a hundred on, one decimal below, and whole seconds from a million on.
fn millis(ms: Option<f64>) -> String {
    match ms {
        None => dash(),
        Some(ms) if ms >= 999_999.5 => format!("{:.0}s", ms / 1e3),
        Some(ms) if ms >= 99.95 => format!("{ms:.0}"),
        Some(ms) => format!("{ms:.1}"),
    }
}

/// Rows in columns, the first to the left and as wide as the others leave room for.
fn aligned<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let mut rows: Vec<_> = rows.collect();
    let width = |rows: &[[String; N]], at: usize| {
        rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default()
    };
    let others: usize = (1..N).map(|at| width(&rows, at) + 2).sum();
    let room = WIDTH.saturating_sub(others).max(8);
    for row in &mut rows {
        row[0] = shortened(&row[0], room.min(if N > 6 { MOST_NAME } else { WIDTH }));
    }
    let mut text = String::new();
    for row in &rows {
        let _ = write!(text, "{:<width$}", row[0], width = width(&rows, 0));
        for (at, cell) in row.iter().enumerate().skip(1) {
            let _ = write!(text, "  {cell:>width$}", width = width(&rows, at));
        }
        text.push('\n');
    }
    text
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in lines that fit, broken between words.
fn folded(text: &str) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > WIDTH {
            lines += "\n  ";
            used = 2;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines += word;
        used += long;
    }
    lines + "\n"
}
