//! How fast virtual time passes: engine steps per second, and routed requests per second of a fleet.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

use std::{sync::Arc, time::Duration};

use benches::{Figures, heading, is_short, thread_cpu};
use schedule::Policy;
use sim::{
    Arrival, BlockSource, Bundled, Chooser, Class, Engine, Event, EventKind, Member, Profile,
    Scenario, Submit, Trace, TraceOptions, simulate,
};
use types::{Millis, Slo, SystemClock, Time};

/// Model of every profile here.
const MODEL: &str = "llama-3.1-8b";
/// Sequences that run at once.
const RUNNING: [u64; 3] = [1, 6, 30];
/// Prompt and output of each; a new one follows the one that ends.
const TOKENS: (u32, u32) = (500, 250);
/// Accelerators of the fleet that serves the trace.
const FLEET: [&str; 6] = ["H100", "H100", "A100", "A100", "L40S", "L40S"];
/// A day: how often the slice is played, how much faster, so that 3.4 requests arrive a second, and on
/// how many engines.
const DAY_LAPS: u32 = 136;
const DAY_RATE: f64 = 1.136;
const DAY_FLEET: u64 = 20;
/// Endpoints and requests of the largest fleet.
const LARGE: (u64, u64) = (4_000, 60_000);

fn main() {
    let about = "One engine in virtual time at 1, 6 and 30 running sequences, each event taken as it \
                 comes,\nand fleets with the whole router: six on the bundled slice of the Mooncake \
                 conversation\ntrace, twenty on a day of it, and 4,000 at 1,000 requests a second. Per \
                 second of CPU on\none core; medians over repetitions (least to most). Aim: 5 million \
                 steps, the day in a minute.";
    println!("{}\n", heading("engine", about));
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    if wants("steps") {
        engine_rates();
    }
    let trace = trace();
    if wants("slice") {
        println!("\n{}", told(&trace));
        let mixed: Vec<Member> = (0..).zip(FLEET).map(member).collect();
        for policy in [Policy::RoundRobin, Policy::Learned] {
            fleet_rate(policy, &mixed, &trace, if is_short() { 1 } else { 7 });
        }
    }
    if wants("day") {
        let (laps, repeats) = if is_short() { (1, 1) } else { (DAY_LAPS, 1) };
        let day = repeated(&trace, laps).scaled(DAY_RATE);
        println!("\n{} on {DAY_FLEET} H100", told(&day));
        let alike: Vec<Member> = (0..DAY_FLEET).map(|at| member((at, "H100"))).collect();
        for policy in [Policy::RoundRobin, Policy::LeastRequests, Policy::Heuristic] {
            fleet_rate(policy, &alike, &day, repeats);
        }
    }
    if wants("large") {
        let (endpoints, requests) = if is_short() { (100, 100) } else { LARGE };
        let large = crowd(requests);
        println!("\n{} on {endpoints} H100", told(&large));
        let alike: Vec<Member> = (0..endpoints).map(|at| member((at, "H100"))).collect();
        for policy in [Policy::RoundRobin, Policy::Heuristic] {
            fleet_rate(policy, &alike, &large, 1);
        }
    }
}

fn engine_rates() {
    let (steps, repeats) = if is_short() { (10_000, 2) } else { (1_000_000, 9) };
    for running in RUNNING {
        let million = Figures::new((0..repeats).map(|_| step_rate(running, steps) / 1e6), 2);
        println!("engine, {running:2} running: {million} million steps a second");
    }
}

/// Steps per second of CPU of one engine with `running` sequences.
fn step_rate(running: u64, steps: u64) -> f64 {
    let profile = Profile::named("H100", MODEL).unwrap();
    let options = sim::Options::new(&profile);
    let mut engine = Engine::new(profile, options);
    let mut events: Vec<Event> = Vec::new();
    let mut next_id = 0..;
    let mut submit = |engine: &mut Engine, now| {
        let id = next_id.next().unwrap();
        let (prompt_tokens, output_tokens) = TOKENS;
        let request = Submit { id, prompt_tokens, blocks: [].into(), output_tokens };
        engine.submit(request, now).unwrap();
    };
    for at in 0..running {
        // Not all at once, so that they do not end at once.
        submit(&mut engine, Time::from_nanos(at * 100_000_000));
    }
    let before = thread_cpu();
    while engine.gauges().counts.steps < steps {
        let now = engine.next_event().unwrap();
        engine.advance(now, &mut events);
        let ended = events.iter().filter(|e| matches!(e.kind, EventKind::Finished { .. })).count();
        events.clear();
        for _ in 0..ended {
            submit(&mut engine, now);
        }
    }
    engine.gauges().counts.steps as f64 / (thread_cpu() - before)
}

