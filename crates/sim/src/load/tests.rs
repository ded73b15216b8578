//! Replays against a scripted server on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use tokio::sync::watch;
use types::{Api, Millis, Slo, SystemClock};

use super::*;
use crate::workload::BlockSource;

const BODY: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
                    data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"length\"}],\
                    \"usage\":{\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// Answers nobody before `open_at` requests have arrived; answers each by its number.
struct Script {
    open_at: usize,
    seen: AtomicUsize,
    open: watch::Sender<bool>,
    last: Mutex<Option<(http::HeaderMap, serde_json::Value)>>,
    answer: fn(usize) -> Response,
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let number = script.seen.fetch_add(1, Ordering::SeqCst);
    *script.last.lock() = Some((parts.headers, serde_json::from_slice(&body).unwrap()));
    if number + 1 >= script.open_at {
        script.open.send_replace(true);
    }
    script.open.subscribe().wait_for(|open| *open).await.unwrap();
    (script.answer)(number)
}

/// The address of a server that follows the script.
async fn serve(open_at: usize, answer_of: fn(usize) -> Response) -> (Arc<Script>, String) {
    let script = Arc::new(Script {
        open_at,
        seen: AtomicUsize::new(0),
        open: watch::Sender::new(false),
        last: Mutex::new(None),
        answer: answer_of,
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().fallback(answer).with_state(Arc::clone(&script));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (script, target)
}

fn whole(_: usize) -> Response {
    Response::builder().header("x-slackline-endpoint", "default/a").body(BODY.into()).unwrap()
}

/// One request per millisecond.
fn trace(count: u64) -> Trace {
    let arrival = |index| Arrival {
        at: Duration::from_millis(index),
        prompt_tokens: 20,
        output_tokens: 2,
        blocks: BlockSource::Unique(index),
        session: None,
        class: 0,
    };
    Trace { name: "t".to_owned(), arrivals: (0..count).map(arrival).collect(), clamped: 0 }
}

async fn replay(trace: &Trace, options: LoadOptions, clock: Arc<dyn Clock>) -> LoadReport {
    let progress = Arc::new(Progress::default());
    run_load(trace, options, clock, progress, CancellationToken::new()).await.unwrap()
}

fn real_time() -> Arc<dyn Clock> {
    Arc::new(SystemClock::start())
}

/// Starts at zero and stands ten seconds later ever after.
#[derive(Debug, Default)]
struct TenSecondsLate(AtomicUsize);

impl Clock for TenSecondsLate {
    fn now(&self) -> Time {
        // The first two readings begin the progress and the replay.
        let late = self.0.fetch_add(1, Ordering::SeqCst) >= 2;
        if late { Time::from_secs_f64(10.0) } else { Time::ZERO }
    }
}

#[tokio::test]
async fn a_stalled_server_does_not_hold_back_the_next_request() {
    let (script, target) = serve(40, whole).await;
    let report = replay(&trace(40), LoadOptions::new(target, "m"), real_time()).await;
    assert_eq!(script.seen.load(Ordering::SeqCst), 40);
    assert_eq!(report.policy.requests, 40);
    assert_eq!(report.policy.errors, [].into());
    assert_eq!(report.policy.share, [("default/a".to_owned(), 1.0)].into());
    assert_eq!(report.unfinished, 0);
}

#[tokio::test]
async fn latency_counts_from_when_a_request_was_due() {
    let (_, target) = serve(0, whole).await;
    let mut options = LoadOptions { time_scale: 2.0, ..LoadOptions::new(target, "m") };
    options.slo.ttft = Millis::new(19_000.0);
    let report = replay(&trace(3), options, Arc::new(TenSecondsLate::default())).await;
    let near = |found: Option<f64>, expected: f64| {
        assert!((found.unwrap() / expected - 1.0).abs() < 2e-3, "{found:?}");
    };
    near(report.send_lag_ms.p50, 10_000.0);
    near(report.policy.ttft_ms.p50, 20_000.0);
    near(report.policy.e2e_ms.p50, 20_000.0);
    assert!(report.policy.attainment.abs() < f64::EPSILON);
}

#[tokio::test]
async fn every_failure_is_counted_as_its_kind() {
    let (_, target) = serve(0, |number| match number {
        0 => Response::builder().status(503).body(Body::empty()).unwrap(),
        1 => Response::new("data: {\"choices\":[{\"text\":\"a\"}]}\n\n".into()),
        2 => Response::new("data: {\"error\":{\"message\":\"x\"}}\n\n".into()),
        _ => whole(number),
    })
    .await;
    let report = replay(&trace(6), LoadOptions::new(target, "m"), real_time()).await;
    let one = |kind: &str| (kind.to_owned(), 1);
    let expected = [one("status-503"), one("truncated"), one("error-event")];
    assert_eq!(report.policy.errors, expected.into());
    assert!((report.policy.attainment - 0.5).abs() < 1e-9);
}

#[tokio::test]
async fn nobody_listening_is_a_failed_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let report = replay(&trace(2), LoadOptions::new(target, "m"), real_time()).await;
    assert_eq!(report.policy.errors, [("connect".to_owned(), 2)].into());
}

#[tokio::test]
async fn a_request_that_never_ends_times_out() {
    let (_, target) = serve(usize::MAX, whole).await;
    let timeout = Duration::from_millis(20);
    let options = LoadOptions { timeout, ..LoadOptions::new(target, "m") };
    let report = replay(&trace(2), options, real_time()).await;
    assert_eq!(report.policy.errors, [("timeout".to_owned(), 2)].into());
}

#[tokio::test]
async fn the_objective_and_the_length_are_asked_for() {
    let (script, target) = serve(0, whole).await;
    let options = LoadOptions {
        api: Api::Completions,
        time_scale: 4.0,
        slo: Slo { ttft: Millis::new(500.0), itl: Millis::new(50.0) },
        headers: vec![("authorization".to_owned(), "Bearer k".to_owned())],
        max_requests: Some(1),
        ..LoadOptions::new(target, "m")
    };
    replay(&trace(9), options, real_time()).await;
    assert_eq!(script.seen.load(Ordering::SeqCst), 1);
    let (headers, body) = script.last.lock().take().unwrap();
    assert_eq!(headers["x-slo-ttft-ms"], "125");
    assert_eq!(headers["x-slo-tpot-ms"], "12.5");
    assert_eq!(headers["authorization"], "Bearer k");
    assert_eq!(body["prompt"].as_str().unwrap().len(), 80);
    assert_eq!((&body["max_tokens"], &body["ignore_eos"]), (&2.into(), &true.into()));
}

#[tokio::test]
async fn a_cancelled_replay_reports_what_it_has() {
    let (script, target) = serve(usize::MAX, whole).await;
    let cancel = CancellationToken::new();
    let progress = Arc::new(Progress::default());
    let mut trace = trace(3);
    trace.arrivals[2].at = Duration::from_hours(1);
    let options = LoadOptions::new(target, "m");
    let run = run_load(&trace, options, real_time(), Arc::clone(&progress), cancel.clone());
    let stop = async {
        while script.seen.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!((progress.total(), progress.sent_count(), progress.in_flight()), (3, 2, 2));
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(run, stop);
    let report = report.unwrap();
    assert_eq!((report.policy.requests, report.unfinished), (0, 3));
}

#[tokio::test]
async fn a_target_that_plain_http_does_not_reach_is_refused() {
    for target in ["https://host", "host:80", "http://", "http://a b"] {
        let options = LoadOptions::new(target, "m");
        let progress = Arc::new(Progress::default());
        let trace = trace(1);
        let run = run_load(&trace, options, real_time(), progress, CancellationToken::new());
        assert!(run.await.is_err(), "{target}");
    }
}
