//! Whatever becomes of requests, in whatever order, the count of those in flight is exact, and comes
//! back to zero.

use std::{sync::Arc, time::Duration};

use datalayer::{EndpointState, Pool};
use proptest::{
    collection,
    prelude::*,
    sample::select,
    test_runner::{Config, RngSeed},
};
use router::{End, Flight, Head, Observer, Options, Router, Usage, read_request};
use types::{Api, Endpoint, EndpointId, Slo, Time};

/// Endpoints that come and go.
const ENDPOINTS: usize = 5;
/// Pieces of answers, sound and not.
const PIECES: [&str; 6] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
    "data: {\"error\":{\"message\":\"dead\"}}\n\n",
    "data: [DONE]\n\n",
    "data: {\"cho",
    "\u{0}\n\n\n",
];

/// What may happen next. Numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Route { prompt: u8, watched: bool, subset: bool },
    Tokens(usize, u32),
    Usage(usize, u32),
    ServedBy(usize, usize),
    Head(usize, u16),
    Piece(usize, &'static str),
    Finish(usize, End),
    Drop(usize),
    Pool(Vec<bool>),
    Pass(u32),
}

/// A routed request, as a front holds it.
#[derive(Debug)]
enum Held {
    Bare(Flight),
    Watched(Observer),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..64_usize;
    let ends = [End::Complete, End::ClientGone, End::EndpointFailed, End::Rejected];
    prop_oneof![
        6 => (0..4_u8, any::<bool>(), any::<bool>())
            .prop_map(|(prompt, watched, subset)| Step::Route { prompt, watched, subset }),
        3 => (which.clone(), 0..5_u32).prop_map(|(at, count)| Step::Tokens(at, count)),
        1 => (which.clone(), 0..5_u32).prop_map(|(at, count)| Step::Usage(at, count)),
        1 => (which.clone(), 0..=ENDPOINTS).prop_map(|(at, by)| Step::ServedBy(at, by)),
        2 => (which.clone(), select(vec![0, 200, 404, 503])).prop_map(|(at, s)| Step::Head(at, s)),
        3 => (which.clone(), select(PIECES.to_vec())).prop_map(|(at, text)| Step::Piece(at, text)),
        4 => (which.clone(), select(ends.to_vec())).prop_map(|(at, end)| Step::Finish(at, end)),
        2 => which.prop_map(Step::Drop),
        1 => collection::vec(any::<bool>(), ENDPOINTS).prop_map(Step::Pool),
        2 => (0..5_000_u32).prop_map(Step::Pass),
    ]
}

fn endpoint(number: usize) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", &format!("e{number}")),
        address: address(number).parse().unwrap(),
        labels: [].into(),
    }
}

fn address(number: usize) -> String {
    format!("10.0.0.{}:8000", number + 1)
}

/// The world as the steps leave it.
struct World {
    router: Router,
    now: Time,
    held: Vec<Held>,
    /// Every endpoint that ever was in the pool.
    known: Vec<Arc<EndpointState>>,
}

impl World {
    fn new() -> Self {
        let pool = Arc::new(Pool::new((0..ENDPOINTS).map(endpoint)));
        let router = Router::new(Options::default(), pool).unwrap();
        let mut world = Self { router, now: Time::ZERO, held: Vec::new(), known: Vec::new() };
        world.meet();
        world
    }

    fn meet(&mut self) {
        for state in self.router.pool().endpoints().iter() {
            if !self.known.iter().any(|known| Arc::ptr_eq(known, state)) {
                self.known.push(Arc::clone(state));
            }
        }
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Route { prompt, watched, subset } => self.route(prompt, watched, subset),
            Step::Pool(present) => {
                let present = (0..ENDPOINTS).filter(|number| present[*number]);
                self.router.replace_endpoints(present.map(endpoint));
                self.meet();
            }
            Step::Pass(ms) => self.now = now.after(Duration::from_millis(ms.into())),
            Step::Finish(at, end) => match self.remove(at) {
                Some(Held::Bare(flight)) => flight.finish(end, now),
                Some(Held::Watched(observer)) => observer.end(end, now),
                None => {}
            },
            Step::Drop(at) => drop(self.remove(at)),
            Step::Tokens(at, _)
            | Step::Usage(at, _)
            | Step::ServedBy(at, _)
            | Step::Head(at, _)
            | Step::Piece(at, _) => {
                let count = self.held.len().max(1);
                if let Some(held) = self.held.get_mut(at % count) {
                    held.take(&step, now);
                }
            }
        }
    }

    fn remove(&mut self, at: usize) -> Option<Held> {
        let count = self.held.len();
        (count > 0).then(|| self.held.swap_remove(at % count))
    }

    fn route(&mut self, prompt: u8, watched: bool, subset: bool) {
        let subset = subset.then(|| vec![types::SubsetEntry::parse(&address(prompt.into()))]);
        let head = Head {
            api: Api::Completions,
            id: "r".into(),
            slo: Slo::default(),
            scope: None,
            session: None,
            subset,
            explain: watched,
        };
        let text = format!("{prompt} ").repeat(200);
        let body = format!(r#"{{"model":"m","prompt":"{text}","stream":{watched}}}"#);
        let request = read_request(head, body.as_bytes()).unwrap();
        if let Ok(routed) = self.router.route(&request, self.now, &[]) {
            self.held.push(if watched {
                Held::Watched(Observer::new(routed.flight))
            } else {
                Held::Bare(routed.flight)
            });
        }
    }

    fn in_flight(&self) -> usize {
        self.known.iter().map(|endpoint| endpoint.in_flight() as usize).sum()
    }

    /// The sum over the samples of counter `name`.
    fn counted(&self, name: &str) -> u64 {
        let families = self.router.registry().gather();
        let families = families.into_iter().filter(|family| family.name() == name);
        let samples = families.flat_map(|mut family| family.take_metric());
        samples.map(|sample| sample.get_counter().get_value() as u64).sum()
    }
}

impl Held {
    fn take(&mut self, step: &Step, now: Time) {
        match (self, step) {
            (Self::Bare(flight), Step::Tokens(_, count)) => flight.tokens(*count, now),
            (Self::Bare(flight), Step::Usage(_, count)) => flight.usage(Usage {
                prompt_tokens: *count,
                completion_tokens: *count,
                cached_tokens: None,
            }),
            (Self::Bare(flight), Step::ServedBy(_, by)) => flight.served_by(&address(*by), now),
            (Self::Watched(observer), Step::ServedBy(_, by)) => {
                observer.served_by(&address(*by), now);
            }
            (Self::Watched(observer), Step::Head(_, status)) => {
                observer.head(*status, Some("text/event-stream"), now);
            }
            (Self::Watched(observer), Step::Piece(_, text)) => {
                observer.chunk(text.as_bytes(), now);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(5),
        ..Config::default()
    })]

    #[test]
    fn counts_in_flight_are_exact_and_return_to_zero(steps in collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step.clone());
            prop_assert_eq!(world.in_flight(), world.held.len(), "after {:?}", step);
        }
        world.held.clear();
        prop_assert_eq!(world.in_flight(), 0);
        let decided = world.counted("slackline_router_decisions_total");
        let ended = world.counted("slackline_router_outcomes_total");
        prop_assert_eq!(decided, ended);
        let load = world.known.iter().map(|endpoint| endpoint.load(world.now));
        for load in load {
            prop_assert_eq!(load.prefilling + load.decoding, 0);
            prop_assert_eq!(load.decode_tokens + load.prefill_context_tokens, 0);
        }
    }
}
