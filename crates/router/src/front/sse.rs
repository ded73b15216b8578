//! Cuts a byte stream into the lines of an event stream, however the bytes are cut.
//!
//! Line ends are `\n`, `\r\n` and `\r`. A line that lies whole in one piece of input is passed on
//! without a copy; memory is bounded by [`MAX_LINE_BYTES`].

use memchr::memchr2;

/// The longest line, and the longest event, that is looked at: far above any chunk of tokens.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Buffer space that is kept between lines and events: one rare long line must not hold its memory for
/// the rest of a stream.
pub(super) const IDLE_BYTES: usize = 1 << 14;
/// Bytes that are kept of a line above the bound: enough for a field name.
const KEPT_BYTES: usize = 16;

/// One line, without its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Line<'a> {
    /// The line.
    Whole(&'a [u8]),
    /// A line above the bound: only its start is known.
    Long(&'a [u8]),
}

/// Splits lines; keeps what is begun.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    /// Bytes of the begun line, of which `begun` keeps the start once they exceed the bound.
    length: usize,
    after_cr: bool,
}

impl Lines {
    /// Passes each line that ends in `bytes` to `take`.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Line<'_>)) {
        while let Some(&first) = bytes.first() {
            if self.after_cr {
                self.after_cr = false;
                if first == b'\n' {
                    bytes = &bytes[1..];
                    continue;
                }
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.keep(bytes);
                return;
            };
            if self.length == 0 && end <= MAX_LINE_BYTES {
                take(Line::Whole(&bytes[..end]));
            } else {
                self.keep(&bytes[..end]);
                self.flush(&mut take);
            }
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
        }
    }

    /// Passes the line that was begun to `take`, if there is one: the stream ended.
    pub(super) fn finish(&mut self, mut take: impl FnMut(Line<'_>)) {
        if self.length > 0 {
            self.flush(&mut take);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        if self.length <= MAX_LINE_BYTES {
            self.begun.extend_from_slice(bytes);
        } else if self.begun.len() < KEPT_BYTES {
            self.begun.extend_from_slice(&bytes[..bytes.len().min(KEPT_BYTES)]);
        } else {
            self.begun.truncate(KEPT_BYTES);
            self.begun.shrink_to_fit();
        }
    }

    fn flush(&mut self, take: &mut impl FnMut(Line<'_>)) {
        if self.length <= MAX_LINE_BYTES {
            take(Line::Whole(&self.begun));
        } else {
            take(Line::Long(&self.begun));
        }
        self.begun.clear();
        self.begun.shrink_to(IDLE_BYTES);
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<(bool, usize, String)> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut take = |line: Line<'_>| {
            let (long, bytes) = match line {
                Line::Whole(bytes) => (false, bytes),
                Line::Long(bytes) => (true, bytes),
            };
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(5)]).into_owned();
            seen.push((long, bytes.len(), start));
        };
        for piece in pieces {
            lines.push(piece, &mut take);
        }
        lines.finish(&mut take);
        seen
    }

    #[test]
    fn every_line_end_counts_once_wherever_the_cut_is() {
        let text = b"a\r\nb\rc\n\n\r\n\r\rlast, longer than one block of thirty-two bytes\nend";
        let whole = lines(&[text]);
        let starts: Vec<&str> = whole.iter().map(|line| line.2.as_str()).collect();
        assert_eq!(starts, ["a", "b", "c", "", "", "", "", "last,", "end"]);
        for size in 1..text.len() {
            assert_eq!(lines(&text.chunks(size).collect::<Vec<_>>()), whole, "cut at {size}");
        }
    }

    #[test]
    fn a_line_above_the_bound_is_told_but_not_kept() {
        let mut text = b"data: ".to_vec();
        text.resize(MAX_LINE_BYTES, b'x');
        let fits = lines(&[&text, b"\n"]);
        assert_eq!(fits, [(false, MAX_LINE_BYTES, "data:".to_owned())]);
        text.extend_from_slice(b"x\nnext\n");
        for size in [3, 7, 1_000, MAX_LINE_BYTES, text.len()] {
            let seen = lines(&text.chunks(size).collect::<Vec<_>>());
            assert!(seen[0].0 && seen[0].1 <= MAX_LINE_BYTES && seen[0].2 == "data:", "{size}");
            assert_eq!(seen[1], (false, 4, "next".to_owned()));
        }
    }
}
