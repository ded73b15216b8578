//! Made-up traffic in virtual time that keeps a pool loaded and teaches the learner.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use benches::{resident_mb, thread_cpu};
use datalayer::{Pool, Snapshot};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use router::{End, Flight, Options, Routed, Router, Usage};
use schedule::Policy;
use types::{Endpoint, EndpointId, Millis, Request, Slo, Time};

/// Accelerator classes, and how many times slower than the first each is.
const CLASSES: [(&str, f32); 3] = [("H100-SXM", 1.0), ("A100-SXM-80", 1.8), ("L40S", 3.2)];
/// Prompts that share their first half with others of their group.
const GROUPS: u64 = 50;
/// Blocks of 256 bytes in a prompt, half of them the group's.
const BLOCKS: u64 = 64;
/// Prompt length in tokens.
const PROMPT_TOKENS: u32 = 4_096;
/// Reports of tokens per request after the first.
const REPORTS: u32 = 10;
/// Time between two scrapes of an endpoint.
const SCRAPE: Duration = Duration::from_millis(50);

/// What happens next to a request in flight.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Next {
    First,
    More(u32),
    End,
}

struct Live {
    flight: Flight,
    itl: Duration,
    tokens: u32,
}

/// A pool under load: as many requests as end, begin.
pub(crate) struct Traffic {
    router: Router,
    pool: Arc<Pool>,
    rng: SmallRng,
    now: Time,
    scraped: Time,
    events: BinaryHeap<Reverse<(Time, u64, Next)>>,
    live: HashMap<u64, Live>,
    wanted: usize,
    started: u64,
    /// What each end of a request took, microseconds of CPU.
    pub(crate) finish_us: Vec<f64>,
}

impl Traffic {
    /// `endpoints` of three classes, `in_flight` requests on each in the mean, routed by `policy`.
    pub(crate) fn new(endpoints: usize, in_flight: usize, policy: Policy) -> Self {
        let pool = Arc::new(Pool::new((0..endpoints).map(endpoint)));
        let mut options = Options::default();
        options.schedule.policy = policy;
        let mut traffic = Self {
            router: Router::new(options, Arc::clone(&pool)).unwrap(),
            pool,
            rng: SmallRng::seed_from_u64(1),
            now: Time::ZERO,
            scraped: Time::ZERO,
            events: BinaryHeap::new(),
            live: HashMap::new(),
            wanted: endpoints * in_flight,
            started: 0,
            finish_us: Vec::new(),
        };
        traffic.scrape();
        traffic
    }

    /// Runs until the pool is full and every class has learned from many requests.
    pub(crate) fn warm_up(&mut self) {
        let enough = self.wanted + 2_000;
        while self.live.len() < self.wanted || self.finish_us.len() < enough {
            let request = self.next_request();
            let routed = self.route(&request);
            self.follow(routed);
        }
        self.finish_us.clear();
    }

    /// Lets time pass until the next request arrives, and returns that.
    pub(crate) fn next_request(&mut self) -> Request {
        if self.live.len() < self.wanted {
            // The first ones come over two seconds.
            self.now = self.now.after(Duration::from_secs(2) / self.wanted as u32);
            self.pass_until(self.now);
        }
        while self.live.len() >= self.wanted {
            let Some(Reverse((at, ..))) = self.events.peek().copied() else { break };
            self.now = at;
            self.pass_until(at);
        }
        if self.now.since(self.scraped) >= SCRAPE {
            self.scrape();
        }
        self.request()
    }

    /// Decides where `request` goes: what is measured.
    pub(crate) fn route(&self, request: &Request) -> Routed {
        self.router.route(request, self.now, &[]).unwrap()
    }

    /// Plays what the endpoint does with a request that was routed.
    pub(crate) fn follow(&mut self, routed: Routed) {
        self.started += 1;
        let accelerator = routed.endpoint.accelerator.as_str();
        let slower = CLASSES.iter().find(|(name, _)| *name == accelerator).unwrap().1;
        let load = routed.endpoint.load(self.now);
        let noise = self.rng.random_range(0.9..1.1_f32);
        let ttft_ms = (8.0 + 0.03 * load.prefill_tokens) * slower * noise;
        let itl_ms = (6.0 + 0.4 * load.decoding as f32) * slower * noise;
        let tokens = self.rng.random_range(REPORTS * 5..REPORTS * 40);
        let itl = Duration::from_secs_f32(itl_ms / 1e3);
        let first = self.now.after(Duration::from_secs_f32(ttft_ms / 1e3));
        self.events.push(Reverse((first, self.started, Next::First)));
        self.live.insert(self.started, Live { flight: routed.flight, itl, tokens });
    }

