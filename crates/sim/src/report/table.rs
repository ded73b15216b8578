//! Renders a report as a text table that fits a terminal.

use std::fmt;

use super::{PolicyReport, Quantiles, Report};

/// Widest line.
const WIDTH: usize = 110;
/// Widest name of a policy that is shown whole.
const MAX_NAME: usize = 20;
/// Columns before the share.
const COLUMNS: usize = 9;

/// A row as text, cell by cell, without the share.
type Cells = [String; COLUMNS];

impl fmt::Display for Report {
    /// One line per policy under a header, and one with the model error if there is any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["policy", "SLO %", "goodput/s", "TTFT p50", "p90", "p99", "ITL p50", "p90", "p99"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(self.policies.iter().map(cells));
        let mut widths = [0; COLUMNS];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let used = widths.iter().map(|width| width + 2).sum::<usize>();
        let room = WIDTH.saturating_sub(used);
        let shares = std::iter::once("share %".to_owned())
            .chain(self.policies.iter().map(|policy| share(policy, room)));
        for (row, share) in rows.iter().zip(shares) {
            write!(f, "{:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            let gap = if share.is_empty() { "" } else { "  " };
            writeln!(f, "{gap}{share}")?;
        }
        for policy in self.policies.iter().filter(|policy| !policy.errors.is_empty()) {
            let errors: Vec<String> =
                policy.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let line = format!("{} failed: {}", shorten(&policy.name, MAX_NAME), errors.join(", "));
            writeln!(f, "{}", shorten(&line, WIDTH))?;
        }
        if !self.model_error.is_empty() {
            let errors: Vec<String> =
                self.model_error.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
            writeln!(f, "{}", shorten(&format!("model error: {}", errors.join(", ")), WIDTH))?;
        }
        Ok(())
    }
}

impl Report {
    /// The table as text, at most 110 columns wide, latencies in milliseconds.
    pub fn table(&self) -> String {
        self.to_string()
    }
}

fn cells(policy: &PolicyReport) -> Cells {
    let [ttft50, ttft90, ttft99] = quantiles(policy.ttft_ms);
    let [itl50, itl90, itl99] = quantiles(policy.itl_ms);
    [
        shorten(&policy.name, MAX_NAME),
        format!("{:.1}", policy.attainment * 100.0),
        format!("{:.2}", policy.goodput_rps),
        ttft50,
        ttft90,
        ttft99,
        itl50,
        itl90,
        itl99,
    ]
}

/// Whole milliseconds from a hundred on, one decimal below.
fn quantiles(quantiles: Quantiles) -> [String; 3] {
    [quantiles.p50, quantiles.p90, quantiles.p99].map(|value| match value {
        None => "-".to_owned(),
        Some(ms) if ms >= 99.95 => format!("{ms:.0}"),
        Some(ms) => format!("{ms:.1}"),
    })
}

/// Endpoints by share, the largest first, as many as fit `room`; then how many are left out.
fn share(policy: &PolicyReport, room: usize) -> String {
    let mut shares: Vec<(&String, f64)> = policy.share.iter().map(|(e, s)| (e, *s)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut text = String::new();
    for (shown, (endpoint, share)) in shares.iter().enumerate() {
        let name = endpoint.rsplit('/').next().unwrap_or_default();
        let entry = format!("{}{name} {:.0}", if shown == 0 { "" } else { " " }, share * 100.0);
        let left = shares.len() - shown;
        let reserve = if left == 1 { 0 } else { format!(" +{}", left - 1).len() };
        if text.chars().count() + entry.chars().count() + reserve > room {
            let rest = format!("{}+{left}", if shown == 0 { "" } else { " " });
            return text + &rest;
        }
        text += &entry;
    }
    text
}

fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, endpoints: usize) -> PolicyReport {
        let quantiles =
            |ms: f64| Quantiles { p50: Some(ms), p90: Some(ms * 10.0), p99: Some(ms * 1_000.0) };
        PolicyReport {
            name: name.to_owned(),
            requests: 1_000,
            attainment: 0.987_6,
            offered_rps: 5.0,
            goodput_rps: 4.938,
            throughput_tokens_per_s: 1_000.0,
            ttft_ms: quantiles(123.4),
            itl_ms: quantiles(7.25),
            e2e_ms: Quantiles::default(),
            errors: [("timeout".to_owned(), 3)].into(),
            share: (0..endpoints).map(|i| (format!("default/h100-{i:02}"), 1.0)).collect(),
        }
    }

    fn report(policies: Vec<PolicyReport>) -> Report {
        Report { policies, model_error: [("ttft_mape_ratio".to_owned(), 0.12)].into() }
    }

    #[test]
    fn columns_line_up_under_their_header() {
        let text = report(vec![policy("random", 1), policy("least-added-misses", 1)]).table();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[0].starts_with("policy"));
        let share = lines[0].find("share %").unwrap();
        for line in &lines[1..3] {
            assert_eq!(&line[share..], "h100-00 100");
            assert!(line.contains("98.8") && line.contains("4.94") && line.contains("123400"));
            assert!(line.contains("7.2") && line.contains("72.5") && line.contains("7250"));
        }
        assert_eq!(lines[3], "random failed: 3 timeout");
        assert_eq!(lines[5], "model error: ttft_mape_ratio 0.120");
    }

    #[test]
    fn a_large_fleet_and_a_long_name_still_fit() {
        let mut wide = policy(&"very-long-policy-name-".repeat(9), 900);
        wide.errors = (0..90).map(|code| (format!("status-{code}"), 1)).collect();
        let text = report(vec![wide, policy("x", 2), policy("none", 0)]).table();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with("h100-00 100 +899"), "{text}");
        assert!(text.lines().nth(2).unwrap().contains("h100-00 100 h100-01 100"), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let mut silent = policy("p", 1);
        silent.itl_ms = Quantiles::default();
        let text = report(vec![silent]).table();
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells,
            ["p", "98.8", "4.94", "123", "1234", "123400", "-", "-", "-", "h100-00", "100"]
        );
    }
}
