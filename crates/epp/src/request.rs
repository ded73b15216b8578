//! What the headers of a request ask for, and the [`Request`] they make together with a body.

use std::sync::Arc;

use proto::ext_proc::HeaderMutation;
use router::{Fault, Head, read_request, read_scope, read_session, read_slo};
use types::{Api, Request, Slo, SubsetEntry};

use crate::{
    headers::{DESTINATION, EXPLAIN, REQUEST_ID, Received, set},
    ids::Ids,
};

/// The headers of one request, read.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The API of its path; `None` for a path whose bodies are not read.
    api: Option<Api>,
    id: Arc<str>,
    /// Whether the request came without an identity.
    is_new_id: bool,
    slo: Slo,
    /// The tenant or route it belongs to.
    scope: Option<Arc<str>>,
    session: Option<Arc<str>>,
    /// The endpoints that may serve.
    pub(crate) subset: Option<Vec<SubsetEntry>>,
    explain: bool,
    control: Vec<&'static str>,
    is_chunked: bool,
    /// The length of the body, where the headers tell.
    pub(crate) content_length: Option<usize>,
}

impl Asked {
    /// Reads `headers`.
    pub(crate) fn read(headers: Received<'_>, ids: &Ids) -> Result<Self, Fault> {
        let slo = read_slo(|name| headers.get(name)).map_err(|error| Fault::of_header(&error))?;
        let id = headers.get(REQUEST_ID).filter(|id| !id.is_empty());
        Ok(Self {
            api: api(headers),
            is_new_id: id.is_none(),
            id: id.map_or_else(|| ids.next(), Arc::from),
            slo,
            scope: read_scope(|name| headers.get(name)),
            session: read_session(|name| headers.get(name)),
            subset: None,
            explain: headers.get(EXPLAIN).is_some_and(|value| value.eq_ignore_ascii_case("true")),
            control: headers.control(),
            is_chunked: headers.get("transfer-encoding").is_some(),
            content_length: headers.get("content-length").and_then(|text| text.parse().ok()),
        })
    }

    /// The request with all of its `body`.
    pub(crate) fn request(&mut self, body: &[u8]) -> Result<Request, Fault> {
        let Some(api) = self.api else { return Ok(self.opaque(body.len())) };
        let head = Head {
            api,
            id: Arc::clone(&self.id),
            slo: self.slo,
            scope: self.scope.clone(),
            session: self.session.clone(),
            subset: self.subset.take(),
            explain: self.explain,
        };
        read_request(head, body).map_err(|error| Fault::of_body(&error))
    }

    /// The request with a body of `body_bytes` that is not read: it names no model and no prompt.
    pub(crate) fn opaque(&mut self, body_bytes: usize) -> Request {
        Request {
            id: Arc::clone(&self.id),
            model: "".into(),
            stream: false,
            prompt_bytes: u32::try_from(body_bytes).unwrap_or(u32::MAX),
            prompt_tokens: None,
            max_tokens: None,
            blocks: [].into(),
            slo: self.slo,
            scope: self.scope.clone(),
            session: self.session.clone(),
            weight: 1.0,
            subset: self.subset.take(),
            explain: self.explain,
        }
    }

    /// What to change in the headers when the request goes to `destination`. `body_bytes` is the
    /// length of the body that is sent back, if one is.
    pub(crate) fn mutation(&self, destination: &str, body_bytes: Option<usize>) -> HeaderMutation {
        let mut set_headers = Vec::with_capacity(3);
        set_headers.push(set(DESTINATION, destination.to_owned()));
        if let Some(length) = body_bytes.filter(|length| *length > 0 && !self.is_chunked) {
            set_headers.push(set("content-length", length.to_string()));
        }
        if self.is_new_id {
            set_headers.push(set(REQUEST_ID, self.id.to_string()));
        }
        let remove_headers = self.control.iter().map(|name| (*name).to_owned()).collect();
        HeaderMutation { set_headers, remove_headers }
    }
}

/// The API by the path, or by the path before a rewrite. Gateways mount the API under prefixes, so
/// only the part from the last `/v1/` on counts. Without any path it is the oldest API.
fn api(headers: Received<'_>) -> Option<Api> {
    let path = [":path", "x-original-path", "x-forwarded-path"]
        .iter()
        .find_map(|name| headers.get(name))
        .unwrap_or("/v1/completions");
    let path = path.split('?').next().unwrap_or_default();
    Api::of_path(&path[path.rfind("/v1/")?..])
}

#[cfg(test)]
mod tests {
    use proto::core::{HeaderMap, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &'static str)]) -> HeaderMap {
        let header = |(key, value): &(&str, &'static str)| HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: (*value).into(),
        };
        HeaderMap { headers: pairs.iter().map(header).collect() }
    }

    fn asked(pairs: &[(&str, &'static str)]) -> Asked {
        Asked::read(Received::new(Some(&headers(pairs))), &Ids::default()).unwrap()
    }

    #[test]
    fn the_api_is_found_behind_a_prefix_and_before_a_query() {
        assert_eq!(asked(&[(":path", "/llm/v1/chat/completions?a=/v1/")]).api, Some(Api::Chat));
        assert_eq!(asked(&[(":path", "/v1/embeddings")]).api, None);
        assert_eq!(asked(&[(":path", "/")]).api, None);
        assert_eq!(asked(&[]).api, Some(Api::Completions));
    }

    #[test]
    fn a_length_is_never_set_beside_a_transfer_encoding() {
        let keys = |asked: &Asked, body_bytes| -> Vec<String> {
            let mutation = asked.mutation("10.0.0.1:1", body_bytes);
            mutation.set_headers.into_iter().map(|set| set.header.unwrap().key).collect()
        };
        let plain = asked(&[(REQUEST_ID, "a")]);
        assert_eq!(keys(&plain, Some(5)), [DESTINATION, "content-length"]);
        assert_eq!(keys(&plain, None), [DESTINATION]);
        let chunked = asked(&[(REQUEST_ID, "a"), ("transfer-encoding", "chunked")]);
        assert_eq!(keys(&chunked, Some(5)), [DESTINATION]);
        assert_eq!(keys(&asked(&[]), None), [DESTINATION, REQUEST_ID]);
    }
}
