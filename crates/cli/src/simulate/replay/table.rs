//! What a replay tells, as text for a terminal.

use std::fmt::Write as _;

use super::{
    Report,
    estimate::{Estimate, Estimates},
};

/// What an estimate of this kind is and is not.
const CAVEAT: &str = "\
SAME: decided as in the log. WORTH: the decisions of the policy's own that the log's weighted ones are worth\n\
(effective sample size). MAX W: the largest weight of one. Then the share that would keep its objective, with\n\
its interval of 95 %: by the recorded predictions alone, by weights alone, by both; - without support.\n\
\n\
Estimates are of single decisions changed, each in the state that the log's own decisions led to. A policy\n\
that decided all of them would leave other queues and caches behind: `slackline simulate` plays that.\n\
Direct is what the recorded predictions say, set right by how earlier choices came out; no outcome checks it.";

/// The whole report.
pub(super) fn text(report: &Report) -> String {
    let mut text = head(report);
    let header =
        ["POLICY", "SAME %", "WORTH", "MAX W", "DIRECT %", "BY PROPENSITY %", "DOUBLY ROBUST %"];
    let rows = report.policies.iter().map(|of| row(&of.name, &of.estimates));
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    text += &aligned(&rows);
    for of in &report.policies {
        if let Some(why) = &of.estimates.too_little_support {
            let _ = writeln!(text, "{}: too little support: {why}", of.name);
        }
        if of.refused > 0 {
            let _ = writeln!(
                text,
                "{}: its filters leave no endpoint for {} decisions, which count as missed",
                of.name, of.refused
            );
        }
    }
    text.push('\n');
    text += CAVEAT;
    text.push('\n');
    text
}

fn head(report: &Report) -> String {
    let mut text = format!(
        "{}: {} of {} rows are judged, over {:.0} s, decided by {}\n",
        report.source,
        report.judged,
        report.rows,
        report.span_s,
        report.rungs.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    for (why, count) in &report.left_out {
        let _ = writeln!(text, "{count} left out: {why}");
    }
    if report.sampled > 0 {
        let _ = writeln!(
            text,
            "{} hold a sample of their candidates: policies decide among those alone",
            report.sampled
        );
    }
    let _ = writeln!(
        text,
        "the log itself met {}; the model of its choices says {}\n",
        percent(&report.logged),
        percent(&report.model_of_logged)
    );
    text
}

fn row(name: &str, of: &Estimates) -> [String; 7] {
    let or_dash = |estimate: &Option<Estimate>| estimate.as_ref().map_or("-".to_owned(), share);
    [
        name.to_owned(),
        format!("{:.1}", of.agreement * 100.0),
        format!("{:.0}", of.effective_rows),
        format!("{:.1}", of.largest_weight),
        share(&of.direct),
        or_dash(&of.inverse_propensity),
        or_dash(&of.doubly_robust),
    ]
}

/// `93.1 (92.0-94.1)`, in percent.
fn share(estimate: &Estimate) -> String {
    let Estimate { value, low, high } = *estimate;
    format!("{:.1} ({:.1}-{:.1})", value * 100.0, low * 100.0, high * 100.0)
}

/// `93.1 % (92.0-94.1)`
fn percent(estimate: &Estimate) -> String {
    share(estimate).replacen(" (", " % (", 1)
}

/// Rows under each other; the first column to the left, figures to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
