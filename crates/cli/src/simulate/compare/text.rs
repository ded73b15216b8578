//! Lines that fit a terminal.

use std::fmt::Write as _;

/// Widest line.
pub(super) const WIDTH: usize = 110;

/// `text`, or as much of it as fits `width`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in lines that fit, broken between words; a word that fits no line is cut short.
pub(super) fn folded(text: &str) -> String {
    let (start, text) = text.split_at(text.len() - text.trim_start().len());
    let mut lines = start.to_owned();
    let mut used = start.trim_start_matches('\n').len();
    let indent = used + 2;
    for (at, word) in text.split_whitespace().enumerate() {
        let word = shortened(word, WIDTH - indent);
        let long = word.chars().count();
        if at > 0 && used + 1 + long > WIDTH {
            let _ = write!(lines, "\n{:indent$}", "");
            used = indent;
        } else if at > 0 {
            lines.push(' ');
            used += 1;
        }
        lines += &word;
        used += long;
    }
    lines + "\n"
}
