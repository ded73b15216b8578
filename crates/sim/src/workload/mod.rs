//! Workloads, recorded and generated: when requests arrive, how long they are, and what they share.

mod arrivals;
mod azure;
mod conversations;
mod draw;
mod generate;
mod length;
mod mooncake;
mod options;
mod prompt;
mod recorded;
mod replay;
mod rollout;
mod servegen;
mod sessions;
mod source;

use std::{fs::File, io::Read, path::Path, sync::Arc, time::Duration};

pub use arrivals::Arrivals;
pub use generate::{Generate, Like};
pub use length::{Law, Length};
pub use options::{Make, Workload};
pub use prompt::{engine_blocks, prompt_text, router_blocks};
pub use replay::Replay;
pub use servegen::Servegen;
pub use source::{Bundled, TraceError};
use source::{Format, open_lines};

/// Tokens per block of [`BlockSource::Shared`], as the Mooncake traces cut prompts.
pub const TRACE_BLOCK_TOKENS: u32 = 512;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When it arrives, from the start of the trace.
    pub at: Duration,
    /// Prompt length in tokens, at least 1.
    pub prompt_tokens: u32,
    /// Tokens to generate, at least 1.
    pub output_tokens: u32,
    /// What the prompt is made of.
    pub blocks: BlockSource,
    /// The conversation it belongs to, if any.
    pub session: Option<u32>,
    /// Which class of callers sent it, counted as the scenario lists them.
    pub class: u16,
}

/// Which content a prompt shares with others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BlockSource {
    /// One id per block of [`TRACE_BLOCK_TOKENS`] tokens, the last one possibly shorter: equal ids
    /// mean equal content.
    Shared(Arc<[u32]>),
    /// Shares nothing: this number occurs once in its trace.
    Unique(u64),
    /// The text is these pieces in a row. They may go on past the prompt: what follows is the answer,
    /// which engines cache too, and then what later turns of the conversation add, so that one list
    /// serves all of them.
    Parts(Arc<[Part]>),
}

/// A piece of text: equal `content` means equal text, as far as the shorter one goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part {
    /// Names the text.
    pub content: u64,
    /// Its length in tokens.
    pub tokens: u32,
}

/// A recorded workload, in order of arrival.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What reports call it.
    pub name: String,
    /// Requests, earliest first.
    pub arrivals: Vec<Arrival>,
    /// How many prompts were cut to [`TraceOptions::max_prompt_tokens`] when it was read.
    pub clamped: usize,
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceOptions {
    /// Longer prompts are cut to this many tokens; `None` keeps them.
    pub max_prompt_tokens: Option<u32>,
    /// Seed of the offsets that spread coarse timestamps.
    pub seed: u64,
}

impl Trace {
    /// Reads the file at `path`, see [`Trace::read`]; its name is the file name up to the first dot.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Self, TraceError> {
        let file = File::open(path)
            .map_err(|source| TraceError::Open { file: path.display().to_string(), source })?;
        let trace = Self::read(&path.display().to_string(), file, options)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self { name: name.split('.').next().unwrap_or_default().to_owned(), ..trace })
    }

    /// Reads a Mooncake trace (JSON lines with `timestamp`, `input_length`, `output_length` and
    /// `hash_ids`), an Azure one (CSV with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`), a
    /// workload of `AIBrix` (JSON lines with `timestamp` and `requests`) or rows that were recorded by
    /// this program, gzipped or not: the content tells which. `file` is its name in errors.
    ///
    /// A length of zero tokens counts as one. Rows out of order are sorted.
    pub fn read(file: &str, reader: impl Read, options: &TraceOptions) -> Result<Self, TraceError> {
        let (lines, format) = open_lines(file, reader)?;
        let mut arrivals = match format {
            Format::Mooncake => mooncake::read(file, lines, options.seed)?,
            Format::Azure => azure::read(file, lines)?,
            Format::Sessions => sessions::read(file, lines)?,
            Format::Recorded => recorded::read(file, lines)?,
        };
        if arrivals.is_empty() {
            return Err(TraceError::Empty { file: file.to_owned() });
        }
        let clamped = options
            .max_prompt_tokens
            .map_or(0, |limit| arrivals.iter_mut().filter_map(|a| a.clamp(limit)).count());
        Ok(Self { name: file.to_owned(), arrivals, clamped })
    }

    /// One of the slices that come with the program.
    pub fn bundled(which: Bundled, options: &TraceOptions) -> Result<Self, TraceError> {
        Self::read(which.name(), which.bytes(), options)
    }

    /// Time from the start of the trace to its last arrival.
    pub fn span(&self) -> Duration {
        self.arrivals.last().map_or(Duration::ZERO, |last| last.at)
    }

    /// The arrivals in `from..from + len`, counted from `from`.
    #[must_use]
    pub fn slice(mut self, from: Duration, len: Duration) -> Self {
        self.arrivals.retain_mut(|arrival| {
            let Some(at) = arrival.at.checked_sub(from) else {
                return false;
            };
            arrival.at = at;
            at < len
        });
        self
    }

    /// The same requests at `rate` times the rate: every gap is divided by it. A rate that is not
    /// positive changes nothing.
    #[must_use]
    pub fn scaled(mut self, rate: f64) -> Self {
        if rate.is_finite() && rate > 0.0 {
            for arrival in &mut self.arrivals {
                arrival.at = Duration::try_from_secs_f64(arrival.at.as_secs_f64() / rate)
                    .unwrap_or(Duration::MAX);
            }
        }
        self
    }

    /// The first `count` arrivals.
    #[must_use]
    pub fn take(mut self, count: usize) -> Self {
        self.arrivals.truncate(count);
        self
    }
}

