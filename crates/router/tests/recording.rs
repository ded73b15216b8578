//! Every decided request reaches the recorder once it has ended, however it ended.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::Pool;
use parking_lot::Mutex;
use router::{End, Options, Recorded, Recorder, Router, Usage};
use types::{Endpoint, EndpointId, Request, Slo, Time};

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn endpoint(name: &str, port: u16) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", name),
        address: format!("10.0.0.1:{port}").parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), name.to_uppercase())].into(),
    }
}

fn recorded(endpoints: usize) -> (Router, Arc<Kept>) {
    let all = [endpoint("h100", 1), endpoint("a100", 2)];
    let pool = Arc::new(Pool::new(all.into_iter().take(endpoints)));
    let router = Router::new(Options::default(), pool).unwrap();
    let kept = Arc::new(Kept::default());
    router.record_to(Arc::clone(&kept) as Arc<dyn Recorder>);
    (router, kept)
}

fn request() -> Request {
    Request {
        id: "r".into(),
        model: "m".into(),
        stream: true,
        prompt_bytes: 2_000,
        prompt_tokens: Some(500),
        max_tokens: None,
        blocks: Vec::new().into(),
        slo: Slo::default(),
        subset: None,
        explain: false,
    }
}

#[test]
fn a_whole_answer_is_recorded_with_both_latencies_and_when_they_were_known() {
    let (router, kept) = recorded(1);
    let mut flight = router.route(&request(), at(1_000), &[]).unwrap().flight;
    flight.tokens(1, at(1_200));
    assert!(kept.0.lock().is_empty());
    flight.tokens(5, at(1_300));
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 11, cached_tokens: None });
    flight.finish(End::Complete, at(1_350));
    let rows = kept.0.lock();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.end, row.output_tokens, row.decided_at), ("complete", 11, at(1_000)));
    assert_eq!((row.endpoint.as_str(), row.class.accelerator.as_str()), ("default/h100", "H100"));
    let (ttft, itl) = (row.ttft.unwrap(), row.itl.unwrap());
    assert!((ttft.ms - 200.0).abs() < 1e-3 && ttft.at == at(1_200));
    assert!((itl.ms - 10.0).abs() < 1e-3 && itl.at == at(1_350));
    assert!((row.row.get(features::Column::Prompt) - 500.0).abs() < f32::EPSILON);
}

#[test]
fn a_request_that_came_to_nothing_is_recorded_by_how_it_ended() {
    let (router, kept) = recorded(1);
    router.route(&request(), at(0), &[]).unwrap().flight.finish(End::Rejected, at(5));
    drop(router.route(&request(), at(10), &[]).unwrap());
    let mut flight = router.route(&request(), at(20), &[]).unwrap().flight;
    flight.tokens(1, at(25));
    flight.finish(End::ClientGone, at(30));
    let rows = kept.0.lock();
    let ends: Vec<_> = rows.iter().map(|row| (row.end, row.ttft.is_some())).collect();
    assert_eq!(ends, [("rejected", false), ("cancelled", false), ("client-gone", true)]);
}

#[test]
fn the_endpoint_that_really_served_is_recorded() {
    let (router, kept) = recorded(2);
    let mut routed = router.route(&request(), at(0), &[]).unwrap();
    let other = usize::from(routed.endpoint.slot == 0);
    let other = Arc::clone(&router.pool().endpoints()[other]);
    routed.flight.served_by(&other.address.clone(), at(1));
    routed.flight.tokens(1, at(50));
    routed.flight.finish(End::Complete, at(60));
    let rows = kept.0.lock();
    assert_eq!((&rows[0].endpoint, rows[0].slot), (&other.endpoint.id, other.slot));
    assert_eq!(rows[0].class.accelerator, other.accelerator);
}
