//! Rows in a state folder: how one is kept there, and how they are read back.
//!
//! A kept row is a line of ours whose features stand in a list, without their names: half the size. It
//! carries the number of its columns, so that rows of another version are told apart, and the names to each
//! number lie beside them.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use features::SCHEMA;
use router::Recorded;
use serde_json::{Map, Value};
use state::Store;

use super::{
    Format, Rows,
    open::{RowsError, read},
    write,
};

/// Version of what lies in a state folder; a folder of another is moved aside.
pub(crate) const STATE_SCHEMA: u32 = 1;
/// Blob with the names of columns by their number.
const COLUMNS: &str = "columns";
/// Key of the number of columns in a row.
const KEY: &str = "columns";
/// Key and begin of the features in a line of ours.
const FEATURES: &str = "\"features\":{";
/// Rows that are left out since they cannot be read, before the others are not looked at either.
const MOST_UNREADABLE: usize = 100;

/// Names of the columns of this version, in their order.
pub(crate) fn columns() -> Vec<&'static str> {
    SCHEMA.iter().map(|feature| feature.name).collect()
}

/// The number of the columns `names`: FNV-1a of the names, each with an end.
pub(crate) fn number(names: &[impl AsRef<str>]) -> String {
    let bytes = names.iter().flat_map(|name| name.as_ref().bytes().chain([b'\n']));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Writes down in `store` which names the columns of this version have.
pub(crate) fn name_columns(store: &Store) -> Result<(), state::Error> {
    let mut known = names(store);
    let ours = columns();
    if known.contains_key(&number(&ours)) {
        return Ok(());
    }
    known.insert(number(&ours), ours.into_iter().map(str::to_owned).collect());
    let text = serde_json::to_vec(&known).unwrap_or_default();
    store.put_blob(COLUMNS, &text)
}

/// Names of columns by their number, as far as they are known.
fn names(store: &Store) -> BTreeMap<String, Vec<String>> {
    let text = store.blob(COLUMNS).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// `row` as it is kept, under the `number` of its columns; the clock of its instants started at
/// `start_ms`. None if it cannot be written.
pub(crate) fn sample(row: &Recorded, start_ms: f64, number: &str) -> Option<Vec<u8>> {
    let mut line = Vec::with_capacity(2_048);
    write(&mut line, row, start_ms).ok()?;
    let line = str::from_utf8(&line).ok()?.trim_end();
    // No text in a line holds this: quotes in texts are escaped.
    let (before, rest) = line.strip_prefix('{')?.split_once(FEATURES)?;
    let (features, after) = rest.split_once('}')?;
    let mut kept = format!("{{\"{KEY}\":\"{number}\",{before}\"features\":[");
    for (at, feature) in features.split(',').enumerate() {
        if at > 0 {
            kept.push(',');
        }
        kept.push_str(feature.rsplit_once(':')?.1);
    }
    kept.push(']');
    kept.push_str(after);
    Some(kept.into_bytes())
}

/// The line of ours that was kept as `sample`.
fn line(sample: &[u8], ours: &str) -> Result<String, NotOurs> {
    let mut line: Map<String, Value> =
        serde_json::from_slice(sample).map_err(|_| NotOurs::Unreadable)?;
    match line.remove(KEY) {
        Some(Value::String(number)) if number == ours => {}
        Some(Value::String(number)) => return Err(NotOurs::Other(number)),
        _ => return Err(NotOurs::Unreadable),
    }
    let Some(Value::Array(values)) = line.remove("features") else {
        return Err(NotOurs::Unreadable);
    };
    if values.len() != SCHEMA.len() || !values.iter().all(Value::is_number) {
        return Err(NotOurs::Unreadable);
    }
    let named = SCHEMA.iter().zip(values).map(|(feature, value)| (feature.name.to_owned(), value));
    line.insert("features".to_owned(), Value::Object(named.collect()));
    Ok(Value::Object(line).to_string())
}

/// Why a sample is no line of ours.
enum NotOurs {
    /// It has the columns of that number.
    Other(String),
    Unreadable,
}

/// What is in a store, and what of it cannot be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The rows.
    pub(crate) rows: Rows,
    /// Rows of other columns.
    pub(crate) other_columns: usize,
    /// Columns of those that this version does not know, and the other way round.
    pub(crate) differences: Vec<String>,
    /// Rows that cannot be read.
    pub(crate) unreadable: usize,
}

/// The newest rows in `store`, `most` of them.
pub(crate) fn read_store(name: &str, store: &Store, most: usize) -> Result<Kept, RowsError> {
    let ours = number(&columns());
    let mut kept = Kept::default();
    let mut others = BTreeMap::<String, usize>::new();
    let mut lines = VecDeque::new();
    for sample in store.samples() {
        match sample {
            Ok(sample) => match line(&sample, &ours) {
                Ok(line) => lines.push_back(line),
                Err(NotOurs::Other(number)) => *others.entry(number).or_default() += 1,
                Err(NotOurs::Unreadable) => kept.unreadable += 1,
            },
            Err(state::Error::Damaged { .. }) => kept.unreadable += 1,
            Err(source) => return Err(RowsError::State { file: name.to_owned(), source }),
        }
        if lines.len() > most {
            lines.pop_front();
        }
    }
    kept.other_columns = others.values().sum();
    kept.differences = differences(&names(store), others.keys());
    if !lines.is_empty() {
        let (rows, unreadable) = rows(name, lines.into())?;
        kept.rows = rows;
        kept.unreadable += unreadable;
    }
    Ok(kept)
}

/// How the columns of those numbers differ from ours.
fn differences<'a>(
    names: &BTreeMap<String, Vec<String>>,
    numbers: impl Iterator<Item = &'a String>,
) -> Vec<String> {
    let ours = columns();
    let mut differences = Vec::new();
    for number in numbers {
        let Some(theirs) = names.get(number) else {
            differences.push("columns of unknown names".to_owned());
            continue;
        };
        let gone = theirs.iter().filter(|name| !ours.contains(&name.as_str()));
        let new = ours.iter().filter(|name| !theirs.iter().any(|other| other == *name));
        differences.extend(gone.map(|name| format!("`{name}` only there")));
        differences.extend(new.map(|name| format!("`{name}` only here")));
    }
    differences
}

