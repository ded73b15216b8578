//! YAML files of people: what is wrong in one is told by file, line, column and key.

use std::{fmt, io, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("configuration `{}` is not readable", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}:{column}: {reason}")]
    At {
        /// The file, as it was named to us.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong, with the path of the key.
        reason: String,
    },
}

/// Reads a `T` from `yaml`, `None` if there is nothing in it; `file` is its name in errors.
pub(crate) fn read<T: DeserializeOwned>(yaml: &str, file: &str) -> Result<Option<T>, ConfigError> {
    parsed(yaml).map_err(|refused| told(yaml, file, &refused.error, &refused.key))
}

/// What the parser says is wrong, and the path of the key where it is.
struct Refused {
    error: serde_saphyr::Error,
    key: String,
}

fn parsed<T: DeserializeOwned>(yaml: &str) -> Result<Option<T>, Box<Refused>> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    let mut key = String::new();
    let document =
        serde_saphyr::with_deserializer_from_str_with_options(yaml, options, |deserializer| {
            serde_path_to_error::deserialize::<_, Option<T>>(deserializer).map_err(|error| {
                key = error.path().to_string();
                error.into_inner()
            })
        });
    document.map_err(|error| Box::new(Refused { error, key }))
}

fn told(yaml: &str, file: &str, error: &serde_saphyr::Error, key: &str) -> ConfigError {
    let at = error.location();
    let text = error.to_string();
    let suffix = at.map(|at| format!(" at line {}, column {}", at.line(), at.column()));
    let reason = suffix.and_then(|suffix| text.strip_suffix(&*suffix)).unwrap_or(&text);
    // The parser's hint is for programmers.
    let reason = reason.split_once(", set DuplicateKeyPolicy").map_or(reason, |(what, _)| what);
    let reason = with_nearest(reason);
    // A value that a type refuses as a whole is reported where its key stands.
    let value = Some(key).filter(|_| reason.starts_with("invalid "));
    let at = value.and_then(|key| Places::of(yaml, file).ok()?.find(key)).or(at);
    let reason = match key {
        "" | "." | "?" => reason,
        key if reason.contains(&format!("`{key}`")) => reason,
        key => format!("{key}: {reason}"),
    };
    at_location(file, at, &reason)
}

/// The error that `reason` stands `at` in `file`.
pub(crate) fn at_location(file: &str, at: Option<Location>, reason: &str) -> ConfigError {
    // A location that the parser does not know is line 0.
    let (line, column) = at.map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    ConfigError::At { file: file.to_owned(), line, column, reason: reason.to_owned() }
}

/// A message such as `unknown field x, expected one of a, b` with the nearest name in place of the list,
/// where one is near.
fn with_nearest(reason: &str) -> String {
    let parts = || {
        let (what, known) = reason.split_once(", expected ")?;
        let (_, name) =
            what.split_once("unknown field `").or_else(|| what.split_once("unknown variant `"))?;
        let known = known.trim_start_matches("one of ").split(", ").flat_map(|k| k.split(" or "));
        Some((what, name.trim_end_matches('`'), known.map(|name| name.trim_matches('`'))))
    };
    let nearest = parts().map(|(what, name, known)| (what, did_you_mean(name, known)));
    match nearest {
        Some((what, near)) if !near.is_empty() => format!("{what}{near}"),
        _ => reason.to_owned(),
    }
}

/// The suffix that names the one of `known` which is nearest to `name`; empty where none is near.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = name.to_lowercase();
    let distance = |known: &str| {
        let known = known.to_lowercase();
        // Units and the like are forgotten more often than letters are mistaken.
        let is_start = lower.len() > 2 && known.starts_with(&lower);
        if is_start { 1 } else { strsim::damerau_levenshtein(&lower, &known) }
    };
    let nearest = known.into_iter().map(|known| (distance(known), known)).min();
    let near_enough = (name.chars().count() / 3).clamp(1, 4);
    nearest
        .filter(|(distance, _)| *distance <= near_enough)
        .map_or_else(String::new, |(_, known)| format!(", did you mean `{known}`?"))
}

/// Where the keys and values of a file stand.
#[derive(Debug)]
pub(crate) struct Places(Option<Spanned<Node>>);

/// A value of any kind.
#[derive(Debug)]
enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Text(String),
    Other,
}

