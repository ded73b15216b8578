//! Answers of our own: one JSON error in OpenAI's shape, with who is to blame.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::Full;
use router::{Blame, Refusal};
use serde::Serialize;

use crate::headers::{DROPPED, ERROR_SOURCE};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An error as the caller sees it.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    blame: Blame,
    kind: &'static str,
    code: &'static str,
    message: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

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
    /// The caller's fault.
    pub(crate) fn caller(status: StatusCode, code: &'static str, message: String) -> Self {
        let kind = "invalid_request_error";
        Self { status, blame: Blame::Caller, kind, code, message, headers: Vec::new() }
    }

    /// An endpoint's fault.
    pub(crate) fn endpoint(status: StatusCode, code: &'static str, message: String) -> Self {
        let kind = "upstream_error";
        Self { status, blame: Blame::Endpoint, kind, code, message, headers: Vec::new() }
    }

    /// No route has this path.
    pub(crate) fn unknown_path(path: &str) -> Self {
        Self::caller(StatusCode::NOT_FOUND, "unknown_path", format!("there is nothing at `{path}`"))
    }

    /// The path is known, the method is not one of `allowed`.
    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        let message = format!("the method must be one of: {allowed}");
        let fault = Self::caller(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
        fault.header(ALLOW, HeaderValue::from_static(allowed))
    }

    /// The router refused.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let (status, kind, code, reason) = match refusal {
            Refusal::AllFiltered => (
                StatusCode::TOO_MANY_REQUESTS,
                "saturated_error",
                "all_endpoints_saturated",
                "rejected-saturated",
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no_endpoints_error",
                "no_endpoints",
                "rejected-no-endpoints",
            ),
        };
        let blame = refusal.blame();
        Self { status, blame, kind, code, message: refusal.to_string(), headers: Vec::new() }
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
            .header(DROPPED, HeaderValue::from_static(reason))
    }

    /// Adds a header to the answer.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn json(&self) -> Vec<u8> {
        let error =
            Detail { message: &self.message, r#type: self.kind, param: None, code: self.code };
        serde_json::to_vec(&Envelope { error }).unwrap_or_default()
    }

    /// The error as one server-sent event.
    pub(crate) fn event(&self) -> Vec<u8> {
        [b"data: ", self.json().as_slice(), b"\n\n"].concat()
    }

    /// The error as a whole response.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = json(self.status, self.json());
        let source = match self.blame {
            Blame::Caller => "caller",
            Blame::Endpoint => "endpoint",
            Blame::Us => "router",
        };
        response.headers_mut().insert(ERROR_SOURCE, HeaderValue::from_static(source));
        response.headers_mut().extend(self.headers);
        response
    }
}

/// A response of ours with a JSON body.
pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