/// The rows in `lines`, and how many were left out since they are not sound.
fn rows(name: &str, mut lines: Vec<String>) -> Result<(Rows, usize), RowsError> {
    let mut unreadable = 0;
    loop {
        match read(name, lines.join("\n").into_bytes(), Format::Jsonl) {
            Err(RowsError::Line { line, .. } | RowsError::Field { line, .. })
                if unreadable < MOST_UNREADABLE =>
            {
                // An empty line is passed over.
                let at = usize::try_from(line).unwrap_or(usize::MAX) - 1;
                lines.get_mut(at).map(String::clear).unwrap_or_default();
                unreadable += 1;
            }
            Err(RowsError::Empty { .. }) => return Ok((Rows::default(), unreadable)),
            rows => return Ok((rows?, unreadable)),
        }
    }
}

/// Every row in the state folder at `path`, whose store is left as it is.
pub(super) fn read_folder(path: &Path) -> Result<Rows, RowsError> {
    let file = path.display().to_string();
    let store = Store::open_existing(path, STATE_SCHEMA)
        .map_err(|source| RowsError::State { file: file.clone(), source })?;
    let Kept { mut rows, other_columns, unreadable, .. } = read_store(&file, &store, usize::MAX)?;
    for (why, count) in [("other columns", other_columns), ("unreadable", unreadable)] {
        if count > 0 {
            rows.kept_out.insert(why.to_owned(), count);
            rows.read += count;
        }
    }
    if rows.read == 0 { Err(RowsError::Empty { file }) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use features::{FeatureRow, WIDTH};
    use predict::ClassKey;
    use router::Known;
    use types::{Accelerator, EndpointId, Role, Time};

    use super::*;

    fn recorded(ms: u64) -> Recorded {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        Recorded {
            decided_at: at(ms),
            class: ClassKey {
                model: "meta-llama/Llama-3.1-8B-Instruct \"features\":{".into(),
                accelerator: Accelerator::new("H100"),
                role: Role::Both,
            },
            endpoint: EndpointId::new("default", "vllm-7c9d8b-x2v4q"),
            slot: 3,
            row: FeatureRow::from(std::array::from_fn::<_, WIDTH, _>(|i| {
                // Most features are counts, some are not.
                i as f32 * if i % 3 == 0 { 1.234_567 } else { 37.0 }
            })),
            ttft: Some(Known { ms: 123.456, at: at(ms + 124) }),
            itl: Some(Known { ms: 12.345_678, at: at(ms + 5_000) }),
            itl_so_far: vec![Known { ms: 11.5, at: at(ms + 2_000) }],
            steps: Vec::new(),
            e2e: None,
            output_tokens: 321,
            end: "complete",
            rung: schedule::Rung::Learned,
            considered: None,
        }
    }

    fn store(folder: &Path) -> Store {
        let options = state::Options { path: folder.to_owned(), ..state::Options::default() };
        Store::open(options, STATE_SCHEMA).unwrap().store
    }

    #[test]
    fn a_kept_row_is_small_and_says_what_its_line_says() {
        let number = number(&columns());
        let kept = sample(&recorded(1_000), 5e12, &number).unwrap();
        assert!(kept.len() <= 600, "{} bytes: {}", kept.len(), String::from_utf8_lossy(&kept));
        let mut whole = Vec::new();
        write(&mut whole, &recorded(1_000), 5e12).unwrap();
        let of = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let line = line(&kept, &number).ok().unwrap();
        assert_eq!(of(&line), of(str::from_utf8(&whole).unwrap()));
    }

    #[test]
    fn rows_of_other_columns_and_broken_ones_are_counted_and_the_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let old = ["prompt_tokens", "something_else"];
        let known = BTreeMap::from([(number(&old), old)]);
        store.put_blob(COLUMNS, &serde_json::to_vec(&known).unwrap()).unwrap();
        name_columns(&store).unwrap();
        let ours = number(&columns());
        let mut negative = recorded(7);
        negative.ttft = Some(Known { ms: -5.0, at: Time::from_nanos(8) });
        store
            .append([
                sample(&recorded(1), 0.0, &ours).unwrap(),
                sample(&recorded(2), 0.0, &number(&old)).unwrap(),
                b"rubbish".to_vec(),
                sample(&recorded(3), 0.0, "0123").unwrap(),
                sample(&negative, 0.0, &ours).unwrap(),
                sample(&recorded(9_000), 0.0, &ours).unwrap(),
            ])
            .unwrap();
        let kept = read_store("s", &store, 100).unwrap();
        assert_eq!((kept.rows.labelled.len(), kept.other_columns, kept.unreadable), (2, 2, 2));
        assert_eq!(kept.rows.endpoints, ["default/vllm-7c9d8b-x2v4q"]);
        let told = kept.differences.join(", ");
        assert!(told.contains("`something_else` only there"), "{told}");
        assert!(told.contains("`uncached_tokens` only here"), "{told}");
        let newest = read_store("s", &store, 1).unwrap().rows.labelled;
        assert!((newest[0].decided_at_ms - 9_000.0).abs() < 0.1 && newest.len() == 1);
    }
}
