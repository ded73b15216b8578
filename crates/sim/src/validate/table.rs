//! Renders a validation as text that fits a terminal.

use std::fmt;

use super::result::{FidelityErrors, FidelityGroup, FidelityPoint, Validation};

/// Widest line.
const WIDTH: usize = 108;
/// Blanks before a line that goes on.
const INDENT: usize = 4;
/// Columns of the table.
const COLUMNS: usize = 9;
/// Head of each column; the first four are set to the left.
const HEADER: [&str; COLUMNS] =
    ["MODEL", "GPU", "SOURCE", "ROWS ARE", "ROWS", "TTFT", "MEDIAN", "ITL", "MEDIAN"];
const LEFT: usize = 4;

/// What the table does not say by itself.
const NOTES: &str = "\
Errors are mean (and median) absolute relative errors of simulated against measured values; a group of
single steps has that of the step time under ITL. `bias` is the mean signed error, above 0 where the
simulation is too slow; `worst` the largest.
fitted      coefficients of the profile were fitted to these rows
picked on   one constant, or a detail of the replay, was picked from a few on these rows
held out    nothing was fitted to or picked on these rows. Of the 8B sweep every second row was fitted;
            which half is not recorded, the first is taken. Its held-out rows lie between fitted ones
after fact  replayed with a setting that was changed once the held-out result had been seen
A rate near the most that a server can do is a cliff: a step 1 % too slow makes TTFT many times too long
there, so that one row can make up most of a mean; the median tells of the others.
Not modelled: mixture of experts, speculative decoding (no row is marked as using it), LoRA.";

impl fmt::Display for Validation {
    /// A table of the groups, what each was replayed as, and the rows that were not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![HEADER.map(str::to_owned)];
        rows.extend(self.groups.iter().map(cells));
        let mut widths = [0; COLUMNS];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let columns = row.iter().zip(widths).enumerate();
            let line: Vec<String> = columns
                .map(|(column, (cell, width))| match column {
                    ..LEFT => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        writeln!(f, "\n{NOTES}\n\nReplayed")?;
        for group in &self.groups {
            writeln!(f, "{}", story(group))?;
        }
        writeln!(f, "\nNot replayed")?;
        for skipped in &self.skipped {
            let (rows, source) = (skipped.rows, &skipped.source);
            writeln!(f, "{rows:>5} rows  {source}, {}: {}", skipped.model, skipped.reason)?;
        }
        Ok(())
    }
}

fn cells(group: &FidelityGroup) -> [String; COLUMNS] {
    let percent = |errors: Option<FidelityErrors>, of: fn(FidelityErrors) -> f64| {
        errors.map_or_else(|| "-".to_owned(), |errors| format!("{:.1} %", of(errors) * 100.0))
    };
    let itl = group.itl.or(group.step);
    [
        group.model.clone(),
        format!("{} tp{}", group.gpu, group.tp),
        group.source.clone(),
        group.sample.name().to_owned(),
        group.rows.to_string(),
        percent(group.ttft, |errors| errors.mean_ratio),
        percent(group.ttft, |errors| errors.median_ratio),
        percent(itl, |errors| errors.mean_ratio),
        percent(itl, |errors| errors.median_ratio),
    ]
}

/// How a group was replayed, by what, and which way it is off.
fn story(group: &FidelityGroup) -> String {
    let head =
        format!("{} tp{}, {}, by {}:", group.model, group.tp, group.sample.name(), group.profile);
    let errors: Vec<String> = [("TTFT", group.ttft), ("ITL", group.itl), ("step", group.step)]
        .into_iter()
        .filter_map(|(name, errors)| Some(offset(group, name, errors?)))
        .collect();
    format!(
        "{}\n{}",
        folded(&format!("{head} {}", group.replay), 0),
        folded(&errors.join("; "), INDENT)
    )
}

/// Bias and worst case of one latency, and where that is.
fn offset(group: &FidelityGroup, name: &str, errors: FidelityErrors) -> String {
    let (bias, worst) = (errors.bias_ratio * 100.0, errors.worst_ratio * 100.0);
    let off = |point: &FidelityPoint| match name {
        "TTFT" => (point.simulated_ttft_ms / point.measured_ttft_ms - 1.0).abs(),
        _ => (point.simulated_itl_ms / point.measured_itl_ms - 1.0).abs(),
    };
    let place = group.points.iter().max_by(|a, b| off(a).total_cmp(&off(b))).map(|point| {
        let load = match (point.concurrency, point.rps) {
            (Some(at_once), _) => format!("{at_once} at once"),
            (None, rps) => format!("{:.2}/s", rps.unwrap_or_default()),
        };
        format!(" ({:.0} + {:.0} tokens, {load})", point.prompt_tokens, point.output_tokens)
    });
    format!("{name} bias {bias:+.1} %, worst {worst:.0} %{}", place.unwrap_or_default())
}

/// Text in lines of at most [`WIDTH`], all but the first one indented.
/// The first one begins after `indent` blanks.
fn folded(text: &str, indent: usize) -> String {
    let mut lines = " ".repeat(indent);
    let mut used = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used + 1 + length > WIDTH {
            lines.push('\n');
            lines += &" ".repeat(INDENT);
            used = INDENT;
        } else if !lines.ends_with(' ') && used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines += word;
        used += length;
    }
    lines
}
