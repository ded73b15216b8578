//! Answers of our own: JSON bodies, and the router's faults as HTTP.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body_util::Full;
use router::Fault;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An error that the caller gets in the place of an endpoint's answer.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Boxed, since nearly every result that could hold one does not.
    fault: Box<Fault>,
    /// What only this front says.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { fault: Box::new(fault), headers: Vec::new() }
    }
}

impl Refused {
    /// The caller's fault.
    pub(crate) fn caller(status: StatusCode, code: &'static str, message: String) -> Self {
        Fault::caller(status.as_u16(), code, message).into()
    }

    /// An endpoint's fault.
    pub(crate) fn endpoint(status: StatusCode, code: &'static str, message: String) -> Self {
        Fault::endpoint(status.as_u16(), code, message).into()
    }

    /// No route has this path.
    pub(crate) fn unknown_path(path: &str) -> Self {
        Self::caller(StatusCode::NOT_FOUND, "unknown_path", format!("there is nothing at `{path}`"))
    }

    /// The path is known, the method is not one of `allowed`.
    pub(crate) fn wrong_method(allowed: &'static str) -> Self {
        let message = format!("the method must be one of: {allowed}");
        let refused = Self::caller(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
        refused.header(ALLOW, HeaderValue::from_static(allowed))
    }

    /// Adds a header to the answer.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The error as one server-sent event.
    pub(crate) fn event(&self) -> String {
        format!("data: {}\n\n", self.fault.body())
    }

    /// The error as a whole response.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.fault.body()));
        // A status that is none is a fault of the code.
        *response.status_mut() =
            StatusCode::from_u16(self.fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        for (name, value) in self.fault.headers() {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        headers.extend(self.headers);
        response
    }
}

/// A response of ours with a JSON body.
pub(crate) fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
