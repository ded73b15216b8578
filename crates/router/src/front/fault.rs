//! The one table of our own error answers, which both fronts share.
//!
//! It knows no HTTP library: a status is a plain number and a header a pair of texts. Each front puts
//! them into the messages of its own protocol.

use serde::Serialize;

use super::{BodyError, HeaderError};
use crate::refusal::{Blame, Refusal};

/// Type of an error that the caller can mend, as the OpenAI API names it.
const INVALID_REQUEST: &str = "invalid_request_error";
/// Header that tells whose fault an error is: `caller`, `endpoint` or `router`.
const ERROR_SOURCE: &str = "x-slackline-error-source";
/// Header that tells proxies and clients why a request was dropped, by llm-d's name.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";
/// Seconds after which a refused request is worth another try.
const RETRY_AFTER_S: u32 = 1;

/// An error as the caller sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// HTTP status code.
    pub status: u16,
    /// Type of the error, as the OpenAI API names it.
    pub kind: &'static str,
    /// Code of the error, for programs.
    pub code: &'static str,
    /// The member of the body that is to blame.
    pub param: Option<&'static str>,
    /// What is wrong, for people.
    pub message: String,
    /// Why the request was dropped, in the words of llm-d.
    pub dropped_reason: Option<&'static str>,
    /// Seconds after which it is worth asking again.
    pub retry_after_s: Option<u32>,
    /// Who is to blame.
    pub blame: Blame,
}

/// The error body of the OpenAI API.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

impl Fault {
    /// The caller's fault: asked again alike, it fails alike.
    pub fn caller(status: u16, code: &'static str, message: String) -> Self {
        Self::new(status, (INVALID_REQUEST, code), message, Blame::Caller)
    }

    /// An endpoint's fault.
    pub fn endpoint(status: u16, code: &'static str, message: String) -> Self {
        Self::new(status, ("upstream_error", code), message, Blame::Endpoint)
    }

    /// The router refused: 429 where there are endpoints but none may serve, else 503.
    pub fn of_refusal(refusal: Refusal) -> Self {
        let (status, names, reason) = match refusal {
            Refusal::AllFiltered => (429, ("rate_limit_error", "saturated"), "rejected-saturated"),
            Refusal::NoEndpoints | Refusal::NoneInSubset => {
                (503, ("server_error", "no_endpoints"), "rejected-no-endpoints")
            }
        };
        Self {
            dropped_reason: Some(reason),
            retry_after_s: Some(RETRY_AFTER_S),
            ..Self::new(status, names, refusal.to_string(), refusal.blame())
        }
    }

    /// The body is not a request: 400, with the member to blame where one is.
    pub fn of_body(error: &BodyError) -> Self {
        let param = match error {
            BodyError::Missing { field } | BodyError::Invalid { field, .. } => Some(*field),
            BodyError::Json { .. } => None,
        };
        Self { param, ..Self::caller(400, "invalid_body", error.to_string()) }
    }

    /// A header does not say what it must: 400.
    pub fn of_header(error: &HeaderError) -> Self {
        Self::caller(400, "invalid_header", error.to_string())
    }

    /// The body is longer than `limit_bytes`: 413.
    pub fn too_large(limit_bytes: usize) -> Self {
        let message = format!("the request body is longer than {limit_bytes} bytes");
        Self::caller(413, "request_too_large", message)
    }

    fn new(
        status: u16,
        (kind, code): (&'static str, &'static str),
        message: String,
        blame: Blame,
    ) -> Self {
        let (param, dropped_reason, retry_after_s) = (None, None, None);
        Self { status, kind, code, param, message, dropped_reason, retry_after_s, blame }
    }

    /// The body: one JSON error in the shape of the OpenAI API.
    pub fn body(&self) -> String {
        let Self { message, kind, param, code, .. } = self;
        let error = Detail { message, r#type: kind, param: *param, code };
        // A struct of texts always serialises; an empty body would still carry the status.
        serde_json::to_string(&Envelope { error }).unwrap_or_default()
    }

    /// The headers: names in lower case and values in visible ASCII, the type of the body among them.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let fixed = [
            ("content-type", "application/json".to_owned()),
            (ERROR_SOURCE, self.blame.as_str().to_owned()),
        ];
        let reason = self.dropped_reason.map(|reason| (DROPPED_REASON, reason.to_owned()));
        let retry = self.retry_after_s.map(|seconds| ("retry-after", seconds.to_string()));
        fixed.into_iter().chain(reason).chain(retry)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::front::read_slo;

    fn headers(fault: &Fault) -> Vec<(&'static str, String)> {
        fault.headers().collect()
    }

    #[test]
    fn a_saturated_pool_is_429_and_a_missing_endpoint_503_and_both_may_be_asked_again() {
        let table = [
            (Refusal::AllFiltered, 429, "rate_limit_error", "saturated", "router"),
            (Refusal::NoEndpoints, 503, "server_error", "no_endpoints", "router"),
            (Refusal::NoneInSubset, 503, "server_error", "no_endpoints", "caller"),
        ];
        for (refusal, status, kind, code, source) in table {
            let fault = Fault::of_refusal(refusal);
            assert_eq!((fault.status, fault.kind, fault.code), (status, kind, code));
            let reason = if status == 429 { "rejected-saturated" } else { "rejected-no-endpoints" };
            let expected = [
                ("content-type", "application/json"),
                ("x-slackline-error-source", source),
                ("x-llm-d-request-dropped-reason", reason),
                ("retry-after", "1"),
            ];
            assert_eq!(headers(&fault), expected.map(|(name, value)| (name, value.to_owned())));
        }
    }

    #[test]
    fn the_error_body_names_the_member_to_blame() {
        let fault = Fault::of_body(&BodyError::Missing { field: "model" });
        assert_eq!((fault.status, fault.blame), (400, Blame::Caller));
        let body: Value = serde_json::from_str(&fault.body()).unwrap();
        let expected = json!({"error": {
            "message": "`model` is missing",
            "type": "invalid_request_error",
            "param": "model",
            "code": "invalid_body",
        }});
        assert_eq!(body, expected);
    }

    #[test]
    fn what_no_member_is_to_blame_for_names_none_and_is_not_worth_asking_again() {
        let json = BodyError::Json { line: 1, column: 2, message: "\"quoted\"\n".to_owned() };
        let header = read_slo(|name| (name == "x-slo-ttft-ms").then_some("soon")).unwrap_err();
        for (fault, status, code) in [
            (Fault::of_body(&json), 400, "invalid_body"),
            (Fault::of_header(&header), 400, "invalid_header"),
            (Fault::too_large(5), 413, "request_too_large"),
            (Fault::caller(404, "unknown_path", "`/`".to_owned()), 404, "unknown_path"),
        ] {
            assert_eq!(fault.status, status);
            let body: Value = serde_json::from_str(&fault.body()).unwrap();
            let error = &body["error"];
            assert_eq!(error["message"], fault.message);
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!((&error["param"], &error["code"]), (&Value::Null, &code.into()));
            assert_eq!(headers(&fault).len(), 2);
            assert_eq!(headers(&fault)[1].1, "caller");
        }
    }

    #[test]
    fn an_endpoint_to_blame_is_named_as_the_source() {
        let fault = Fault::endpoint(502, "endpoint_unreachable", "it is gone".to_owned());
        assert_eq!(fault.kind, "upstream_error");
        assert_eq!(headers(&fault)[1], ("x-slackline-error-source", "endpoint".to_owned()));
    }
}
