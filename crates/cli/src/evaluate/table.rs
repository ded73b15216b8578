//! The figures as text for a terminal.

use std::fmt::Write as _;

use super::{
    Report,
    first::FirstRows,
    measure::{Around, Figures, PointError},
};

/// The whole report.
pub(super) fn text(report: &Report) -> String {
    let mut text = head(report);
    text += "\n";
    let header = [
        "CLASS",
        "REGIME",
        "TARGET",
        "ROWS",
        "MAPE",
        "MEDIAN APE",
        "PINBALL P90 ms",
        "UNCORRECTED",
        "COVERAGE P90",
    ];
    let groups = report.groups.iter().chain(&report.totals).map(figures);
    text += &aligned(3, std::iter::once(header.map(str::to_owned)).chain(groups));
    text += "\n";
    let header = ["TARGET", "LEARNER", "ROWS", "MAPE", "MEDIAN APE"];
    let overall = report.totals.iter().filter(|total| total.class == super::measure::ALL);
    let learners =
        overall.flat_map(|total| total.learners.iter().map(|one| learner(total.target, one)));
    text += &aligned(2, std::iter::once(header.map(str::to_owned)).chain(learners));
    text += "\n";
    let header = ["FIRST ROWS, TTFT", "PRIOR ALONE 1-50", "MAPE 1-50", "MAPE 51-150"];
    let first = report.first_rows.iter().map(first_rows);
    text += &aligned(1, std::iter::once(header.map(str::to_owned)).chain(first));
    if !report.around_change.is_empty() {
        text += "\n";
        let header = ["FROM THE CHANGE", "TARGET", "ROWS", "COVERAGE P90", "BIAS", "MEDIAN BIAS"];
        let windows = report.around_change.iter().map(around);
        text += &aligned(2, std::iter::once(header.map(str::to_owned)).chain(windows));
    }
    text
}

/// What became of the rows.
pub(super) fn head(report: &Report) -> String {
    let rows = &report.rows;
    let mut text = format!("{}: {} rows", report.source, rows.read);
    for (why, count) in &rows.kept_out {
        let _ = write!(text, ", {count} {why} kept out");
    }
    let warm_up: Vec<_> =
        rows.warm_up.iter().map(|(target, count)| format!("{count} {target}")).collect();
    let _ = writeln!(text, "; labels of warm-up, learned but not judged: {}", warm_up.join(", "));
    if rows.without_times {
        text += "The file tells no times: every row is one tick of the clock, and a label is known \
                 2 ticks per running request later.\n";
    }
    text
}

fn figures(of: &Figures) -> [String; 9] {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
    [
        of.class.clone(),
        of.regime.to_owned(),
        of.target.to_owned(),
        of.n.to_string(),
        percent(of.mape_ratio),
        percent(of.median_ape_ratio),
        ms(of.pinball_p90_ms),
        ms(of.pinball_p90_uncorrected_ms),
        percent(of.coverage_ratio.get("p90").copied()),
    ]
}

fn learner(target: &str, one: &PointError) -> [String; 5] {
    [
        target.to_owned(),
        one.name.to_owned(),
        one.n.to_string(),
        percent(one.mape_ratio),
        percent(one.median_ape_ratio),
    ]
}

fn first_rows(of: &FirstRows) -> [String; 4] {
    [
        of.class.clone(),
        percent(of.prior_only_mape_ratio),
        percent(of.first_50_mape_ratio),
        percent(of.rows_51_to_150_mape_ratio),
    ]
}

fn around(window: &Around) -> [String; 6] {
    [
        format!("{:+.0} s to {:+.0} s", window.from_s, window.to_s),
        window.target.to_owned(),
        window.n.to_string(),
        percent(window.coverage_p90_ratio),
        percent(window.bias_ratio),
        percent(window.median_bias_ratio),
    ]
}

/// `12.3 %`, or `-` where there is nothing to tell.
pub(super) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

/// Rows under each other; the first `texts` columns to the left, figures to the right.
fn aligned<const N: usize>(texts: usize, rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
