//! Reads the latency objective of a request and whose it is from its headers.

use std::sync::Arc;

use types::{Millis, Slo};

/// Headers that carry the ceiling on TTFT in milliseconds; the first one present counts.
const TTFT_HEADERS: [&str; 2] = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
/// Headers that carry the ceiling on TPOT in milliseconds; the first one present counts.
const TPOT_HEADERS: [&str; 2] = ["x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];
/// Headers that name the tenant or route of a request; the first one present counts.
const SCOPE_HEADERS: [&str; 2] =
    ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
/// Header that names the conversation of a request; the peer's default too.
const SESSION_HEADER: &str = "x-session-id";
/// Longest name of a tenant, a route or a conversation, in bytes; a longer one is no name.
const MAX_NAME_BYTES: usize = 128;
/// Characters of a refused value that an error shows.
const SHOWN_CHARS: usize = 32;

/// The value of an objective header is not a positive number.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("header `{name}` must be a positive number of milliseconds, not `{value}`")]
pub struct HeaderError {
    name: &'static str,
    value: String,
}

/// Reads the objective from the headers that `header` looks up by lower-case name.
///
/// `x-llm-d-slo-ttft-ms` and `x-llm-d-slo-tpot-ms` win over their older names `x-slo-ttft-ms` and
/// `x-slo-tpot-ms`; an absent header promises nothing.
pub fn read_slo<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Result<Slo, HeaderError> {
    Ok(Slo { ttft: read(&header, TTFT_HEADERS)?, itl: read(&header, TPOT_HEADERS)? })
}

/// Reads the tenant or route from the headers that `header` looks up by lower-case name.
///
/// `x-llm-d-inference-fairness-id` wins over its older name `x-gateway-inference-fairness-id`. A value
/// that is blank, longer than 128 bytes or not plain text names nobody: it is a hint, so nothing fails.
pub fn read_scope<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Arc<str>> {
    plain_name(SCOPE_HEADERS.into_iter().find_map(header)?)
}

/// Reads the conversation from the header `x-session-id`, which `header` looks up; under the rules of
/// [`read_scope`].
pub fn read_session<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Arc<str>> {
    plain_name(header(SESSION_HEADER)?)
}

fn plain_name(text: &str) -> Option<Arc<str>> {
    let name = text.trim();
    let is_plain = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain);
    is_name.then(|| name.into())
}

fn read<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    names: [&'static str; 2],
) -> Result<Option<Millis>, HeaderError> {
    let found = names.into_iter().find_map(|name| Some((name, header(name)?)));
    let Some((name, text)) = found else { return Ok(None) };
    let value = text.trim().parse().ok().and_then(Millis::new).filter(|value| value.get() > 0.0);
    match value {
        Some(value) => Ok(Some(value)),
        None => Err(HeaderError { name, value: text.chars().take(SHOWN_CHARS).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(headers: &[(&str, &'static str)]) -> Result<Slo, HeaderError> {
        read_slo(|wanted| headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value))
    }

    #[test]
    fn the_newer_name_wins_and_absence_promises_nothing() {
        let both = slo(&[("x-slo-ttft-ms", "900"), ("x-llm-d-slo-ttft-ms", " 250.5 ")]).unwrap();
        assert_eq!(both, Slo { ttft: Millis::new(250.5), itl: None });
        let old = slo(&[("x-slo-tpot-ms", "40")]).unwrap();
        assert_eq!(old, Slo { ttft: None, itl: Millis::new(40.0) });
        assert!(slo(&[]).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_a_positive_number_is_refused_by_name() {
        for value in ["0", "-1", "NaN", "inf", "1e-60", "1e60", "soon", ""] {
            let error = slo(&[("x-slo-tpot-ms", value)]).unwrap_err().to_string();
            assert!(error.contains("`x-slo-tpot-ms`") && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_scope_is_a_short_plain_name_and_the_newer_header_wins() {
        let long: &'static str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                                  0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefg";
        let scope = |headers: &[(&str, &'static str)]| {
            let find = |wanted: &str| headers.iter().find(|(name, _)| *name == wanted);
            read_scope(|wanted| find(wanted).map(|(_, value)| *value))
        };
        let (new, old) = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id");
        assert_eq!(scope(&[(old, "b"), (new, " team a ")]).as_deref(), Some("team a"));
        assert_eq!(scope(&[(old, "b")]).as_deref(), Some("b"));
        assert_eq!(scope(&[]), None);
        for value in ["", "  ", "\u{fffd}", "a\tb", long] {
            assert_eq!(scope(&[(new, value)]), None, "{value}");
        }
    }

    #[test]
    fn a_conversation_is_named_by_its_header() {
        let session = |value| read_session(|name| (name == "x-session-id").then_some(value));
        assert_eq!(session(" chat-7 ").as_deref(), Some("chat-7"));
        assert_eq!(session(""), None);
        assert_eq!(read_session(|_| None), None);
    }

    #[test]
    fn a_long_value_is_not_echoed_whole() {
        let long: &'static str = "ü9999999999999999999999999999999999999999999999999";
        let error = slo(&[("x-llm-d-slo-ttft-ms", long)]).unwrap_err();
        assert_eq!(error.value.chars().count(), SHOWN_CHARS);
    }
}
