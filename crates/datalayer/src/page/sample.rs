//! One sample line: its labels and its value. Timestamps and exemplars are left alone.

use super::MAX_LABEL_BYTES;

/// A label is longer than [`MAX_LABEL_BYTES`].
#[derive(Debug)]
pub(super) struct TooLong;

/// The labels that matter, and their places in a [`Sample`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Label {
    Priority,
    TpRank,
    DpRank,
    SleepState,
    RequestType,
    BlockType,
    BlockSizeInUse,
    BlockSize,
    PageSize,
    GpuBlocks,
    Pages,
}

const LABELS: usize = Label::Pages as usize + 1;

impl Label {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"priority" => Self::Priority,
            b"tp_rank" => Self::TpRank,
            b"dp_rank" => Self::DpRank,
            b"sleep_state" => Self::SleepState,
            b"request_type" => Self::RequestType,
            b"kv_cache_block_type" => Self::BlockType,
            b"effective_attention_block_size" => Self::BlockSizeInUse,
            b"block_size" => Self::BlockSize,
            b"page_size" => Self::PageSize,
            b"num_gpu_blocks" => Self::GpuBlocks,
            b"num_pages" => Self::Pages,
            _ => return None,
        })
    }
}

/// What follows the name on a sample line.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    labels: [Option<&'a [u8]>; LABELS],
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// Reads the line from behind its name; `None` if it is malformed.
    pub(super) fn read(text: &'a [u8]) -> Result<Option<Self>, TooLong> {
        let mut labels = [None; LABELS];
        let mut rest = text.trim_ascii_start();
        if let Some(first) = rest.strip_prefix(b"{") {
            rest = first;
            loop {
                match step(rest) {
                    None => return Ok(None),
                    Some(Step::Label { value, .. }) if value.len() > MAX_LABEL_BYTES => {
                        return Err(TooLong);
                    }
                    Some(Step::Label { name, value, rest: next }) => {
                        if let Some(label) = Label::named(name) {
                            labels[label as usize] = Some(value);
                        }
                        rest = next;
                    }
                    Some(Step::End { rest: end }) => {
                        rest = end;
                        break;
                    }
                }
            }
        }
        Ok(number(rest).map(|value| Self { labels, value }))
    }

    /// Value of `label` as written, escapes and all.
    pub(super) fn label(&self, label: Label) -> Option<&'a [u8]> {
        self.labels[label as usize]
    }

    /// `label` as a number; `None` too for words such as `None`.
    pub(super) fn number(&self, label: Label) -> Option<f64> {
        number(self.label(label)?)
    }
}

enum Step<'a> {
    Label { name: &'a [u8], value: &'a [u8], rest: &'a [u8] },
    End { rest: &'a [u8] },
}

/// The next label of `text`, or the closing brace; `None` if neither is there.
fn step(text: &[u8]) -> Option<Step<'_>> {
    let skip = text.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t'))?;
    let text = &text[skip..];
    if let Some(rest) = text.strip_prefix(b"}") {
        return Some(Step::End { rest });
    }
    let (name, rest) = text.split_at_checked(memchr::memchr(b'=', text)?)?;
    let rest = rest[1..].trim_ascii_start().strip_prefix(b"\"")?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', rest.get(from..)?)?;
        if rest[at] == b'"' {
            let (value, rest) = (&rest[..at], &rest[at + 1..]);
            return Some(Step::Label { name: name.trim_ascii_end(), value, rest });
        }
        from = at + 2;
    }
}

/// The number that `text` starts with, up to a blank or the end.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}
