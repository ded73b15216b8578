//! The few numbers that matter on an engine's metrics page, in one pass and without allocating.
//!
//! A value that the engine does not tell is unknown. Counts of several engines on one page add up;
//! their KV utilization does not, and without the capacity of each a mean would be wrong: the fullest
//! engine counts, as it is the one where requests start to wait.

mod sample;
mod series;
mod tally;

use series::{Form, Series};
use tally::Tally;

use crate::Snapshot;

/// Largest page that is read, bytes.
pub const MAX_PAGE_BYTES: usize = 8 << 20;
/// Longest value of a label on a line that is read, bytes.
pub const MAX_LABEL_BYTES: usize = 64 << 10;

/// Labels of an endpoint that may name its engine, the most telling first.
const ENGINE_LABELS: [&str; 2] =
    ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// Whose metric names a page uses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Engine {
    /// vLLM, NIM, and vLLM under Ray Serve or as a backend of Triton.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM's own server.
    TrtllmServe,
    /// Triton with the TensorRT-LLM backend.
    Triton,
    /// Text Generation Inference.
    Tgi,
    /// llama.cpp's server.
    LlamaCpp,
}

impl Engine {
    /// The engine that a label names; `None` where the page itself has to tell, as for `triton`,
    /// whose backend decides.
    pub fn from_label(label: &str) -> Option<Self> {
        match label {
            "vllm" | "nim" => Some(Self::Vllm),
            "sglang" => Some(Self::Sglang),
            "trtllm-serve" => Some(Self::TrtllmServe),
            "triton-tensorrt-llm" => Some(Self::Triton),
            "tgi" => Some(Self::Tgi),
            "llama.cpp" | "llamacpp" | "llama-cpp" => Some(Self::LlamaCpp),
            _ => None,
        }
    }

    /// The engine of `endpoint` by its label `llm-d.ai/engine-type`, or else
    /// `inference.networking.k8s.io/engine-type`.
    pub fn of(endpoint: &types::Endpoint) -> Option<Self> {
        let label = ENGINE_LABELS.iter().find_map(|label| endpoint.labels.get(*label))?;
        Self::from_label(label)
    }
}

/// What a page says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Page {
    /// Whose names it uses.
    pub engine: Engine,
    /// Its numbers; `scraped_at` is left to the caller.
    pub snapshot: Snapshot,
    /// Whether it gives a KV utilization above 1, which is then unknown.
    pub kv_suspect: bool,
    /// Whether every engine on it is asleep: it has no load and no capacity either.
    pub asleep: bool,
}

/// Why a page says nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// It is too large.
    #[error("page has more than {MAX_PAGE_BYTES} bytes")]
    TooLarge,
    /// A label on a line that matters is too long.
    #[error("label on line {line} has more than {MAX_LABEL_BYTES} bytes")]
    LabelTooLong {
        /// The line, from 1.
        line: usize,
    },
    /// It is compressed, which was not asked for.
    #[error("page is compressed")]
    Compressed,
    /// It has no series of the engine, or of any.
    #[error("page has no series of a known engine")]
    NoSeries,
}

/// Reads `page`, in Prometheus text format 0.0.4 or near enough, as one of `engine`; `None` finds the
/// engine by the names on the page, the first that is known.
pub fn read_page(engine: Option<Engine>, page: &[u8]) -> Result<Page, PageError> {
    if page.len() > MAX_PAGE_BYTES {
        return Err(PageError::TooLarge);
    }
    if page.starts_with(&[0x1f, 0x8b]) {
        return Err(PageError::Compressed);
    }
    let mut reader = Reader { asked: engine, dialect: None, tally: Tally::default() };
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', page).chain(std::iter::once(page.len())) {
        let line = page.get(start..end).unwrap_or_default();
        if reader.read_line(line).is_err() {
            let line = 1 + memchr::memchr_iter(b'\n', &page[..start]).count();
            return Err(PageError::LabelTooLong { line });
        }
        start = end + 1;
    }
    let Some((engine, _)) = reader.dialect else { return Err(PageError::NoSeries) };
    Ok(reader.tally.page(engine))
}

/// A page half read.
struct Reader {
    asked: Option<Engine>,
    /// Engine and spelling of the first series found; a second spelling would count twice.
    dialect: Option<(Engine, Form)>,
    tally: Tally,
}

impl Reader {
    fn read_line(&mut self, line: &[u8]) -> Result<(), sample::TooLong> {
        let Some((dialect, series, rest)) = self.find(line.trim_ascii_start()) else {
            return Ok(());
        };
        if let Some(sample) = sample::Sample::read(rest)? {
            self.dialect = Some(dialect);
            self.tally.add(series, &sample);
        }
        Ok(())
    }

    /// The series that `line` belongs to, and what follows its name.
    fn find<'a>(&self, line: &'a [u8]) -> Option<((Engine, Form), Series, &'a [u8])> {
        let (engine, form, name) = series::dialect(line)?;
        let engine = match (form, self.asked) {
            // Without a prefix only a label tells whose names they are.
            (Form::Bare, Some(Engine::TrtllmServe)) => Engine::TrtllmServe,
            _ => engine,
        };
        let wanted = match self.dialect {
            Some(dialect) => dialect == (engine, form),
            None => self.asked.is_none_or(|asked| asked == engine),
        };
        let (series, rest) = if wanted { series::find(engine, name)? } else { return None };
        Some(((engine, form), series, rest))
    }
}