impl Places {
    /// Those of `text`; `file` is its name in errors.
    pub(crate) fn of(text: &str, file: &str) -> Result<Self, ConfigError> {
        // Paths of errors would be those of our own types.
        parsed(text).map(Self).map_err(|refused| told(text, file, &refused.error, ""))
    }

    /// Keys of the outermost map.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let entries = match self.0.as_ref().map(|root| &root.value) {
            Some(Node::Map(entries)) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|(key, _)| &*key.value)
    }

    /// Where the value at `path`, such as `fleet[1].gpu`, stands, or the innermost value around it.
    pub(crate) fn find(&self, path: &str) -> Option<Location> {
        let mut at = self.0.as_ref()?;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match &at.value {
                Node::Map(entries) => {
                    entries.iter().find(|(key, _)| key.value == step).map(|(_, value)| value)
                }
                Node::List(values) => {
                    step.trim_end_matches(']').parse::<usize>().ok().and_then(|at| values.get(at))
                }
                _ => None,
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        Some(at.referenced)
    }

    /// Where the first text that `is` wanted stands, at or in the value of the outermost `key`, and its path.
    pub(crate) fn find_text(
        &self,
        key: &str,
        is: impl Fn(&str) -> bool,
    ) -> Option<(String, Location)> {
        let Node::Map(entries) = &self.0.as_ref()?.value else { return None };
        let (_, start) = entries.iter().find(|(known, _)| known.value == key)?;
        let mut open = vec![(key.to_owned(), start)];
        while let Some((path, at)) = open.pop() {
            match &at.value {
                Node::Text(text) if is(text) => return Some((path, at.referenced)),
                Node::Map(entries) => open.extend(
                    entries.iter().rev().map(|(key, at)| (format!("{path}.{}", key.value), at)),
                ),
                Node::List(values) => open.extend(
                    values.iter().enumerate().rev().map(|(n, at)| (format!("{path}[{n}]"), at)),
                ),
                _ => {}
            }
        }
        None
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Node::List(values))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "a: 1\nb:\n  - x: {y: trace.csv}\n  - z\n'on': ~\n";

    fn at(places: &Places, path: &str) -> (u64, u64) {
        let location = places.find(path).unwrap();
        (location.line(), location.column())
    }

    #[test]
    fn a_path_leads_to_its_value_or_as_near_as_it_gets() {
        let places = Places::of(FILE, "f.yaml").unwrap();
        assert_eq!(places.keys().collect::<Vec<_>>(), ["a", "b", "on"]);
        for (path, place) in [
            ("a", (1, 4)),
            ("b[0].x.y", (3, 12)),
            ("b[1]", (4, 5)),
            ("b[0].x.missing", (3, 8)),
            ("missing", (1, 1)),
            ("", (1, 1)),
        ] {
            assert_eq!(at(&places, path), place, "{path}");
        }
    }

    #[test]
    fn a_text_is_found_wherever_it_stands() {
        let places = Places::of(FILE, "f.yaml").unwrap();
        let (path, at) = places.find_text("b", |text| text.contains("csv")).unwrap();
        assert_eq!((&*path, at.line(), at.column()), ("b[0].x.y", 3, 12));
        assert!(places.find_text("a", |_| true).is_none());
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_or_with_all() {
        let reason = "unknown field `rat`, expected one of rate, like, turns";
        assert_eq!(with_nearest(reason), "unknown field `rat`, did you mean `rate`?");
        let reason = "unknown variant `xyz`, expected `b` or `c`";
        assert_eq!(with_nearest(reason), reason);
    }

    #[test]
    fn a_refused_value_is_told_where_it_stands() {
        let error = read::<std::collections::BTreeMap<String, u32>>("a: 1\nb: x\n", "f.yaml");
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("f.yaml:2:4: b: "), "{error}");
    }

    #[test]
    fn the_nearest_name_is_told_if_it_is_near() {
        let known = ["round-robin", "random", "H100-SXM"];
        assert_eq!(did_you_mean("randon", known), ", did you mean `random`?");
        assert_eq!(did_you_mean("roundrobin", known), ", did you mean `round-robin`?");
        assert_eq!(did_you_mean("h100-sxn", known), ", did you mean `H100-SXM`?");
        assert_eq!(did_you_mean("ttft", ["ttfa", "ttft_ms"]), ", did you mean `ttfa`?");
        assert_eq!(did_you_mean("ttft", ["name", "ttft_ms"]), ", did you mean `ttft_ms`?");
        assert_eq!(did_you_mean("something-else", known), "");
    }
}
