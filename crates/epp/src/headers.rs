//! Names of headers, how a received one is read and how one is set.

use bytes::Bytes;
use proto::core::{
    HeaderMap, HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};

/// Where a request goes: header and metadata key.
pub(crate) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Identity of a request.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// Asks for the reasons of the decision.
pub(crate) const EXPLAIN: &str = "x-slackline-explain";

/// Headers that speak to the endpoint picker and go no further.
const CONTROL: [&str; 17] = [
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-fairness-id",
    "x-gateway-inference-objective",
    "x-gateway-model-name-rewrite",
    "x-llm-d-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-llm-d-request-dropped-reason",
    "x-llm-d-slo-tpot-ms",
    "x-llm-d-slo-ttft-ms",
    "x-llm-d-video-duration-seconds",
    "x-llm-d-video-fps",
    "x-llm-d-video-resolution",
    EXPLAIN,
    "x-slo-tpot-ms",
    "x-slo-ttft-ms",
];

/// Reads received headers: names in any case, the last of equal ones, raw bytes before text.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a>(&'a [HeaderValue]);

impl<'a> Received<'a> {
    pub(crate) fn new(headers: Option<&'a HeaderMap>) -> Self {
        Self(headers.map_or(&[], |map| &map.headers))
    }

    /// The value of `name`; `None` where it is missing or not UTF-8.
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|header| header.key.eq_ignore_ascii_case(name))?;
        if found.raw_value.is_empty() {
            return Some(&found.value);
        }
        std::str::from_utf8(&found.raw_value).ok()
    }

    /// Names to remove of the control headers that came.
    pub(crate) fn control(self) -> Vec<&'static str> {
        self.0
            .iter()
            // Nearly every header fails this test, so the search below is rare.
            .filter(|header| matches!(header.key.as_bytes(), [b'x' | b'X', b'-', ..]))
            .filter_map(|header| {
                CONTROL.iter().find(|name| header.key.eq_ignore_ascii_case(name)).copied()
            })
            .collect()
    }
}

/// `name: value`, in the place of any header of that name.
pub(crate) fn set(name: &str, value: impl Into<Bytes>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_owned(),
            value: String::new(),
            raw_value: value.into(),
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(key: &str, value: &str, raw: &'static str) -> HeaderValue {
        HeaderValue { key: key.to_owned(), value: value.to_owned(), raw_value: raw.into() }
    }

    #[test]
    fn the_last_of_equal_headers_wins_and_raw_bytes_win_over_text() {
        let map = HeaderMap {
            headers: vec![header("a", "", "1"), header("A", "", "2"), header("b", "text", "raw")],
        };
        let headers = Received::new(Some(&map));
        assert_eq!(headers.get("a"), Some("2"));
        assert_eq!(headers.get("b"), Some("raw"));
        assert_eq!(headers.get("c"), None);
    }

    #[test]
    fn only_control_headers_that_came_are_removed() {
        let map = HeaderMap {
            headers: vec![header("X-SLO-TTFT-MS", "", "1"), header("x-other", "", "1")],
        };
        assert_eq!(Received::new(Some(&map)).control(), ["x-slo-ttft-ms"]);
        assert!(Received::new(None).control().is_empty());
    }
}