impl Arrival {
    /// Cuts the prompt to `limit` tokens; `None` if it was short enough.
    fn clamp(&mut self, limit: u32) -> Option<()> {
        let limit = limit.max(1);
        if self.prompt_tokens <= limit {
            return None;
        }
        self.prompt_tokens = limit;
        match &mut self.blocks {
            BlockSource::Shared(ids) => {
                *ids = ids[..limit.div_ceil(TRACE_BLOCK_TOKENS) as usize].into();
            }
            BlockSource::Parts(parts) => *parts = first_tokens(parts, limit),
            BlockSource::Unique(_) => {}
        }
        Some(())
    }
}

/// The pieces of the first `limit` tokens.
fn first_tokens(parts: &[Part], limit: u32) -> Arc<[Part]> {
    let mut left = limit;
    let cut = |part: &Part| {
        let tokens = part.tokens.min(left);
        left -= tokens;
        (tokens > 0).then_some(Part { tokens, ..*part })
    };
    parts.iter().map_while(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled(which: Bundled) -> Trace {
        Trace::bundled(which, &TraceOptions::default()).unwrap()
    }

    #[test]
    fn the_bundled_traces_are_whole_and_in_order() {
        for (which, rows) in [
            (Bundled::MooncakeConversation, 2_154),
            (Bundled::AzureConversation, 1_500),
            (Bundled::AzureCode, 1_500),
        ] {
            let trace = bundled(which);
            assert_eq!(trace.arrivals.len(), rows, "{}", trace.name);
            assert!(trace.arrivals.is_sorted_by_key(|a| a.at), "{}", trace.name);
            assert!(trace.span() > Duration::from_secs(150), "{}", trace.name);
        }
    }

    #[test]
    fn a_third_of_the_mooncake_blocks_were_seen_before() {
        let mut seen = std::collections::HashSet::new();
        let (mut hits, mut blocks) = (0.0, 0.0);
        for arrival in bundled(Bundled::MooncakeConversation).arrivals {
            let BlockSource::Shared(ids) = arrival.blocks else { panic!("no ids") };
            blocks += ids.len() as f32;
            hits += ids.iter().filter(|id| !seen.insert(**id)).count() as f32;
        }
        assert!((0.2..0.5).contains(&(hits / blocks)), "{hits} of {blocks}");
    }

    #[test]
    fn a_slice_counts_from_its_own_start() {
        let whole = bundled(Bundled::AzureConversation);
        let (from, len) = (Duration::from_mins(1), Duration::from_secs(30));
        let inside = whole.arrivals.iter().filter(|a| a.at >= from && a.at < from + len).count();
        let slice = whole.slice(from, len);
        assert_eq!(slice.arrivals.len(), inside);
        assert!(slice.arrivals[0].at < Duration::from_secs(5));
        assert!(slice.span() < len);
    }

    #[test]
    fn twice_the_rate_takes_half_the_time() {
        let trace = bundled(Bundled::AzureCode).take(100);
        let span = trace.span();
        assert_eq!(trace.clone().scaled(0.0).span(), span);
        let halved = trace.scaled(2.0);
        assert_eq!(halved.arrivals.len(), 100);
        assert!(halved.span().abs_diff(span / 2) < Duration::from_micros(1));
    }

    #[test]
    fn long_prompts_are_cut_with_their_blocks_and_counted() {
        let options = TraceOptions { max_prompt_tokens: Some(1_500), ..TraceOptions::default() };
        let whole = bundled(Bundled::MooncakeConversation);
        let long = whole.arrivals.iter().filter(|a| a.prompt_tokens > 1_500).count();
        let cut = Trace::bundled(Bundled::MooncakeConversation, &options).unwrap();
        assert_eq!(cut.clamped, long);
        assert!(long > 0);
        for arrival in &cut.arrivals {
            assert!(arrival.prompt_tokens <= 1_500);
            let BlockSource::Shared(ids) = &arrival.blocks else { panic!("no ids") };
            assert_eq!(ids.len() as u32, arrival.prompt_tokens.div_ceil(512));
        }
    }

    #[test]
    fn a_cut_prompt_of_pieces_keeps_its_first_ones() {
        let part = |content, tokens| Part { content, tokens };
        let mut arrival = Arrival {
            at: Duration::ZERO,
            prompt_tokens: 300,
            output_tokens: 1,
            blocks: BlockSource::Parts([part(1, 100), part(2, 100), part(3, 100)].into()),
            session: None,
            class: 0,
        };
        arrival.clamp(150).unwrap();
        assert_eq!(arrival.prompt_tokens, 150);
        assert_eq!(arrival.blocks, BlockSource::Parts([part(1, 100), part(2, 50)].into()));
    }

    #[test]
    fn a_file_is_named_after_its_stem_and_a_missing_one_by_its_path() {
        let folder = std::env::temp_dir();
        let missing = folder.join("no-such-trace.jsonl");
        let error = Trace::open(&missing, &TraceOptions::default()).unwrap_err();
        assert!(error.to_string().contains("no-such-trace.jsonl"), "{error}");
    }
}
