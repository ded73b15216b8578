//! Reads the decisions of recorded rows: what each chose from, and what came of it.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::Path,
};

use features::{SCHEMA_VERSION, WIDTH};
use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;

use super::{decision::Decision, open::RowsError, write::version};

/// Longest line that is read.
const MAX_LINE_BYTES: u64 = 1 << 24;
/// First bytes of every gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A decision and what came of it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Logged {
    /// When it was decided, in milliseconds.
    pub(crate) decided_at_ms: f64,
    /// Model asked for.
    pub(crate) model: String,
    /// `namespace/name` of the endpoint that served.
    pub(crate) endpoint: String,
    /// Time to first token, where it was seen.
    #[serde(default)]
    pub(crate) ttft_ms: Option<f32>,
    /// Mean time between tokens, where two were seen.
    #[serde(default)]
    pub(crate) itl_ms: Option<f32>,
    /// How it ended.
    pub(crate) end: String,
    /// What decided.
    pub(crate) rung: String,
    /// What it chose from; none in rows without.
    #[serde(default)]
    pub(crate) decision: Option<Decision>,
}

/// Reads the rows of ours in the file at `path` (JSON lines, gzipped or not), in the order in which they
/// were decided.
pub(crate) fn read_logged(path: &Path) -> Result<Vec<Logged>, RowsError> {
    let file = path.display().to_string();
    let cannot = |source| RowsError::Read { file: file.clone(), source };
    let mut reader = BufReader::new(File::open(path).map_err(cannot)?);
    let is_packed = reader.fill_buf().map_err(cannot)?.starts_with(&GZIP_MAGIC);
    let mut rows = if is_packed {
        read_lines(&file, BufReader::new(MultiGzDecoder::new(reader)))?
    } else {
        read_lines(&file, reader)?
    };
    if rows.is_empty() {
        return Err(RowsError::Empty { file });
    }
    rows.sort_by(|a, b| a.decided_at_ms.total_cmp(&b.decided_at_ms));
    Ok(rows)
}

fn read_lines(file: &str, mut reader: impl BufRead) -> Result<Vec<Logged>, RowsError> {
    let mut rows = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let taken = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut text);
        let taken = taken.map_err(|source| RowsError::Read { file: file.to_owned(), source })?;
        if taken == 0 {
            break;
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let row = row(&text).map_err(|problem| RowsError::Line {
            file: file.to_owned(),
            line,
            problem,
        })?;
        rows.push(row);
    }
    Ok(rows)
}

fn row(text: &[u8]) -> Result<Logged, String> {
    match version(text) {
        Some(SCHEMA_VERSION) => {}
        Some(other) => {
            return Err(format!("`schema` is {other}, and this program reads {SCHEMA_VERSION}"));
        }
        None => return Err("not a row recorded here: no `schema`".to_owned()),
    }
    let row: Logged = serde_json::from_slice(text).map_err(|error| {
        let (problem, column) = (error.to_string(), error.column());
        let end = format!(" at line {} column {column}", error.line());
        format!("column {column}: {}", problem.strip_suffix(&end).unwrap_or(&problem))
    })?;
    row.decision.as_ref().map_or(Ok(()), check)?;
    Ok(row)
}

/// What its shape alone does not tell.
fn check(decision: &Decision) -> Result<(), String> {
    let Decision { candidates, chosen, of, propensity, .. } = decision;
    if *chosen >= candidates.len() || candidates.len() > *of as usize {
        return Err(format!(
            "`decision` says that {chosen} of {} candidates is chosen, and that there were {of}",
            candidates.len()
        ));
    }
    if let Some(wrong) = candidates.iter().find(|candidate| candidate.features.len() != WIDTH) {
        return Err(format!("a candidate has {} features, not {WIDTH}", wrong.features.len()));
    }
    if propensity.is_some_and(|propensity| !(propensity > 0.0 && propensity <= 1.0)) {
        return Err("`propensity` is no chance above 0".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        read_lines("r.jsonl", format!("\n{line}\n").as_bytes()).unwrap_err().to_string()
    }

    fn line(decision: &str) -> String {
        format!(
            "{{\"schema\":{SCHEMA_VERSION},\"decided_at_ms\":1.5,\"model\":\"m\",\"endpoint\":\"a/b\",\
             \"end\":\"complete\",\"rung\":\"random\",\"features\":{{}}{decision}}}"
        )
    }

    #[test]
    fn a_row_without_candidates_is_read_and_has_none() {
        let rows = read_lines("r.jsonl", line("").as_bytes()).unwrap();
        assert!(rows[0].decision.is_none() && rows[0].ttft_ms.is_none());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let decision = |chosen: u32, features: &str| {
            line(&format!(
                ",\"decision\":{{\"weight\":1,\"stream\":true,\"blocks\":3,\"of\":1,\"chosen\":{chosen},\
                 \"propensity\":1,\"candidates\":[{{\"endpoint\":\"a/b\",\"accelerator\":\"x\",\
                 \"role\":\"both\",\"features\":[{features}],\"hit_blocks\":0,\"unbound\":0}}]}}"
            ))
        };
        let all = ["0"; WIDTH].join(",");
        assert!(read_lines("r", decision(0, &all).as_bytes()).is_ok());
        for (line, words) in [
            (decision(1, &all), "1 of 1 candidates is chosen"),
            (decision(0, "1,2"), "a candidate has 2 features"),
            (line(",\"decision\":{\"weight\":1}"), "missing field `stream`"),
            ("{\"schema\":1}".to_owned(), "`schema` is 1"),
            ("{\"actual_ttft_ms\":1}".to_owned(), "no `schema`"),
        ] {
            let told = refused(&line);
            assert!(told.starts_with("r.jsonl:2: ") && told.contains(words), "{told}");
        }
    }
}
