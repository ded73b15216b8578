//! Which headers pass, which are ours, and the identity of a request.

use std::{
    fmt::Write as _,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST},
};

/// Identity of a request, kept or given.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Endpoint that served, as `namespace/name`.
pub(crate) const ENDPOINT: HeaderName = HeaderName::from_static("x-slackline-endpoint");
/// Rung of the ladder that decided.
pub(crate) const RUNG: HeaderName = HeaderName::from_static("x-slackline-rung");
/// Asks for the reasons of the decision.
pub(crate) const EXPLAIN: HeaderName = HeaderName::from_static("x-slackline-explain");
/// The reasons of the decision, as JSON.
pub(crate) const EXPLANATION: HeaderName = HeaderName::from_static("x-slackline-explanation");

/// Headers by which a caller steers the router. An endpoint never sees them.
const CONTROL: [&str; 5] = [
    "x-slackline-",
    "x-llm-d-",
    "x-slo-",
    "x-gateway-destination-endpoint",
    "x-gateway-inference-",
];

/// Whether `name` concerns one connection only (RFC 9110, section 7.6.1).
fn is_hop_by_hop(name: &str) -> bool {
    matches!(name, "connection" | "keep-alive" | "te" | "trailer" | "transfer-encoding" | "upgrade")
        || name.starts_with("proxy-")
}

fn is_control(name: &str) -> bool {
    name.starts_with("x-") && CONTROL.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes the headers that `Connection` lists and those for which `ours` holds.
fn remove(headers: &mut HeaderMap, ours: impl Fn(&HeaderName) -> bool) {
    let listed = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let listed = listed.flat_map(|value| value.split(','));
    let mut gone: Vec<HeaderName> = listed.filter_map(|name| name.trim().parse().ok()).collect();
    gone.extend(headers.keys().filter(|name| ours(name)).cloned());
    for name in gone {
        headers.remove(name);
    }
}

/// Leaves what an endpoint shall see of a caller's headers. Host and length are made anew;
/// `Expect` has been met by reading the body.
pub(crate) fn keep_for_endpoint(headers: &mut HeaderMap) {
    remove(headers, |name| {
        *name == HOST
            || *name == CONTENT_LENGTH
            || *name == EXPECT
            || is_hop_by_hop(name.as_str())
            || is_control(name.as_str())
    });
}

/// Leaves what a caller shall see of an endpoint's headers.
pub(crate) fn keep_for_caller(headers: &mut HeaderMap) {
    remove(headers, |name| is_hop_by_hop(name.as_str()));
}

/// Value of the header called `name`; one that is not text reads as a character that fits nowhere.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// Whether a body with these headers is encoded, and how.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<&str> {
    let encoding = text(headers, CONTENT_ENCODING.as_str())?.trim();
    let is_plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    (!is_plain).then_some(encoding)
}

/// Gives identities to requests that come without one: 32 hexadecimal digits.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Differs from process to process.
    seed: RandomState,
    next: AtomicU64,
}

impl Ids {
    /// The identity in `headers`, else a new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> (Arc<str>, HeaderValue) {
        let kept = headers.get(REQUEST_ID).and_then(|value| Some((value.to_str().ok()?, value)));
        if let Some((id, value)) = kept.filter(|(id, _)| !id.is_empty()) {
            return (id.into(), value.clone());
        }
        let id = self.fresh();
        let value = HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("-"));
        (id.into(), value)
    }

    fn fresh(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(32);
        for half in 0..2_u8 {
            // Writing to a string cannot fail.
            let _ = write!(id, "{:016x}", self.seed.hash_one((number, half)));
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn an_endpoint_sees_no_control_header_and_nothing_of_the_callers_connection() {
        let mut seen = headers(&[
            ("authorization", "Bearer k"),
            ("connection", "close, X-Only-Here"),
            ("content-length", "3"),
            ("content-type", "application/json"),
            ("expect", "100-continue"),
            ("host", "front"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic k"),
            ("te", "trailers"),
            ("traceparent", "00-1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-gateway-destination-endpoint", "10.0.0.1:1"),
            ("x-gateway-destination-endpoint-subset", "10.0.0.1:1"),
            ("x-gateway-inference-fairness-id", "team"),
            ("x-llm-d-slo-ttft-ms", "5"),
            ("x-only-here", "1"),
            ("x-slackline-explain", "true"),
            ("x-slo-ttft-ms", "5"),
        ]);
        keep_for_endpoint(&mut seen);
        assert_eq!(names(&seen), ["authorization", "content-type", "traceparent"]);
    }

    #[test]
    fn a_caller_sees_all_but_the_endpoints_connection() {
        let mut seen = headers(&[
            ("connection", "keep-alive"),
            ("content-length", "3"),
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("x-engine", "1"),
        ]);
        keep_for_caller(&mut seen);
        assert_eq!(names(&seen), ["content-length", "content-type", "x-engine"]);
    }

    #[test]
    fn identities_are_kept_or_new() {
        let ids = Ids::default();
        assert_eq!(&*ids.of(&headers(&[("x-request-id", "mine")])).0, "mine");
        let (first, value) = ids.of(&headers(&[("x-request-id", "")]));
        assert_eq!(value.as_bytes(), first.as_bytes());
        assert_eq!(first.len(), 32);
        assert_ne!(first, ids.of(&HeaderMap::new()).0);
    }

    #[test]
    fn only_real_encodings_count() {
        assert_eq!(encoding(&headers(&[("content-encoding", "gzip")])), Some("gzip"));
        assert_eq!(encoding(&headers(&[("content-encoding", "Identity")])), None);
        assert_eq!(encoding(&HeaderMap::new()), None);
    }
}
