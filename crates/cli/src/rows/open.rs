//! Opens a file of rows: JSON lines, CSV or Parquet, gzipped or not, told apart by content.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use bytes::Bytes;
use clap::ValueEnum;
use flate2::read::MultiGzDecoder;
use parquet::{
    errors::ParquetError,
    file::reader::{FileReader as _, SerializedFileReader},
    record::{Field, Row as ParquetRow},
};

use super::{
    Rows,
    fields::{Cell, Fields, Problem},
    ours::{self, Ours, Row},
    peer,
};

/// First bytes of every gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// First bytes of every Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// Format of a file of rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// By content
    #[default]
    Auto,
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a header; features are columns called `features.NAME`
    Csv,
    /// Parquet with the columns of the CSV
    Parquet,
}

/// Rows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RowsError {
    /// The file cannot be read or unpacked.
    #[error("cannot read rows from `{file}`")]
    Read { file: String, source: io::Error },
    /// It is no Parquet file that can be read.
    #[error("cannot read `{file}` as Parquet")]
    Parquet { file: String, source: ParquetError },
    /// A line is not made as its format says; of a Parquet file, the row of that number.
    #[error("{file}:{line}: {problem}")]
    Line { file: String, line: u64, problem: String },
    /// A value is missing or not what it should be.
    #[error("{file}:{line}: `{field}` {problem}")]
    Field { file: String, line: u64, field: String, problem: String },
    /// It is a folder, and not one of state that can be read.
    #[error("cannot read rows from the folder `{file}`")]
    State { file: String, source: state::Error },
    /// There is none.
    #[error("{file}: no rows")]
    Empty { file: String },
}

/// Reads the file at `path`.
pub(super) fn read_path(path: &Path, format: Format) -> Result<Rows, RowsError> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|source| RowsError::Read { file: file.clone(), source })?;
    read(&file, bytes, format)
}

/// Reads what a file called `file` holds.
pub(crate) fn read(file: &str, bytes: Vec<u8>, format: Format) -> Result<Rows, RowsError> {
    let bytes =
        unpacked(bytes).map_err(|source| RowsError::Read { file: file.to_owned(), source })?;
    let mut reader = Reader { file, kind: None, rows: Rows::default() };
    match format {
        Format::Auto if bytes.starts_with(PARQUET_MAGIC) => reader.parquet(bytes)?,
        Format::Auto if bytes.trim_ascii_start().starts_with(b"{") => reader.jsonl(&bytes)?,
        Format::Auto | Format::Csv => reader.csv(&bytes)?,
        Format::Jsonl => reader.jsonl(&bytes)?,
        Format::Parquet => reader.parquet(bytes)?,
    }
    if reader.rows.read == 0 {
        return Err(RowsError::Empty { file: file.to_owned() });
    }
    if let Some(Kind::Ours(ours)) = reader.kind {
        reader.rows.endpoints = ours.into_endpoints();
    }
    Ok(reader.rows)
}

fn unpacked(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(&*bytes).read_to_end(&mut plain)?;
    Ok(plain)
}

/// Whose rows a file holds.
#[derive(Debug)]
enum Kind {
    Ours(Ours),
    Peer,
}

/// Reads one file.
#[derive(Debug)]
struct Reader<'a> {
    file: &'a str,
    kind: Option<Kind>,
    rows: Rows,
}

