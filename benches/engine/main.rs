//! How fast virtual time passes: engine steps per second, and routed requests per second of a fleet.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that fails should fail loudly")]

use std::time::Duration;

use benches::{Figures, heading, is_short, thread_cpu};
use schedule::Policy;
use sim::{Bundled, Engine, Event, EventKind, Member, Profile, Scenario, Submit, Trace, simulate};
use types::{Millis, Slo, Time};

/// Model of every profile here.
const MODEL: &str = "llama-3.1-8b";
/// Sequences that run at once.
const RUNNING: [u64; 3] = [1, 6, 30];
/// Prompt and output of each; a new one follows the one that ends.
const TOKENS: (u32, u32) = (500, 250);
/// Accelerators of the fleet that serves the trace.
const FLEET: [&str; 6] = ["H100", "H100", "A100", "A100", "L40S", "L40S"];

fn main() {
    let about = "One engine in virtual time at 1, 6 and 30 running sequences, each event taken as it \
                 comes,\nand a fleet of six on the bundled slice of the Mooncake conversation trace with \
                 the whole\nrouter, learned and round-robin. Per second of CPU on one core; medians over \
                 repetitions\n(least to most). Aim: a million steps.";
    println!("{}\n", heading("engine", about));
    let (steps, repeats) = if is_short() { (10_000, 2) } else { (1_000_000, 9) };
    for running in RUNNING {
        let million = Figures::new((0..repeats).map(|_| step_rate(running, steps) / 1e6), 2);
        println!("engine, {running:2} running: {million} million steps a second");
    }
    let trace = trace();
    println!(
        "\ntrace {}: {} requests in {:.0} s",
        trace.name,
        trace.arrivals.len(),
        trace.span().as_secs_f64()
    );
    for (policy, name) in [(Policy::Learned, "learned"), (Policy::RoundRobin, "round-robin")] {
        fleet_rate(policy, name, &trace);
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
    let options = sim::TraceOptions { max_prompt_tokens: Some(32_000), ..Default::default() };
    let trace = Trace::bundled(Bundled::MooncakeConversation, &options).unwrap();
    if is_short() { trace.take(200) } else { trace }
}

fn fleet_rate(policy: Policy, name: &str, trace: &Trace) {
    let fleet: Vec<Member> = (0..).zip(FLEET).map(member).collect();
    let mut router = router::Options::default();
    router.schedule.policy = policy;
    let scenario = Scenario {
        router,
        slo: Slo { ttft: Millis::new(4_000.0), itl: Millis::new(50.0) },
        scrape_every: Duration::from_millis(50),
        model: MODEL.to_owned(),
        events: Vec::new(),
        recorder: None,
    };
    let run = |_| {
        let before = thread_cpu();
        let done = simulate(name, &fleet, trace, &scenario).unwrap();
        (thread_cpu() - before, done)
    };
    let runs: Vec<_> = (0..if is_short() { 1 } else { 7 }).map(run).collect();
    let requests = Figures::new(runs.iter().map(|(s, done)| done.report.requests as f64 / s), 0);
    let steps = Figures::new(runs.iter().map(|(s, done)| done.steps as f64 / s / 1e6), 2);
    let (_, last) = &runs[0];
    println!("fleet, {name}: {requests} requests a second, {steps} million steps a second");
    let failed: u64 = last.report.errors.values().sum();
    let attainment = last.report.attainment;
    println!("  {} steps, {failed} requests failed, attainment {attainment:.3}", last.steps);
}

fn member((at, gpu): (u64, &str)) -> Member {
    let profile = Profile::named(gpu, MODEL).unwrap();
    let options = sim::Options { seed: at, ..sim::Options::new(&profile) };
    Member { name: format!("{}-{at}", gpu.to_lowercase()), profile, options }
}
