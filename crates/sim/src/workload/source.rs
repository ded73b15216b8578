//! Where traces come from: plain or gzipped bytes, told apart by their content, or a bundled slice.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use super::{recorded, sessions};

/// First bytes of every gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open trace `{file}`")]
    Open {
        /// Its path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// Reading or unpacking stopped.
    #[error("{file}:{line}: cannot read on")]
    Read {
        /// The trace.
        file: String,
        /// Line that was not read, from 1.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A value is missing or not what it should be.
    #[error("{file}:{line}: `{field}` {problem}")]
    Field {
        /// The trace.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Name of the column or key.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A line is not made as its format says.
    #[error("{file}:{line}: {problem}")]
    Line {
        /// The trace.
        file: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Neither JSON lines nor a CSV header is found at the start.
    #[error(
        "{file}:1: neither a Mooncake trace (JSON lines) nor an Azure one (CSV with `TIMESTAMP`)"
    )]
    Format {
        /// The trace.
        file: String,
    },
    /// The description of a workload makes no sense.
    #[error("workload.{what}")]
    Workload {
        /// The key, a colon and what is wrong with it.
        what: String,
    },
    /// There are no requests.
    #[error("{file}: no requests")]
    Empty {
        /// The trace.
        file: String,
    },
}

/// A trace slice that is part of the program; the folder `data` says where they come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bundled {
    /// Mooncake, conversation: 12 minutes with prefix identity.
    MooncakeConversation,
    /// Azure 2023, conversation: 1,500 requests.
    AzureConversation,
    /// Azure 2023, code: 1,500 requests, very bursty.
    AzureCode,
}

impl Bundled {
    /// Every slice.
    pub const ALL: [Self; 3] =
        [Self::MooncakeConversation, Self::AzureConversation, Self::AzureCode];

    /// Its name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::MooncakeConversation => "mooncake-conversation",
            Self::AzureConversation => "azure-conversation",
            Self::AzureCode => "azure-code",
        }
    }

    /// The slice called `name`.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slice| slice.name() == name)
    }

    pub(super) fn bytes(self) -> &'static [u8] {
        match self {
            Self::MooncakeConversation => {
                include_bytes!("../../data/mooncake_conversation_slice.jsonl.gz")
            }
            Self::AzureConversation => {
                include_bytes!("../../data/azure_llm_2023_conv_slice.csv.gz")
            }
            Self::AzureCode => include_bytes!("../../data/azure_llm_2023_code_slice.csv.gz"),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Mooncake,
    Azure,
    Sessions,
    Recorded,
}

/// Bytes at the start of a file that tell its format.
const HEAD: u64 = 1_024;

/// Unpacks what is packed and looks at the start: JSON lines begin with a brace, and their first keys
/// tell of which format they are.
pub(super) fn open_lines<'a>(
    file: &str,
    reader: impl Read + 'a,
) -> Result<(Box<dyn BufRead + 'a>, Format), TraceError> {
    let mut lines = unpacked(file, reader)?;
    let mut head = Vec::new();
    lines.by_ref().take(HEAD).read_to_end(&mut head).map_err(|source| stopped(file, source))?;
    let text = String::from_utf8_lossy(&head);
    let format = match text.bytes().next() {
        None => return Err(TraceError::Empty { file: file.to_owned() }),
        Some(b'{') if recorded::fits(&text) => Format::Recorded,
        Some(b'{') if sessions::fits(&text) => Format::Sessions,
        Some(b'{') => Format::Mooncake,
        // Its reader refuses a header without the columns.
        Some(_) => Format::Azure,
    };
    Ok((Box::new(Cursor::new(head).chain(lines)), format))
}

/// The lines of a file, gzipped or not.
pub(super) fn unpacked<'a>(
    file: &str,
    mut reader: impl Read + 'a,
) -> Result<Box<dyn BufRead + 'a>, TraceError> {
    // Two bytes are read by hand because one fill of a buffer may bring a single byte.
    let mut head = Vec::with_capacity(GZIP_MAGIC.len());
    reader
        .by_ref()
        .take(GZIP_MAGIC.len() as u64)
        .read_to_end(&mut head)
        .map_err(|source| stopped(file, source))?;
    let packed = head == GZIP_MAGIC;
    let whole = BufReader::new(Cursor::new(head).chain(reader));
    Ok(if packed { Box::new(BufReader::new(MultiGzDecoder::new(whole))) } else { Box::new(whole) })
}

fn stopped(file: &str, source: io::Error) -> TraceError {
    TraceError::Read { file: file.to_owned(), line: 1, source }
}

/// Hands every line to `take`, with its number from 1; lines of white space are passed over.
pub(super) fn each_line(
    file: &str,
    mut lines: impl BufRead,
    mut take: impl FnMut(u64, &str) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let length = lines.read_line(&mut text).map_err(|source| TraceError::Read {
            file: file.to_owned(),
            line,
            source,
        })?;
        if length == 0 {
            break;
        }
        if !text.trim().is_empty() {
            take(line, text.trim())?;
        }
    }
    Ok(())
}