    /// What state the pool is in.
    pub(crate) fn summary(&self) -> String {
        let in_flight: Vec<u32> = self.pool.endpoints().iter().map(|e| e.in_flight()).collect();
        let most = in_flight.iter().max().copied().unwrap_or_default();
        let none = in_flight.iter().filter(|n| **n == 0).count();
        let errors: Vec<String> = self
            .router
            .errors()
            .iter()
            .map(|class| {
                let ttft = class.ttft.median_error.unwrap_or(f32::NAN) * 100.0;
                let itl = class.itl.median_error.unwrap_or(f32::NAN) * 100.0;
                format!("{} TTFT {ttft:.0} % ITL {itl:.0} %", class.class)
            })
            .collect();
        let total: u32 = in_flight.iter().sum();
        let own = resident_mb(std::process::id());
        format!(
            "in flight {total}, at most {most} on one endpoint, none on {none}; {own:.0} MB resident; \
             median errors: {}",
            errors.join(", ")
        )
    }

    fn pass_until(&mut self, until: Time) {
        while let Some(Reverse((at, id, next))) = self.events.peek().copied()
            && at <= until
        {
            self.events.pop();
            self.happen(at, id, next);
        }
    }

    fn happen(&mut self, at: Time, id: u64, next: Next) {
        let live = self.live.get_mut(&id).unwrap();
        let each = live.tokens / REPORTS;
        let then = match next {
            Next::First => {
                live.flight.tokens(1, at);
                Next::More(1)
            }
            Next::More(turn) => {
                live.flight.tokens(each, at);
                if turn < REPORTS { Next::More(turn + 1) } else { Next::End }
            }
            Next::End => return self.end(at, id),
        };
        let pause = if then == Next::End { Duration::ZERO } else { live.itl * each };
        self.events.push(Reverse((at.after(pause), id, then)));
    }

    fn end(&mut self, at: Time, id: u64) {
        let mut live = self.live.remove(&id).unwrap();
        live.flight.usage(Usage {
            prompt_tokens: PROMPT_TOKENS,
            completion_tokens: 1 + live.tokens / REPORTS * REPORTS,
            cached_tokens: None,
        });
        let before = thread_cpu();
        live.flight.finish(End::Complete, at);
        self.finish_us.push((thread_cpu() - before) * 1e6);
    }

    /// Publishes what each endpoint's page would say.
    fn scrape(&mut self) {
        self.scraped = self.now;
        for endpoint in self.pool.endpoints().iter() {
            let running = endpoint.in_flight();
            endpoint.publish(Snapshot {
                scraped_at: Some(self.now),
                running: Some(running),
                waiting: Some(0),
                kv_utilization: Some((running as f32 * 0.02).min(1.0)),
                kv_block_tokens: Some(16),
                kv_blocks: Some(29_205),
                preemptions: None,
            });
        }
    }

    fn request(&mut self) -> Request {
        let group = self.rng.random_range(0..GROUPS);
        let own = |at| (self.started + 1) * 1_000 + at;
        let shared = |at| u64::MAX - group * 1_000 - at;
        let block = |at| if at < BLOCKS / 2 { shared(at) } else { own(at) };
        Request {
            id: self.started.to_string().into(),
            model: "llama-3.1-8b".into(),
            stream: true,
            prompt_bytes: PROMPT_TOKENS * 4,
            prompt_tokens: None,
            max_tokens: Some(1_000),
            blocks: (0..BLOCKS).map(block).collect(),
            slo: Slo { ttft: Millis::new(2_000.0), itl: Millis::new(50.0) },
            scope: None,
            subset: None,
            session: None,
            weight: 1.0,
            explain: false,
        }
    }
}

fn endpoint(at: usize) -> Endpoint {
    let (class, _) = CLASSES[at % CLASSES.len()];
    Endpoint {
        id: EndpointId::new("default", &format!("engine-{at}")),
        address: format!("10.{}.{}.1:8000", at / 250, at % 250).parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), class.to_owned())].into(),
    }
}
