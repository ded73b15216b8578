//! Oracles on small fleets whose future is known.

use ahash::AHashMap;
use types::{Millis, Slo};

use super::*;
use crate::{
    class::Class,
    engine::{Engine, Event, EventKind, Options, Submit},
    profile::Profile,
    workload::{Arrival, BlockSource, Bundled, Trace, TraceOptions, engine_blocks},
};

/// Engines of these accelerator classes with 8B models.
fn fleet(gpus: &[&str]) -> Vec<Engine> {
    let engine = |(seed, gpu): (usize, &&str)| {
        let profile = Profile::named(gpu, "llama-3.1-8b").unwrap();
        let options = Options { seed: seed as u64, ..Options::new(&profile) };
        Engine::new(profile, options)
    };
    gpus.iter().enumerate().map(engine).collect()
}

fn class(ttft_ms: f32, itl_ms: f32) -> Class {
    Class::only(Slo { ttft: Millis::new(ttft_ms), itl: Millis::new(itl_ms) })
}

fn arrival(at_ms: u64, prompt_tokens: u32, output_tokens: u32, class: u16) -> Arrival {
    let content = at_ms << 32 | u64::from(prompt_tokens);
    let (at, blocks) = (Duration::from_millis(at_ms), BlockSource::Unique(content));
    Arrival { at, prompt_tokens, output_tokens, blocks, session: None, class }
}

/// What became of a trace: where each request went, and whether it kept its promise.
#[derive(Debug, Eq, PartialEq)]
struct Played {
    members: Vec<usize>,
    met: Vec<bool>,
}

impl Played {
    fn kept(&self) -> usize {
        self.met.iter().filter(|met| **met).count()
    }
}

/// A fleet that serves a trace without a network.
#[derive(Debug)]
struct Play<'a> {
    engines: Vec<Engine>,
    placed: AHashMap<u64, Placed>,
    classes: &'a [Class],
    met: Vec<bool>,
}

impl Play<'_> {
    fn advance(&mut self, now: Time) {
        let mut events = Vec::new();
        for engine in &mut self.engines {
            engine.advance(now, &mut events);
        }
        for Event { id, at, kind } in events {
            let Some(placed) = self.placed.get_mut(&id) else { continue };
            if matches!(kind, EventKind::FirstToken { .. } | EventKind::Token) {
                placed.first.get_or_insert(at);
                placed.last = at;
                placed.tokens += 1;
            } else if matches!(kind, EventKind::Finished { .. }) {
                let placed = self.placed.remove(&id).unwrap();
                let first = placed.first.unwrap();
                let gaps = placed.tokens as f32 - 1.0;
                let itl_ms = (gaps > 0.0).then(|| placed.last.ms_since(first) / gaps);
                let slo = self.classes[usize::from(placed.class)].slo;
                self.met[id as usize] = slo.is_met(first.ms_since(placed.arrived), itl_ms);
            }
        }
    }

    fn world<'a>(&'a self, arrivals: &'a [Arrival], index: usize, alive: &'a [bool]) -> World<'a> {
        World {
            engines: &self.engines,
            alive,
            placed: &self.placed,
            arrivals,
            index,
            classes: self.classes,
            network: Duration::ZERO,
        }
    }

    fn place(&mut self, arrival: &Arrival, index: usize, member: usize) {
        let now = Time::ZERO.after(arrival.at);
        let id = index as u64;
        let &Arrival { prompt_tokens, output_tokens, class, .. } = arrival;
        let submit = Submit { id, prompt_tokens, output_tokens, blocks: engine_blocks(arrival) };
        self.engines[member].submit(submit, now).unwrap();
        let first = None;
        let placed =
            Placed { member, class, arrived: now, first, last: now, tokens: 0, output_tokens };
        self.placed.insert(id, placed);
    }
}