fn trace() -> Trace {
    let options = TraceOptions { max_prompt_tokens: Some(32_000), ..TraceOptions::default() };
    let trace = Trace::bundled(Bundled::MooncakeConversation, &options).unwrap();
    if is_short() { trace.take(200) } else { trace }
}

/// `trace` so many times in a row, its prompts new every time.
fn repeated(trace: &Trace, laps: u32) -> Trace {
    let ids = |arrival: &Arrival| match &arrival.blocks {
        BlockSource::Shared(ids) => ids.iter().copied().max().unwrap_or(0),
        _ => 0,
    };
    let stride = trace.arrivals.iter().map(ids).max().unwrap_or(0) + 1;
    let arrival = |lap: u32, first: &Arrival| {
        let blocks = match &first.blocks {
            BlockSource::Shared(ids) => {
                BlockSource::Shared(ids.iter().map(|id| id + lap * stride).collect())
            }
            other => other.clone(),
        };
        Arrival { at: first.at + lap * trace.span(), blocks, ..first.clone() }
    };
    let all = (0..laps).flat_map(|lap| trace.arrivals.iter().map(move |first| (lap, first)));
    let arrivals = all.map(|(lap, first)| arrival(lap, first)).collect();
    Trace { name: trace.name.clone(), arrivals, clamped: 0 }
}

/// So many requests of a chat service, 1,000 a second.
fn crowd(requests: u64) -> Trace {
    let trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let arrival = |at: u64| Arrival {
        at: Duration::from_micros(at * 1_000),
        blocks: BlockSource::Unique(at),
        ..trace.arrivals[at as usize % trace.arrivals.len()].clone()
    };
    Trace { name: trace.name.clone(), arrivals: (0..requests).map(arrival).collect(), clamped: 0 }
}

fn told(trace: &Trace) -> String {
    let requests = trace.arrivals.len() as f64;
    let mean = |of: fn(&Arrival) -> u32| {
        trace.arrivals.iter().map(|arrival| f64::from(of(arrival))).sum::<f64>() / requests
    };
    format!(
        "{}: {requests} requests in {:.0} s, mean {:.0} tokens in and {:.0} out",
        trace.name,
        trace.span().as_secs_f64(),
        mean(|arrival| arrival.prompt_tokens),
        mean(|arrival| arrival.output_tokens)
    )
}

fn fleet_rate(policy: Policy, fleet: &[Member], trace: &Trace, repeats: usize) {
    let mut router = router::Options::default();
    router.schedule.policy = policy;
    let slo = Slo { ttft: Millis::new(4_000.0), itl: Millis::new(50.0) };
    let scenario = Scenario {
        clock: Some(Arc::new(SystemClock::start())),
        ..Scenario::new(Chooser::Router(router), vec![Class::only(slo)], MODEL)
    };
    let run = |_| {
        let before = thread_cpu();
        let done = simulate("p", fleet, trace, &scenario).unwrap();
        (thread_cpu() - before, done)
    };
    let runs: Vec<_> = (0..repeats).map(run).collect();
    let seconds = Figures::new(runs.iter().map(|(s, _)| *s), 2);
    let requests = Figures::new(runs.iter().map(|(s, done)| done.report.requests as f64 / s), 0);
    let steps = Figures::new(runs.iter().map(|(s, done)| done.steps as f64 / s / 1e6), 2);
    println!(
        "{policy:?}: {seconds} s, {requests} requests a second, {steps} million steps a second"
    );
    let (_, last) = &runs[0];
    let failed: u64 = last.report.errors.values().sum();
    let decision = last.decision_time.unwrap_or_default().as_secs_f64() / last.decisions as f64;
    println!(
        "  {} steps, {failed} requests failed, attainment {:.3}, {:.1} us of wall time a decision",
        last.steps,
        last.report.attainment,
        decision * 1e6
    );
}

fn member((at, gpu): (u64, &str)) -> Member {
    let profile = Profile::named(gpu, MODEL).unwrap();
    let options = sim::Options { seed: at, ..sim::Options::new(&profile) };
    Member::new(format!("{}-{at}", gpu.to_lowercase()), profile, options)
}
