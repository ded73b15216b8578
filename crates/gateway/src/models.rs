//! The models that the endpoints serve, as one list.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use datalayer::EndpointState;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Response, StatusCode, uri::PathAndQuery};
use http_body_util::{BodyExt, Full, Limited};
use router::{Fault, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    answer::{self, Refused},
    headers,
    state::State,
    upstream::Ask,
};

/// Endpoints asked at a time.
const AT_A_TIME: usize = 64;
/// Longest list taken from one endpoint, in bytes.
const MAX_LIST_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
struct List {
    data: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

#[derive(Serialize)]
struct Union {
    object: &'static str,
    data: Vec<Box<RawValue>>,
}

/// The union of what the endpoints list, by model id; the first to list a model describes it.
/// Endpoints that give no list in time are left out.
pub(crate) async fn models(
    state: Arc<State>,
    mut headers: HeaderMap,
) -> Result<Response<Full<Bytes>>, Refused> {
    headers::keep_for_endpoint(&mut headers);
    let endpoints = state.router.pool().endpoints();
    if endpoints.is_empty() {
        return Err(Fault::of_refusal(Refusal::NoEndpoints).into());
    }
    let headers = Arc::new(headers);
    let asked = endpoints.iter().cloned().map(|endpoint| {
        let (state, headers) = (Arc::clone(&state), Arc::clone(&headers));
        async move {
            let asked = ask(&state, &endpoint, &headers);
            tokio::time::timeout(state.options.models_timeout(), asked).await.ok().flatten()
        }
    });
    let asked: Vec<_> = asked.collect();
    let lists: Vec<_> = stream::iter(asked).buffered(AT_A_TIME).collect().await;
    let mut lists = lists.into_iter().flatten().peekable();
    if lists.peek().is_none() {
        let message = format!("none of {} endpoints lists its models", endpoints.len());
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Refused::endpoint(status, "no_models", message));
    }
    let union = Union { object: "list", data: unite(lists) };
    Ok(answer::json(serde_json::to_vec(&union).unwrap_or_default()))
}

/// The list of one endpoint; `None` where it gives none.
async fn ask(state: &State, endpoint: &EndpointState, headers: &HeaderMap) -> Option<List> {
    let path = PathAndQuery::from_static("/v1/models");
    let ask = Ask { method: Method::GET, path, headers, body: Bytes::new() };
    let response = state.upstream.send(&endpoint.address, ask).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let body = Limited::new(response.into_body(), MAX_LIST_BYTES).collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

fn unite(lists: impl Iterator<Item = List>) -> Vec<Box<RawValue>> {
    let mut seen = HashSet::new();
    lists
        .flat_map(|list| list.data)
        .filter(|model| {
            serde_json::from_str::<Entry>(model.get()).is_ok_and(|entry| seen.insert(entry.id))
        })
        .collect()
}
