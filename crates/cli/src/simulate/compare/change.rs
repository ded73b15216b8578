//! What one figure did from one report to the other, and what many did as a table.

use std::fmt::Write as _;

use super::text::{WIDTH, folded, shortened};
use crate::simulate::figures::{Better, Measure, Spread};

/// What a change comes to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Verdict {
    BetterBeyond,
    WorseBeyond,
    BetterWithin,
    WorseWithin,
    /// At least one side has a single seed.
    BetterOneSeed,
    WorseOneSeed,
    Same,
}

impl Verdict {
    fn of(better: Better, before: Spread, after: Spread) -> Self {
        if before == after {
            return Self::Same;
        }
        let up = after.mean > before.mean;
        let is_better = match better {
            Better::More => up,
            Better::Less => !up,
        };
        let alone = before.count < 2 || after.count < 2;
        match (alone, before.overlaps(&after), is_better) {
            (true, _, true) => Self::BetterOneSeed,
            (true, _, false) => Self::WorseOneSeed,
            (_, false, true) => Self::BetterBeyond,
            (_, false, false) => Self::WorseBeyond,
            (_, true, true) => Self::BetterWithin,
            (_, true, false) => Self::WorseWithin,
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::BetterBeyond => "better, beyond",
            Self::WorseBeyond => "worse, beyond",
            Self::BetterWithin => "better, within",
            Self::WorseWithin => "worse, within",
            Self::BetterOneSeed => "better",
            Self::WorseOneSeed => "worse",
            Self::Same => "same",
        }
    }
}

/// A figure before and after.
#[derive(Debug)]
pub(super) struct Change {
    name: String,
    cells: [String; 3],
    pub verdict: Verdict,
}

impl Change {
    pub(super) fn of(measure: &Measure, before: Spread, after: Spread) -> Self {
        let told = |spread: Spread| {
            let told = |value| measure.told(value);
            if spread.count < 2 {
                return told(spread.mean);
            }
            format!("{} ({}..{})", told(spread.mean), told(spread.least), told(spread.most))
        };
        let by = after.mean - before.mean;
        let sign = if by < 0.0 { "" } else { "+" };
        Self {
            name: format!("{}, {}", measure.name, measure.unit),
            cells: [told(before), told(after), format!("{sign}{}", measure.told(by))],
            verdict: Verdict::of(measure.better, before, after),
        }
    }
}

/// What changed for each policy, in columns that are the same for all; those of which nothing changed are
/// named at the end.
pub(super) fn table(policies: &[(&str, Vec<Change>)]) -> String {
    let changed = |changes: &Vec<Change>| changes.iter().any(|c| c.verdict != Verdict::Same);
    let columns = Columns::of(policies);
    let mut text = String::new();
    for (policy, changes) in policies.iter().filter(|(_, changes)| changed(changes)) {
        text += &columns.line(policy, ["before", "after", "change"], "");
        let (same, differing): (Vec<_>, Vec<_>) =
            changes.iter().partition(|change| change.verdict == Verdict::Same);
        for change in differing {
            let cells = change.cells.each_ref().map(String::as_str);
            text += &columns.line(&format!("  {}", change.name), cells, change.verdict.told());
        }
        if !same.is_empty() {
            let _ = writeln!(text, "  {} more the same", same.len());
        }
    }
    let same = policies.iter().filter(|(_, changes)| !changes.is_empty() && !changed(changes));
    let same: Vec<_> = same.map(|(policy, _)| *policy).collect();
    if !same.is_empty() {
        text += &folded(&format!("nothing changed: {}", same.join(", ")));
    }
    text
}

/// Widths of the columns of a table.
struct Columns {
    name: usize,
    cells: [usize; 3],
}

impl Columns {
    fn of(policies: &[(&str, Vec<Change>)]) -> Self {
        let shown = || policies.iter().flat_map(|(_, changes)| changes);
        let cells = std::array::from_fn(|column| {
            let cells = shown().map(|change| change.cells[column].chars().count());
            cells.max().unwrap_or(0).max("before".len())
        });
        let names = shown().map(|change| change.name.chars().count() + 2);
        let names = names.chain(policies.iter().map(|(policy, _)| policy.chars().count()));
        let verdict = shown().map(|change| change.verdict.told().len()).max().unwrap_or(0);
        let room = WIDTH - (cells.iter().sum::<usize>() + verdict + 8).min(WIDTH - 10);
        Self { name: names.max().unwrap_or(0).min(room), cells }
    }

    fn line(&self, name: &str, cells: [&str; 3], verdict: &str) -> String {
        let mut line = format!("{:<width$}", shortened(name, self.name), width = self.name);
        for (cell, width) in cells.iter().zip(self.cells) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = write!(line, "  {verdict}");
        format!("{}\n", line.trim_end())
    }
}
