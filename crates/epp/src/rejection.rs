//! Requests that are answered without an endpoint, and how the client is told.

use proto::{
    ext_proc::{HeaderMutation, ImmediateResponse},
    status::{HttpStatus, StatusCode},
};
use router::{BodyError, HeaderError, Refusal};
use serde::Serialize;

use crate::headers::set;

/// Tells proxies and clients why a request was dropped.
const REASON: &str = "x-llm-d-request-dropped-reason";

/// An answer in the place of an endpoint's.
#[derive(Debug)]
pub(crate) struct Rejection {
    status: StatusCode,
    /// Type of the error, as the OpenAI API names it.
    kind: &'static str,
    /// Code of the error; also the detail in the access log of the proxy.
    code: &'static str,
    /// Why the request was dropped, as llm-d names it.
    reason: Option<&'static str>,
    /// The member of the body that is to blame.
    param: Option<&'static str>,
    message: String,
}

/// The error body of the OpenAI API.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

impl Rejection {
    fn bad_request(code: &'static str, param: Option<&'static str>, message: String) -> Self {
        let (status, kind) = (StatusCode::BadRequest, "invalid_request_error");
        Self { status, kind, code, reason: None, param, message }
    }

    /// The body is longer than `limit_bytes`.
    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self {
            status: StatusCode::PayloadTooLarge,
            kind: "invalid_request_error",
            code: "request_too_large",
            reason: None,
            param: None,
            message: format!("request body is longer than {limit_bytes} bytes"),
        }
    }

    /// The message to the proxy.
    pub(crate) fn into_response(self) -> ImmediateResponse {
        let error =
            Error { message: &self.message, r#type: self.kind, param: self.param, code: self.code };
        // A struct of strings always serialises; an empty body would still carry the status.
        let body = serde_json::to_vec(&Envelope { error }).unwrap_or_default();
        let reason = self.reason.map(|reason| set(REASON, reason));
        ImmediateResponse {
            status: Some(HttpStatus { code: self.status.into() }),
            headers: Some(HeaderMutation {
                set_headers: std::iter::once(set("content-type", "application/json"))
                    .chain(reason)
                    .collect(),
                remove_headers: Vec::new(),
            }),
            body: body.into(),
            grpc_status: None,
            details: self.code.to_owned(),
        }
    }
}

impl From<HeaderError> for Rejection {
    fn from(error: HeaderError) -> Self {
        Self::bad_request("invalid_header", None, error.to_string())
    }
}

impl From<BodyError> for Rejection {
    fn from(error: BodyError) -> Self {
        let param = match error {
            BodyError::Missing { field } | BodyError::Invalid { field, .. } => Some(field),
            _ => None,
        };
        Self::bad_request("invalid_body", param, error.to_string())
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let (status, kind, code, reason) = match refusal {
            Refusal::AllFiltered => {
                (StatusCode::TooManyRequests, "rate_limit_error", "saturated", "rejected-saturated")
            }
            _ => (
                StatusCode::ServiceUnavailable,
                "server_error",
                "no_endpoints",
                "rejected-no-endpoints",
            ),
        };
        let message = refusal.to_string();
        Self { status, kind, code, reason: Some(reason), param: None, message }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_saturated_pool_is_429_with_its_reason() {
        let response = Rejection::from(Refusal::AllFiltered).into_response();
        assert_eq!(response.status.unwrap().code, 429);
        let headers: Vec<_> = response
            .headers
            .unwrap()
            .set_headers
            .into_iter()
            .filter_map(|set| set.header)
            .map(|header| (header.key, header.raw_value))
            .collect();
        assert_eq!(headers[1], (REASON.to_owned(), "rejected-saturated".into()));
    }

    #[test]
    fn the_error_body_names_the_member_to_blame() {
        let response = Rejection::from(BodyError::Missing { field: "model" }).into_response();
        assert_eq!(response.status.unwrap().code, 400);
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["param"], "model");
        assert_eq!(body["error"]["code"], "invalid_body");
    }
}
