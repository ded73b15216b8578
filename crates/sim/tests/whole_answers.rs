//! A pool that only ever answers in one piece is learned all the same: how long an answer takes, and when
//! its first token would have come.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{collections::HashMap, sync::Arc, time::Duration};

use datalayer::{Pool, Snapshot};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use router::{End, Flight, Router, Usage};
use sim::{BLOCK_TOKENS, Engine, Event, EventKind, Options, Profile, Submit};
use types::{Endpoint, EndpointId, Request, Slo, Time};

/// What was said of an answer, and what came.
#[derive(Debug)]
struct Seen {
    rung: &'static str,
    /// Median TTFT and ITL predicted; none before the class is learned.
    predicted: Option<(f32, f32)>,
    ttft_ms: f32,
    e2e_ms: f32,
    tokens: u32,
}

#[derive(Debug)]
struct Running {
    flight: Flight,
    sent: Time,
    seen: Seen,
    prompt_tokens: u32,
}

struct Fleet {
    router: Router,
    engines: Vec<Engine>,
    running: HashMap<u64, Running>,
    done: Vec<Seen>,
}

fn fleet(gpus: &[&str]) -> Fleet {
    let profile = |gpu: &&str| Profile::named(gpu, "llama-3.1-8b").unwrap();
    let engine = |gpu: &&str| Engine::new(profile(gpu), Options::new(&profile(gpu)));
    let endpoint = |(at, gpu): (usize, &&str)| Endpoint {
        id: EndpointId::new("default", &format!("e{at}")),
        address: format!("10.0.0.{}:80", at + 1).parse().unwrap(),
        labels: [("llm-d.ai/accelerator".to_owned(), (*gpu).to_owned())].into(),
    };
    let pool = Arc::new(Pool::new(gpus.iter().enumerate().map(endpoint)));
    let mut options = router::Options { refits: router::Refits::Inline, ..Default::default() };
    options.learner.batch = Vec::new();
    Fleet {
        router: Router::new(options, pool).unwrap(),
        engines: gpus.iter().map(engine).collect(),
        running: HashMap::new(),
        done: Vec::new(),
    }
}

impl Fleet {
    /// Runs every engine up to `until`.
    fn run(&mut self, until: Time) {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let next = (0..self.engines.len())
                .filter_map(|at| Some((self.engines[at].next_event()?, at)))
                .min();
            let Some((now, at)) = next.filter(|(now, _)| *now <= until) else { return };
            self.engines[at].advance(now, &mut events);
            for event in events.drain(..) {
                self.take(&event);
            }
        }
    }

    /// The router sees nothing of an answer before its end.
    fn take(&mut self, event: &Event) {
        let Some(running) = self.running.get_mut(&event.id) else { return };
        match event.kind {
            EventKind::FirstToken { .. } => running.seen.ttft_ms = event.at.ms_since(running.sent),
            EventKind::Finished { cached_tokens } => {
                let mut of = self.running.remove(&event.id).unwrap();
                of.seen.e2e_ms = event.at.ms_since(of.sent);
                of.flight.usage(Usage {
                    prompt_tokens: of.prompt_tokens,
                    completion_tokens: of.seen.tokens,
                    cached_tokens: Some(cached_tokens),
                });
                of.flight.finish(End::Complete, event.at);
                self.done.push(of.seen);
            }
            EventKind::Token | EventKind::Preempted => {}
        }
    }

    fn scrape(&self, now: Time) {
        for (engine, state) in self.engines.iter().zip(self.router.pool().endpoints().iter()) {
            let gauges = engine.gauges();
            state.publish(Snapshot {
                scraped_at: Some(now),
                running: Some(gauges.running),
                waiting: Some(gauges.waiting),
                kv_utilization: Some(gauges.kv_utilization as f32),
                kv_block_tokens: Some(BLOCK_TOKENS),
                kv_blocks: Some(gauges.kv_blocks),
                preemptions: Some(gauges.counts.preemptions as u32),
            });
        }
    }

    fn send(&mut self, id: u64, (prompt_tokens, tokens): (u32, u32), now: Time) {
        let request = Request {
            id: id.to_string().into(),
            model: "m".into(),
            stream: false,
            prompt_bytes: prompt_tokens * 4,
            prompt_tokens: None,
            max_tokens: None,
            blocks: [].into(),
            slo: Slo::default(),
            scope: None,
            subset: None,
            session: None,
            weight: 1.0,
            explain: true,
        };
        let routed = self.router.route(&request, now, &[]).unwrap();
        let at = routed.endpoint.slot as usize;
        let submit = Submit { id, prompt_tokens, blocks: [].into(), output_tokens: tokens };
        self.engines[at].submit(submit, now).unwrap();
        let prediction = routed.explanation.unwrap().best[0].prediction;
        let predicted = prediction.map(|of| (of.ttft.p50(), of.itl.p50()));
        let seen =
            Seen { rung: routed.rung.as_str(), predicted, ttft_ms: 0.0, e2e_ms: 0.0, tokens };
        let running = Running { flight: routed.flight, sent: now, seen, prompt_tokens };
        self.running.insert(id, running);
    }
}

/// Requests that arrive at random, `per_second` of them, with skewed lengths.
fn serve(fleet: &mut Fleet, requests: u64, per_second: f64) {
    let mut random = StdRng::seed_from_u64(7);
    let mut now = Time::ZERO;
    let mut next_scrape = Time::ZERO;
    for id in 0..requests {
        let gap = -random.random_range(1e-9..1.0_f64).ln() / per_second;
        now = now.after(Duration::from_secs_f64(gap));
        while next_scrape <= now {
            fleet.run(next_scrape);
            fleet.scrape(next_scrape);
            next_scrape = next_scrape.after(Duration::from_millis(100));
        }
        fleet.run(now);
        let skewed = |random: &mut StdRng, least: f64, most: f64| {
            (least * (most / least).powf(random.random_range(0.0..1.0))) as u32
        };
        let lengths = (skewed(&mut random, 50.0, 6_000.0), skewed(&mut random, 4.0, 400.0));
        fleet.send(id, lengths, now);
    }
    fleet.run(now.after(Duration::from_hours(1)));
}

fn median(mut of: Vec<f32>) -> f32 {
    of.sort_by(f32::total_cmp);
    of[of.len() / 2]
}

#[test]
fn a_pool_of_two_classes_that_never_streams_is_predicted_well() {
    let mut fleet = fleet(&["H100", "H100", "L40S", "L40S"]);
    serve(&mut fleet, 1_500, 12.0);
    assert_eq!(fleet.done.len(), 1_500);
    let first_learned = fleet.done.iter().position(|seen| seen.rung == "learned");
    assert!(first_learned.unwrap() < 150, "{first_learned:?}");
    let late = &fleet.done[1_000..];
    assert!(late.iter().all(|seen| seen.rung == "learned"));
    let off = |of: fn(&Seen, (f32, f32)) -> f32| {
        median(late.iter().map(|seen| of(seen, seen.predicted.unwrap())).collect())
    };
    let e2e = off(|seen, (ttft, itl)| {
        ((ttft + itl * (seen.tokens - 1) as f32) / seen.e2e_ms - 1.0).abs()
    });
    let ttft = off(|seen, (ttft, _)| (ttft / seen.ttft_ms).ln().abs().exp());
    assert!(e2e < 0.2, "{e2e}");
    // What a streamed request would be told: not the time of the whole, which is far longer.
    assert!(ttft < 1.3, "{ttft}");
}
