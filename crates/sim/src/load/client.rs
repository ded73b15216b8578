//! Sends one request and watches its answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::json;
use types::{Api, Clock, Time};

use super::{
    options::{LoadError, LoadOptions},
    stream::Observer,
};
use crate::report::{Failure, RequestResult};

/// Headers that name the endpoint which served, the surest first.
const ENDPOINT_HEADERS: [&str; 2] = ["x-slackline-endpoint", "x-inference-pod"];
/// How long a body may go on after its end marker before its connection is given up.
const DRAIN: Duration = Duration::from_secs(1);

/// A request that is ready to be sent.
pub(super) struct Call {
    /// When it is due, in reported time from the start of the plan.
    pub(super) scheduled: Duration,
    /// When it is due by the clock.
    pub(super) due: Time,
    /// What is sent.
    pub(super) request: Request<Full<Bytes>>,
}

/// Sends requests over kept connections, as many as it takes.
#[derive(Debug)]
pub(super) struct Client {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    model: String,
    api: Api,
    seed: u64,
    time_scale: f64,
    timeout: Duration,
}

impl Client {
    /// Checks what `options` ask for.
    pub(super) fn new(options: &LoadOptions) -> Result<Self, LoadError> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_max_idle_per_host(usize::MAX)
            .build(connector);
        Ok(Self {
            http,
            uri: uri(&options.target, options.api)?,
            headers: headers(options)?,
            model: options.model.clone(),
            api: options.api,
            seed: options.seed,
            time_scale: options.time_scale(),
            timeout: options.timeout.div_f64(options.time_scale()),
        })
    }

    /// The request number `index`, asking for exactly `output_tokens` tokens.
    pub(super) fn request(
        &self,
        index: usize,
        prompt: &str,
        output_tokens: u32,
    ) -> Request<Full<Bytes>> {
        let mut body = json!({
            "model": self.model,
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": output_tokens,
            "ignore_eos": true,
        });
        match self.api {
            Api::Chat => body["messages"] = json!([{ "role": "user", "content": prompt }]),
            Api::Completions => body["prompt"] = json!(prompt),
        }
        let mut request = Request::new(Full::from(body.to_string()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let Ok(id) = HeaderValue::try_from(format!("load-{}-{index}", self.seed)) {
            request.headers_mut().entry("x-request-id").or_insert(id);
        }
        request
    }

    /// Sends `call` and follows the answer to its end; with the gaps between its tokens in
    /// milliseconds. All latencies are in reported time and from when it was due.
    pub(super) async fn run(&self, call: Call, clock: &dyn Clock) -> (RequestResult, Vec<f32>) {
        let Call { scheduled, due, request } = call;
        let mut answer = Answer::default();
        let followed = tokio::time::timeout(self.timeout, self.follow(request, &mut answer, clock));
        let failure = match followed.await {
            Err(_) => Some(Failure::Timeout),
            Ok(Err(failure)) => Some(failure),
            Ok(Ok(())) => answer.observer.failure(),
        };
        let end = answer.end.unwrap_or_else(|| clock.now());
        let scale = self.time_scale as f32;
        let observer = answer.observer;
        let result = RequestResult {
            scheduled,
            ttft_ms: observer.first(end).map(|first| first.ms_since(due) * scale),
            itl_ms: observer.itl_ms().map(|itl_ms| itl_ms * scale),
            e2e_ms: end.ms_since(due) * scale,
            endpoint: answer.endpoint,
            failure,
            output_tokens: observer.output_tokens(),
        };
        let mut gaps_ms = observer.into_gaps_ms();
        for gap_ms in &mut gaps_ms {
            *gap_ms *= scale;
        }
        (result, gaps_ms)
    }

    async fn follow(
        &self,
        request: Request<Full<Bytes>>,
        answer: &mut Answer,
        clock: &dyn Clock,
    ) -> Result<(), Failure> {
        let response = self.http.request(request).await.map_err(|_| Failure::Connect)?;
        answer.endpoint = endpoint(&response);
        if response.status() != StatusCode::OK {
            return Err(Failure::Status(response.status().as_u16()));
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Failure::Truncated)?;
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            let now = clock.now();
            if answer.observer.push(bytes, now) {
                answer.end = Some(now);
                drain(body).await;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What is known of an answer, also when it stops in the middle.
#[derive(Default)]
struct Answer {
    observer: Observer,
    endpoint: Option<Arc<str>>,
    /// When its end marker came.
    end: Option<Time>,
}

/// Reads what follows the end marker, so that the connection can serve again.
async fn drain(mut body: Incoming) {
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    // Late or not, the answer is complete.
    let _ = tokio::time::timeout(DRAIN, rest).await;
}

fn endpoint(response: &Response<Incoming>) -> Option<Arc<str>> {
    let name = ENDPOINT_HEADERS.iter().find_map(|name| response.headers().get(*name))?;
    name.to_str().ok().map(Arc::from)
}

fn uri(target: &str, api: Api) -> Result<Uri, LoadError> {
    let path = match api {
        Api::Chat => "/v1/chat/completions",
        Api::Completions => "/v1/completions",
    };
    let uri: Uri = format!("{}{path}", target.trim_end_matches('/'))
        .parse()
        .map_err(|source| LoadError::Target { target: target.to_owned(), source })?;
    if uri.scheme_str() == Some("http") && uri.authority().is_some() {
        Ok(uri)
    } else {
        Err(LoadError::Scheme(target.to_owned()))
    }
}

fn headers(options: &LoadOptions) -> Result<HeaderMap, LoadError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let scale = options.time_scale();
    let slo = [("x-slo-ttft-ms", options.slo.ttft), ("x-slo-tpot-ms", options.slo.itl)];
    let slo = slo.into_iter().filter_map(|(name, limit)| {
        Some((name.to_owned(), (f64::from(limit?.get()) / scale).to_string()))
    });
    for (name, value) in slo.chain(options.headers.iter().cloned()) {
        let key: HeaderName =
            name.parse().map_err(|source| LoadError::HeaderName { name: name.clone(), source })?;
        let value = HeaderValue::try_from(value)
            .map_err(|source| LoadError::HeaderValue { name, source })?;
        headers.insert(key, value);
    }
    Ok(headers)
}
