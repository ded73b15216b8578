//! Reads Azure LLM inference traces: CSV with arrivals and lengths, no prefix identity.

use std::{io::BufRead, time::Duration};

use super::{Arrival, BlockSource, TraceError, source::each_line};

/// The columns that are read, in any order; others are ignored.
const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// What a row tells: nanoseconds since 1970, prompt tokens and output tokens.
type Row = (u64, u32, u32);

pub(super) fn read(file: &str, lines: impl BufRead) -> Result<Vec<Arrival>, TraceError> {
    let mut columns = None;
    let mut stamped = Vec::new();
    each_line(file, lines, |line, text| {
        let place =
            |(field, problem)| TraceError::Field { file: file.to_owned(), line, field, problem };
        let Some(columns) = columns else {
            if !COLUMNS.iter().any(|column| text.contains(column)) {
                return Err(TraceError::Format { file: file.to_owned() });
            }
            columns = Some(read_header(text).map_err(place)?);
            return Ok(());
        };
        stamped.push(read_row(text, columns).map_err(place)?);
        Ok(())
    })?;
    stamped.sort_by_key(|row| row.0);
    let first = stamped.first().map_or(0, |row| row.0);
    let arrival = |(index, (at, prompt_tokens, output_tokens)): (u64, Row)| Arrival {
        at: Duration::from_nanos(at - first),
        prompt_tokens: prompt_tokens.max(1),
        output_tokens: output_tokens.max(1),
        blocks: BlockSource::Unique(index),
        session: None,
        class: 0,
    };
    Ok((0..).zip(stamped).map(arrival).collect())
}

/// Where each of [`COLUMNS`] stands.
fn read_header(text: &str) -> Result<[usize; 3], (&'static str, String)> {
    let mut columns = [0; COLUMNS.len()];
    for (column, name) in columns.iter_mut().zip(COLUMNS) {
        *column = cells(text)
            .position(|found| found == name)
            .ok_or_else(|| (name, "is not among the columns".to_owned()))?;
    }
    Ok(columns)
}

/// The row, or the field that is wrong and what is wrong with it.
fn read_row(text: &str, columns: [usize; 3]) -> Result<Row, (&'static str, String)> {
    let cell = |which: usize| cells(text).nth(columns[which]).unwrap_or_default();
    let problem = |which: usize, wanted: &str| {
        (COLUMNS[which], format!("is `{}`, not {wanted}", cell(which)))
    };
    let count = |which: usize| cell(which).parse().map_err(|_| problem(which, "a token count"));
    let at = nanos(cell(0)).ok_or_else(|| problem(0, "a time like 2023-11-16 18:17:03.9799600"))?;
    Ok((at, count(1)?, count(2)?))
}

/// The cells of a line. None of the columns holds a comma, so quotes are only taken off.
fn cells(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches('\u{feff}').split(',').map(|cell| cell.trim().trim_matches('"'))
}

/// Nanoseconds from 1970 to `YYYY-MM-DD HH:MM:SS[.fraction]`; a UTC suffix is allowed.
fn nanos(text: &str) -> Option<u64> {
    let text = text.strip_suffix("+00:00").or_else(|| text.strip_suffix('Z')).unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=2262).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !in_range || fraction.len() > 9 {
        return None;
    }
    let fraction = fraction.parse::<u32>().ok()? * 10_u32.pow(9 - fraction.len() as u32);
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1_000_000_000 + u64::from(fraction))
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970-01-01 to a Gregorian date, counting years from March so that a leap day comes
/// last (Fliegel and Van Flandern 1968, as rearranged for unsigned numbers).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::workload::{Trace, TraceOptions};

    const GOOD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                        2023-11-16 23:59:59.9999999,4808,10\r\n\
                        2023-11-17 00:00:00.0000001,3180,0\r\n";

    fn trace(bytes: &[u8]) -> Result<Trace, TraceError> {
        Trace::read("a.csv", bytes, &TraceOptions::default())
    }

    #[test]
    fn ticks_of_100_ns_survive_midnight() {
        let arrivals = trace(GOOD.as_bytes()).unwrap().arrivals;
        assert_eq!(arrivals[0].at, Duration::ZERO);
        assert_eq!(arrivals[1].at, Duration::from_nanos(200));
        assert_eq!((arrivals[0].prompt_tokens, arrivals[0].output_tokens), (4_808, 10));
        assert_eq!(arrivals[1].output_tokens, 1);
        assert_ne!(arrivals[0].blocks, arrivals[1].blocks);
    }

    #[test]
    fn dates_are_counted_from_1970() {
        for (date, expected) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2024, 5, 10), 19_853),
        ] {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
    }

    #[test]
    fn a_gzipped_file_reads_the_same() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(GOOD.as_bytes()).unwrap();
        let packed = trace(&packed.finish().unwrap()).unwrap();
        assert_eq!(packed.arrivals, trace(GOOD.as_bytes()).unwrap().arrivals);
    }

    #[test]
    fn a_bad_row_is_named_with_its_field() {
        for (row, expected) in [
            ("16.11.2023,1,1", "a.csv:4: `TIMESTAMP` is `16.11.2023`, not a time like"),
            ("2023-11-17 00:00:01,-1,1", "a.csv:4: `ContextTokens` is `-1`, not a token count"),
            ("2023-11-17 00:00:01,1,x", "a.csv:4: `GeneratedTokens` is `x`, not a token count"),
            ("2023-11-17 00:00:01,1", "a.csv:4: `GeneratedTokens` is ``, not a token count"),
        ] {
            let error = trace(format!("{GOOD}{row}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let error = trace(b"TIMESTAMP,Tokens\n").unwrap_err().to_string();
        assert_eq!(error, "a.csv:1: `ContextTokens` is not among the columns");
    }

    #[test]
    fn what_is_no_trace_says_so() {
        assert!(matches!(trace(b"hello"), Err(TraceError::Format { .. })));
        assert!(matches!(trace(b""), Err(TraceError::Empty { .. })));
        let header = b"TIMESTAMP,ContextTokens,GeneratedTokens\n";
        assert!(matches!(trace(header), Err(TraceError::Empty { .. })));
        assert!(matches!(trace(&[0x1f, 0x8b, 0, 0]), Err(TraceError::Read { .. })));
    }
}
