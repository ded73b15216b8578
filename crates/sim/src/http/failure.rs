//! What the server answers when it does not serve: errors in vLLM's shape.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// A request that is not served.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl Failure {
    /// The request asks for something that cannot be; `param` is to blame.
    pub(super) fn bad_request(message: String, param: &'static str) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self { status, kind: "BadRequestError", message, param: Some(param) }
    }

    /// The body does not have the form of a request.
    pub(super) fn malformed(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "Bad Request", message, param: None }
    }

    /// The body lacks `field`.
    pub(super) fn missing(field: &str) -> Self {
        Self::malformed(format!(
            "[{{'type': 'missing', 'loc': ('body', '{field}'), 'msg': 'Field required'}}]"
        ))
    }

    /// Another model is served here.
    pub(super) fn unknown_model(asked: &str, served: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{asked}` does not exist. Valid aliases: {served}."),
            param: Some("model"),
        }
    }

    /// Prompt and output do not fit into the context.
    pub(super) fn too_long(limit: u32, prompt: u64, output: u64) -> Self {
        let total = prompt + output;
        Self::bad_request(
            format!(
                "This model's maximum context length is {limit} tokens. However, you requested \
                 {output} output tokens and your prompt contains at least {prompt} input tokens, \
                 for a total of at least {total} tokens. Please reduce the length of the input \
                 prompt or the number of requested output tokens."
            ),
            "input_tokens",
        )
    }

    /// The engine stops.
    pub(super) fn shut_down() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "ServiceUnavailableError",
            message: "The engine is shutting down.".to_owned(),
            param: None,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let error = json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status.as_u16(),
        }});
        let kind = [(header::CONTENT_TYPE, "application/json")];
        (self.status, kind, error.to_string()).into_response()
    }
}