/// Serves `arrivals`; `choose` is shown the world at each.
fn play(
    gpus: &[&str],
    arrivals: &[Arrival],
    classes: &[Class],
    mut choose: impl FnMut(&World<'_>, Time) -> usize,
) -> Played {
    let (placed, met) = (AHashMap::new(), vec![false; arrivals.len()]);
    let mut play = Play { engines: fleet(gpus), placed, classes, met };
    let alive = vec![true; gpus.len()];
    let mut members = Vec::new();
    for (index, arrival) in arrivals.iter().enumerate() {
        let now = Time::ZERO.after(arrival.at);
        play.advance(now);
        let member = choose(&play.world(arrivals, index, &alive), now);
        play.place(arrival, index, member);
        members.push(member);
    }
    play.advance(Time::from_secs_f64(1e6));
    Played { members, met: play.met }
}

fn oracle(options: OracleOptions) -> impl FnMut(&World<'_>, Time) -> usize {
    let mut oracle = Oracle::new(options);
    move |world, now| oracle.choose(world, now).unwrap()
}

fn least_requests(world: &World<'_>, _: Time) -> usize {
    let on = |member: &usize| world.placed.values().filter(|p| p.member == *member).count();
    (0..world.engines.len()).min_by_key(on).unwrap()
}

/// The conversation trace at `rps`.
fn conversation(count: usize, rps: f64) -> Vec<Arrival> {
    let trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let trace = trace.take(count);
    let rate = rps * trace.span().as_secs_f64() / count as f64;
    trace.scaled(rate).arrivals
}

#[test]
fn a_fast_engine_is_kept_free_for_the_prompt_that_needs_it() {
    let classes = [class(15_000.0, 100.0), class(800.0, 100.0)];
    let arrivals = [arrival(0, 20_000, 10, 0), arrival(60, 12_000, 10, 1)];
    let greedy = play(&["H100", "L40S"], &arrivals, &classes, oracle(OracleOptions::TrueLatency));
    assert_eq!((greedy.members[0], greedy.kept()), (0, 1));
    let best = play(&["H100", "L40S"], &arrivals, &classes, oracle(OracleOptions::CLAIRVOYANT));
    assert_eq!((best.members, best.met), (vec![1, 0], vec![true, true]));
}

#[test]
fn a_burst_beyond_one_engine_is_spread_so_that_all_are_in_time() {
    let classes = [class(1_000.0, 60.0)];
    let arrivals: Vec<_> = (0..7).map(|at| arrival(at, 7_000, 5, 0)).collect();
    for options in [OracleOptions::TrueLatency, OracleOptions::CLAIRVOYANT] {
        let played = play(&["H100", "A100", "H100", "H100"], &arrivals, &classes, oracle(options));
        assert_eq!(played.kept(), 7, "{options:?} {:?}", played.members);
    }
}

#[test]
fn knowing_more_keeps_more_promises() {
    let classes = [class(500.0, 40.0)];
    let arrivals = conversation(600, 80.0);
    let gpus = ["H100", "H100", "A100", "A100", "L40S", "L40S"];
    let least = play(&gpus, &arrivals, &classes, least_requests).kept();
    let latency = play(&gpus, &arrivals, &classes, oracle(OracleOptions::TrueLatency)).kept();
    let all = play(&gpus, &arrivals, &classes, oracle(OracleOptions::CLAIRVOYANT)).kept();
    assert!(latency > least + 60, "{latency} by latencies, {least} by least requests");
    assert!(all > latency, "{all} by the future, {latency} by latencies");
}

#[test]
fn equal_worlds_are_decided_alike() {
    let classes = [class(500.0, 40.0)];
    let arrivals = conversation(150, 40.0);
    for options in [OracleOptions::TrueLatency, OracleOptions::CLAIRVOYANT] {
        let played = || play(&["H100", "A100", "L40S"], &arrivals, &classes, oracle(options));
        assert_eq!(played(), played());
    }
}

#[test]
fn a_dead_member_is_never_chosen_and_a_fleet_of_them_gives_none() {
    let classes = [class(500.0, 40.0)];
    let arrivals = conversation(60, 30.0);
    for options in [OracleOptions::TrueLatency, OracleOptions::CLAIRVOYANT] {
        let mut oracle = Oracle::new(options);
        let mut turn = 0;
        play(&["H100", "H100", "L40S"], &arrivals, &classes, |world, now| {
            turn += 1;
            let alive = [turn % 3 == 0, turn % 3 == 1, turn % 2 == 0 || turn % 3 == 2];
            let world = World { alive: &alive, ..*world };
            let member = oracle.choose(&world, now).unwrap();
            assert!(alive[member], "{member} at {turn}");
            let dead = World { alive: &[false; 3], ..world };
            assert_eq!(Oracle::new(options).choose(&dead, now), None);
            member
        });
    }
}

#[test]
fn a_request_that_comes_back_from_a_failed_member_is_placed_again() {
    let classes = [class(500.0, 40.0)];
    let arrivals = [arrival(0, 500, 5, 0), arrival(5_000, 500, 5, 0)];
    for options in [OracleOptions::TrueLatency, OracleOptions::CLAIRVOYANT] {
        let mut oracle = Oracle::new(options);
        play(&["H100", "L40S"], &arrivals, &classes, |world, now| {
            let first = oracle.choose(world, now).unwrap();
            let alive = [first != 0, first != 1];
            let second = oracle.choose(&World { alive: &alive, ..*world }, now).unwrap();
            assert_ne!(first, second);
            second
        });
    }
}

#[test]
fn a_prompt_goes_where_most_of_it_is_cached() {
    let classes = [class(2_000.0, 60.0)];
    let shared = |at_ms, prompt_tokens: u32| Arrival {
        blocks: BlockSource::Shared((0..prompt_tokens.div_ceil(512)).collect()),
        ..arrival(at_ms, prompt_tokens, 20, 0)
    };
    let arrivals = [shared(0, 8_192), shared(3_000, 9_000)];
    for options in [OracleOptions::TrueLatency, OracleOptions::CLAIRVOYANT] {
        let mut oracle = Oracle::new(options);
        let played = play(&["A100", "A100"], &arrivals, &classes, |world, now| {
            let member = oracle.choose(world, now).unwrap();
            // The first is made to warm the second member.
            if world.index == 0 { 1 } else { member }
        });
        assert_eq!(played.members[1], 1, "{options:?}");
    }
}

#[test]
fn what_is_lost_anyway_goes_where_it_harms_nobody() {
    // The long prompt is too late on either; on the first, short answers are under way that one stall
    // ruins.
    let classes = [class(400.0, 12.0), class(300.0, 40.0)];
    let mut arrivals: Vec<_> = (0..6).map(|at| arrival(at, 200, 40, 0)).collect();
    arrivals.push(arrival(150, 16_000, 10, 1));
    let mut oracle = Oracle::new(OracleOptions::TrueLatency);
    let played = play(&["H100", "A100"], &arrivals, &classes, |world, now| {
        let member = oracle.choose(world, now).unwrap();
        if world.index < 6 { 0 } else { member }
    });
    assert_eq!(played.members[6], 1);
    assert_eq!(played.kept(), 6);
}

/// Sum of the times to completion, s, of what is in an engine under load after 10 s: by its shadow, and
/// as it comes.
fn to_completion(options: impl Fn(&mut Options), rps: f64) -> (f64, f64) {
    let classes = [Class::only(Slo::default())];
    let arrivals = conversation((rps * 10.0) as usize, rps);
    let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
    let mut limits = Options::new(&profile);
    options(&mut limits);
    let engines = vec![Engine::new(profile, limits)];
    let met = vec![false; arrivals.len()];
    let mut play = Play { engines, placed: AHashMap::new(), classes: &classes, met };
    for (index, arrival) in arrivals.iter().enumerate() {
        play.advance(Time::ZERO.after(arrival.at));
        play.place(arrival, index, 0);
    }
    let now = Time::ZERO.after(arrivals.last().unwrap().at);
    let recent = std::collections::BTreeMap::new();
    let world = play.world(&arrivals, arrivals.len(), &[true]);
    let start = start::start(&world, 0, now, &recent);
    let expected = 100.0 * shadow::play(&start, &start.incoming, None);
    let mut events = Vec::new();
    let mut engine = play.engines[0].clone();
    engine.advance(Time::from_secs_f64(1e6), &mut events);
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::Finished { .. }));
    let took = ends.map(|end| f64::from(end.at.ms_since(play.placed[&end.id].arrived)) / 1e3);
    (expected, took.sum())
}

#[test]
fn a_shadow_ends_when_its_engine_does() {
    for (what, kv_blocks, batched, seats, rps, within) in [
        ("a plain engine", None, 8192, 1024, 12.0, 0.02),
        ("an overloaded one", None, 8192, 1024, 40.0, 0.02),
        ("small steps", None, 512, 1024, 20.0, 0.03),
        ("few seats", None, 8192, 12, 12.0, 0.03),
        ("little memory", Some(4_000), 8192, 1024, 30.0, 0.05),
    ] {
        let limits = |options: &mut Options| {
            options.kv_blocks = kv_blocks;
            options.max_num_batched_tokens = batched;
            options.max_num_seqs = seats;
        };
        let (expected, took) = to_completion(limits, rps);
        assert!((expected / took - 1.0).abs() < within, "{what}: {expected} s, in fact {took} s");
    }
}
