//! What a clock that jumps makes of latencies is told and counted, and teaches nothing.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::sync::Arc;

use datalayer::Pool;
use parking_lot::Mutex;
use prometheus::TextEncoder;
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

fn router() -> (Router, Arc<Kept>) {
    let endpoint = Endpoint {
        id: EndpointId::new("default", "one"),
        address: "10.0.0.1:1".parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), "H100".to_owned())].into(),
    };
    let router = Router::new(Options::default(), Arc::new(Pool::new([endpoint]))).unwrap();
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
        session: None,
        weight: 1.0,
        scope: None,
        explain: false,
    }
}

/// One request that is decided, begun, goes on and ends at these instants.
fn serve(router: &Router, [decided, first, last, ended]: [Time; 4]) {
    let mut flight = router.route(&request(), decided, &[]).unwrap().flight;
    flight.tokens(1, first);
    flight.tokens(10, last);
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 11, cached_tokens: None });
    flight.finish(End::Complete, ended);
}

/// Forty sound requests; when the last one has ended.
fn warm(router: &Router) -> u64 {
    for i in 0..40 {
        let start = 1_000 * i;
        serve(router, [start, start + 80, start + 180, start + 185].map(at));
    }
    40_000
}

fn rejected(router: &Router) -> String {
    let page = TextEncoder::new().encode_to_string(&router.registry().gather()).unwrap();
    let counts = page.lines().filter(|line| line.starts_with("slackline_router_labels_rejected"));
    counts.map(|line| line.split_once('{').unwrap().1).collect::<Vec<_>>().join("; ")
}

/// The model state as bytes; counts of what is in flight are no part of it.
fn learned(router: &Router) -> Vec<u8> {
    router.save_models().unwrap()
}

#[test]
fn a_clock_that_jumps_back_teaches_nothing_and_is_counted() {
    let (router, kept) = router();
    let now = warm(&router);
    let before = learned(&router);
    // Set back before the first token: decided on the old time.
    serve(&router, [now, now - 9_920, now - 9_820, now - 9_810].map(at));
    assert!(learned(&router) == before);
    assert_eq!(rejected(&router), r#"reason="clock-back"} 2"#);
    let row = kept.0.lock().pop().unwrap();
    assert!(row.ttft.is_none() && row.itl.is_none(), "{row:?}");
}

#[test]
fn a_clock_that_jumps_back_within_a_stream_teaches_its_first_token_only() {
    let (router, kept) = router();
    let now = warm(&router);
    serve(&router, [now, now + 80, now - 5_000, now - 4_990].map(at));
    assert_eq!(rejected(&router), r#"reason="clock-back"} 1"#);
    let row = kept.0.lock().pop().unwrap();
    assert!(row.itl.is_none(), "{row:?}");
}

#[test]
fn a_clock_that_jumps_forth_and_back_teaches_nothing_wrong() {
    let (router, kept) = router();
    let now = warm(&router);
    let before = learned(&router);
    let far = now + 1_000_000_000_000;
    serve(&router, [now, far, now + 180, now + 185].map(at));
    serve(&router, [far, now + 80, now + 180, far + 9].map(at));
    assert!(learned(&router) == before);
    assert_eq!(rejected(&router), r#"reason="absurd"} 1; reason="clock-back"} 3"#);
    for row in kept.0.lock().drain(..).skip(40) {
        assert!(row.ttft.is_none() && row.itl.is_none(), "{row:?}");
    }
}

#[test]
fn predictions_after_a_jump_are_what_they_were() {
    let (router, kept) = router();
    let mut now = warm(&router);
    for jump in [now + 1_000_000_000_000, now / 2, 0, u64::MAX / 2_000_000] {
        serve(&router, [now, jump, now + 180, jump].map(at));
        now += 60_000;
    }
    for i in 0..20 {
        let start = now + 1_000 * i;
        serve(&router, [start, start + 80, start + 180, start + 185].map(at));
    }
    let rows = kept.0.lock();
    let is_finite = |row: &Recorded| row.row.as_slice().iter().all(|value| value.is_finite());
    assert!(rows.iter().all(is_finite), "{rows:?}");
    let errors = router.errors();
    assert!(errors[0].ttft.median_error.unwrap() < 0.2, "{errors:?}");
}

#[test]
fn tokens_in_one_piece_have_no_time_between_them_and_are_no_fault() {
    let (router, kept) = router();
    let mut flight = router.route(&request(), at(0), &[]).unwrap().flight;
    flight.tokens(11, at(80));
    flight.usage(Usage { prompt_tokens: 500, completion_tokens: 11, cached_tokens: None });
    flight.finish(End::Complete, at(90));
    let row = kept.0.lock().pop().unwrap();
    assert!(row.itl.is_none() && row.ttft.is_some(), "{row:?}");
    assert_eq!(rejected(&router), "");
}