impl Reader<'_> {
    fn jsonl(&mut self, bytes: &[u8]) -> Result<(), RowsError> {
        for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if text.trim_ascii().is_empty() {
                continue;
            }
            let object = serde_json::from_slice(text)
                .map_err(|error| self.bad_line(line, format!("not a JSON object: {error}")))?;
            self.take(&Fields::of_json(object), line)?;
        }
        Ok(())
    }

    fn csv(&mut self, bytes: &[u8]) -> Result<(), RowsError> {
        let mut reader = csv::Reader::from_reader(bytes);
        let bad = |error: &csv::Error| {
            let line = error.position().map_or(1, csv::Position::line);
            self.bad_line(line, format!("not a row of CSV: {error}"))
        };
        let names = reader.headers().map_err(|error| bad(&error))?.clone();
        let mut record = csv::StringRecord::new();
        loop {
            match reader.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    let line = error.position().map_or(1, csv::Position::line);
                    return Err(self.bad_line(line, format!("not a row of CSV: {error}")));
                }
            }
            let mut fields = Fields::default();
            for (name, text) in names.iter().zip(&record) {
                fields.put(name.trim(), (!text.is_empty()).then(|| Cell::Text(text.to_owned())));
            }
            let line = record.position().map_or(1, csv::Position::line);
            self.take(&fields, line)?;
        }
    }

    fn parquet(&mut self, bytes: Vec<u8>) -> Result<(), RowsError> {
        let file = self.file.to_owned();
        let bad = |source| RowsError::Parquet { file: file.clone(), source };
        let reader = SerializedFileReader::new(Bytes::from(bytes)).map_err(bad)?;
        let rows = reader.get_row_iter(None).map_err(bad)?;
        for (line, row) in (1..).zip(rows) {
            self.take(&fields_of(&row.map_err(bad)?), line)?;
        }
        Ok(())
    }

    fn take(&mut self, fields: &Fields, line: u64) -> Result<(), RowsError> {
        let kind = match &mut self.kind {
            Some(kind) => kind,
            None if ours::fits(fields) => self.kind.insert(Kind::Ours(Ours::default())),
            None if peer::fits(fields) => self.kind.insert(Kind::Peer),
            None => {
                let problem = "neither a row recorded here (no `schema`) nor one of llm-d's latency \
                               predictor (no `actual_ttft_ms`)";
                return Err(self.bad_line(line, problem.to_owned()));
            }
        };
        let row = match kind {
            Kind::Ours(ours) => ours.row(fields),
            Kind::Peer => peer::row(fields, self.rows.read).map(|row| Row::Learned(Box::new(row))),
        };
        self.rows.without_times = matches!(kind, Kind::Peer);
        match row.map_err(|problem| self.bad_field(line, problem))? {
            Row::Learned(row) => self.rows.labelled.push(*row),
            Row::KeptOut(why) => *self.rows.kept_out.entry(why).or_default() += 1,
        }
        self.rows.read += 1;
        Ok(())
    }

    fn bad_line(&self, line: u64, problem: String) -> RowsError {
        RowsError::Line { file: self.file.to_owned(), line, problem }
    }

    fn bad_field(&self, line: u64, Problem { field, problem }: Problem) -> RowsError {
        RowsError::Field { file: self.file.to_owned(), line, field, problem }
    }
}

fn fields_of(row: &ParquetRow) -> Fields {
    let mut fields = Fields::default();
    for (name, field) in row.get_column_iter() {
        match field {
            Field::Group(group) => {
                for (inner, field) in group.get_column_iter() {
                    fields.put(&format!("{name}.{inner}"), cell_of(field));
                }
            }
            field => fields.put(name, cell_of(field)),
        }
    }
    fields
}

fn cell_of(field: &Field) -> Option<Cell> {
    Some(match field {
        Field::Null => return None,
        // What columnar tools write for a value that is not there.
        Field::Double(number) if number.is_nan() => return None,
        Field::Float(number) if number.is_nan() => return None,
        Field::Byte(n) => Cell::Number(f64::from(*n)),
        Field::Short(n) => Cell::Number(f64::from(*n)),
        Field::Int(n) => Cell::Number(f64::from(*n)),
        Field::Long(n) => Cell::Number(*n as f64),
        Field::UByte(n) => Cell::Number(f64::from(*n)),
        Field::UShort(n) => Cell::Number(f64::from(*n)),
        Field::UInt(n) => Cell::Number(f64::from(*n)),
        Field::ULong(n) => Cell::Number(*n as f64),
        Field::Float16(n) => Cell::Number(f64::from(*n)),
        Field::Float(n) => Cell::Number(f64::from(*n)),
        Field::Double(n) => Cell::Number(*n),
        Field::Str(text) => Cell::Text(text.clone()),
        Field::Bytes(bytes) => Cell::Text(String::from_utf8_lossy(bytes.data()).into_owned()),
        _ => Cell::Other("of another type"),
    })
}
