//! The report as one web page that needs nothing else: no script, no font, no address.

use std::fmt::Write as _;

use super::{
    Report,
    measure::{ALL, Figures, Outcomes},
    plots::{self, Plot},
    table::{self, percent},
};
use crate::output::escaped;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
    th:first-child,td:first-child{text-align:left}tr.total td{font-weight:bold}svg{max-width:100%;height:auto}\
    figure{margin:1.5em 0}figcaption{color:#555}";

/// The page.
pub(super) fn page(report: &Report, outcomes: Outcomes<'_>) -> anyhow::Result<String> {
    let calibration = plots::calibration(outcomes)?;
    let over_time = plots::over_time(outcomes, report.rows.without_times)?;
    let source = escaped(&report.source);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Slackline: predictions on {source}</title><style>{STYLE}</style></head><body>\n\
         <h1>Predictions on {source}</h1>\n<p>{}</p>\n",
        escaped(&table::head(report)).replace('\n', "<br>")
    );
    page += &figures(report);
    page += &learners(report);
    page += &around(report);
    page += &figure(
        &calibration,
        "A promise of 90 % should hold for 90 % of the rows: points on the grey line are right, \
         points below it were too bold.",
    );
    for plot in &over_time {
        page += &figure(
            plot,
            "Grey: what came, row by row. Lines: medians over short stretches of time of what came, of \
             the predicted median, and of the predicted p90.",
        );
    }
    page += "</body></html>\n";
    Ok(page)
}

fn figures(report: &Report) -> String {
    let header = [
        "class",
        "regime",
        "target",
        "rows",
        "MAPE",
        "median APE",
        "pinball p90, ms",
        "uncorrected, ms",
        "coverage p50",
        "p90",
        "p95",
        "p99",
    ];
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
    let row = |of: &Figures| {
        let mut cells = vec![
            of.class.clone(),
            of.regime.to_owned(),
            of.target.to_owned(),
            of.n.to_string(),
            percent(of.mape_ratio),
            percent(of.median_ape_ratio),
            ms(of.pinball_p90_ms),
            ms(of.pinball_p90_uncorrected_ms),
        ];
        let coverage = |name: &str| percent(of.coverage_ratio.get(name).copied());
        cells.extend(["p50", "p90", "p95", "p99"].map(coverage));
        (of.regime == ALL, cells)
    };
    let rows: Vec<_> = report.groups.iter().chain(&report.totals).map(row).collect();
    format!("<h2>By class, regime and target</h2>\n{}", table_of(&header, &rows))
}

fn learners(report: &Report) -> String {
    let mut rows = Vec::new();
    for total in report.totals.iter().filter(|total| total.class == ALL) {
        for (at, one) in total.learners.iter().enumerate() {
            let cells = [
                one.name.to_owned(),
                total.target.to_owned(),
                one.n.to_string(),
                percent(one.mape_ratio),
                percent(one.median_ape_ratio),
            ];
            rows.push((at == 0, cells.to_vec()));
        }
    }
    let header = ["learner", "target", "rows", "MAPE", "median APE"];
    format!("<h2>By learner</h2>\n{}", table_of(&header, &rows))
}

fn around(report: &Report) -> String {
    if report.around_change.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = report
        .around_change
        .iter()
        .map(|window| {
            let cells = [
                format!("{:+.0} s to {:+.0} s", window.from_s, window.to_s),
                window.target.to_owned(),
                window.n.to_string(),
                percent(window.coverage_p90_ratio),
                percent(window.bias_ratio),
                percent(window.median_bias_ratio),
            ];
            (false, cells.to_vec())
        })
        .collect();
    let header = ["from the change", "target", "rows", "coverage p90", "bias", "median bias"];
    format!("<h2>Around the change</h2>\n{}", table_of(&header, &rows))
}

/// A table; rows marked `true` stand out.
fn table_of(header: &[&str], rows: &[(bool, Vec<String>)]) -> String {
    let mut text = String::from("<table><tr>");
    for name in header {
        let _ = write!(text, "<th>{}</th>", escaped(name));
    }
    text += "</tr>\n";
    for (stands_out, cells) in rows {
        text += if *stands_out { "<tr class=\"total\">" } else { "<tr>" };
        for cell in cells {
            let _ = write!(text, "<td>{}</td>", escaped(cell));
        }
        text += "</tr>\n";
    }
    text + "</table>\n"
}

fn figure(plot: &Plot, caption: &str) -> String {
    format!(
        "<figure role=\"group\" aria-label=\"{}\">{}<figcaption>{}</figcaption></figure>\n",
        escaped(&plot.title),
        plot.svg,
        escaped(caption)
    )
}
