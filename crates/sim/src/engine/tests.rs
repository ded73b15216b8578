//! Behaviour of the engine: published latencies, cache, preemption, conservation.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn engine(gpu: &str, change: impl FnOnce(&mut Options)) -> Engine {
    let profile = Profile::named(gpu, "llama-3.1-8b").unwrap();
    let mut options = Options::new(&profile);
    change(&mut options);
    Engine::new(profile, options)
}

/// A request whose prompt starts the conversation `conversation`.
fn request(id: u64, conversation: u64, prompt_tokens: u32, output_tokens: u32) -> Submit {
    let blocks = (0..u64::from(prompt_tokens / BLOCK_TOKENS))
        .map(|index| conversation.wrapping_mul(0x1_0000_0001) + index + 1)
        .collect();
    Submit { id, prompt_tokens, blocks, output_tokens }
}

fn run_to_end(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(next) = engine.next_event() {
        engine.advance(next, &mut events);
    }
    events
}

fn serve(engine: &mut Engine, requests: &[(Submit, f64)]) -> Vec<Event> {
    let mut events = Vec::new();
    for (submit, at) in requests {
        let at = Time::from_secs_f64(*at);
        engine.advance(at, &mut events);
        engine.submit(submit.clone(), at).unwrap();
    }
    events.extend(run_to_end(engine));
    events
}

fn ttft(events: &[Event], id: u64) -> f64 {
    let is_first = |e: &&Event| e.id == id && matches!(e.kind, EventKind::FirstToken { .. });
    events.iter().find(is_first).unwrap().at.secs_f64()
}

fn end(events: &[Event], id: u64) -> (f64, u32) {
    let finished = events.iter().filter(|e| e.id == id).find_map(|e| match e.kind {
        EventKind::Finished { cached_tokens } => Some((e.at.secs_f64(), cached_tokens)),
        _ => None,
    });
    finished.unwrap()
}

#[test]
fn a_lone_stream_on_h100_has_the_published_gap_between_tokens() {
    let mut engine = engine("H100", |_| {});
    let events = serve(&mut engine, &[(request(1, 1, 256, 1001), 0.0)]);
    let itl_ms = end(&events, 1).0 - ttft(&events, 1);
    assert!((itl_ms - 6.73).abs() < 0.1, "{itl_ms} ms");
}

#[test]
fn a_long_prefill_on_a100_takes_the_measured_time() {
    let mut engine = engine("A100", |_| {});
    let events = serve(&mut engine, &[(request(1, 1, 21_073, 1), 0.0)]);
    assert!((ttft(&events, 1) - 1.9).abs() < 0.1, "{} s", ttft(&events, 1));
}

#[test]
fn full_kv_blocks_queue_requests_and_refuse_none() {
    let load: Vec<_> = (0..40).map(|id| (request(id, id, 8192, 512), 0.0)).collect();
    let mut roomy = engine("H100", |_| {});
    let mut tight = engine("H100", |o| o.kv_blocks = Some(4096));
    let without_limit = serve(&mut roomy, &load);
    let with_limit = serve(&mut tight, &load);
    assert_eq!(tight.gauges().counts.finished, 40);
    assert!(ttft(&with_limit, 39) > 2.0 * ttft(&without_limit, 39));
}

#[test]
fn a_new_request_waits_for_the_step_after_next_only_when_scheduling_is_asynchronous() {
    let mean_ttft_steps = |async_scheduling| {
        let mut engine = engine("H100", |o| o.async_scheduling = async_scheduling);
        let api_s = if async_scheduling { 5.013e-3 } else { 9.313e-3 };
        let mut load = vec![(request(0, 0, 16, 3000), 0.0)];
        load.extend((1..200).map(|id| (request(id, 1, 16, 1), 0.0931 * id as f64)));
        let events = serve(&mut engine, &load);
        let total: f64 =
            load[1..].iter().map(|(submit, at)| ttft(&events, submit.id) - at - api_s).sum();
        total / 199.0 / 6.9e-3
    };
    assert!((mean_ttft_steps(false) - 1.5).abs() < 0.15, "{}", mean_ttft_steps(false));
    assert!((mean_ttft_steps(true) - 2.5).abs() < 0.15, "{}", mean_ttft_steps(true));
}

#[test]
fn a_prefill_next_door_slows_every_stream() {
    let mut engine = engine("H100", |_| {});
    let load = [(request(1, 1, 16, 100), 0.0), (request(2, 2, 20_000, 1), 0.2)];
    let events = serve(&mut engine, &load);
    let tokens: Vec<_> = events.iter().filter(|e| e.id == 1).map(|e| e.at.secs_f64()).collect();
    let longest = tokens.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    assert!(longest > 0.15, "{longest} s");
}

#[test]
fn a_repeated_prompt_is_cached_but_for_its_last_block() {
    let mut engine = engine("H100", |_| {});
    let load = [(request(1, 7, 1024, 2), 0.0), (request(2, 7, 1024, 2), 1.0)];
    let events = serve(&mut engine, &load);
    assert_eq!((end(&events, 1).1, end(&events, 2).1), (0, 1008));
    let counts = engine.gauges().counts;
    assert_eq!((counts.prefix_queries, counts.prefix_hits), (2048, 1008));
}

#[test]
fn a_next_turn_finds_the_answer_before_it_cached() {
    let mut engine = engine("H100", |_| {});
    // The hashes of the first cover its answer, too.
    let blocks = request(0, 7, 1024 + 160, 1).blocks;
    let first = Submit { blocks, ..request(1, 7, 1024, 160) };
    let events = serve(&mut engine, &[(first, 0.0), (request(2, 7, 2048, 2), 3.0)]);
    // Its last token was never computed, so its last block is not full.
    assert_eq!(end(&events, 2).1, 1024 + 144);
}

#[test]
fn a_restarted_engine_has_neither_requests_nor_a_cache_and_counts_on() {
    let mut engine = engine("H100", |_| {});
    let load = [(request(1, 7, 1024, 2), 0.0), (request(2, 8, 1024, 500), 1.0)];
    for (submit, at) in load {
        let at = Time::from_secs_f64(at);
        engine.advance(at, &mut Vec::new());
        engine.submit(submit, at).unwrap();
    }
    let now = Time::from_secs_f64(1.5);
    engine.advance(now, &mut Vec::new());
    let before = *engine.counts();
    engine.restart(now);
    assert_eq!((engine.next_event(), engine.gauges().kv_utilization), (None, 0.0));
    assert_eq!(*engine.counts(), Counts { aborted: 1, ..before });
    let events = serve(&mut engine, &[(request(3, 7, 1024, 2), 2.0)]);
    assert_eq!(end(&events, 3).1, 0);
}

#[test]
fn the_series_of_the_exponential_is_good_to_fifteen_digits_where_noise_lies() {
    for x in (-40..=40).map(|step| f64::from(step) * 5e-3) {
        assert!((exp(x) / x.exp() - 1.0).abs() < 1e-15, "{x}");
    }
}

#[test]
fn the_end_of_an_old_prompt_is_evicted_before_its_front() {
    let mut engine = engine("H100", |o| o.kv_blocks = Some(100));
    let load = [
        (request(1, 1, 640, 1), 0.0),
        (request(2, 2, 960, 1), 1.0),
        (request(3, 3, 160, 1), 2.0),
        (request(4, 1, 640, 1), 3.0),
    ];
    let events = serve(&mut engine, &load);
    assert_eq!(end(&events, 4).1, 480);
}

#[test]
fn a_preempted_request_still_gets_all_its_tokens() {
    let mut engine = engine("H100", |o| o.kv_blocks = Some(64));
    let load: Vec<_> = (0..4).map(|id| (request(id, id, 240, 200), 0.0)).collect();
    let events = serve(&mut engine, &load);
    assert!(engine.gauges().counts.preemptions > 0);
    for id in 0..4 {
        let emits = |e: &&Event| matches!(e.kind, EventKind::FirstToken { .. } | EventKind::Token);
        assert_eq!(events.iter().filter(|e| e.id == id).filter(emits).count(), 200);
    }
    assert!(engine.gauges().kv_utilization.abs() < f64::EPSILON);
}

#[test]
fn an_aborted_request_frees_its_blocks_at_once() {
    let mut engine = engine("H100", |_| {});
    let mut events = Vec::new();
    engine.submit(request(1, 1, 4096, 100), Time::ZERO).unwrap();
    engine.advance(Time::from_secs_f64(0.3), &mut events);
    assert!(engine.gauges().kv_utilization > 0.0);
    assert!(engine.abort(1, Time::from_secs_f64(0.3)));
    assert!(!engine.abort(1, Time::from_secs_f64(0.3)));
    let gauges = engine.gauges();
    assert!(gauges.kv_utilization.abs() < f64::EPSILON);
    assert_eq!((gauges.running, gauges.counts.aborted), (0, 1));
    let seen = events.len();
    events.extend(run_to_end(&mut engine));
    assert_eq!(events.len(), seen);
}

#[test]
fn a_request_that_can_never_fit_is_rejected() {
    let mut engine = engine("L4", |_| {});
    assert_eq!(engine.max_model_len(), 1941 * 16);
    let rejected = engine.submit(request(1, 1, 31_000, 57), Time::ZERO).unwrap_err();
    assert_eq!(rejected, Rejected::TooLong { tokens: 31_057, limit: 31_056 });
    engine.submit(request(1, 1, 31_000, 56), Time::ZERO).unwrap();
    assert_eq!(
        engine.submit(request(1, 1, 10, 5), Time::ZERO).unwrap_err(),
        Rejected::Duplicate(1)
    );
    run_to_end(&mut engine);
    assert_eq!(engine.gauges().counts.finished, 1);
}

#[test]
fn a_slowdown_stretches_later_steps() {
    let mut engine = engine("H100", |_| {});
    let before = serve(&mut engine, &[(request(1, 1, 256, 200), 0.0)]);
    engine.set_slowdown(1.6);
    let after = serve(&mut engine, &[(request(2, 2, 256, 200), 10.0)]);
    let ratio = (end(&after, 2).0 - ttft(&after, 2)) / (end(&before, 1).0 - ttft(&before, 1));
    assert!((ratio - 1.6).abs() < 0.03, "{ratio}");
}

/// One call of the property test.
#[derive(Clone, Debug)]
enum Call {
    Submit { conversation: u64, prompt: u32, output: u32 },
    Abort { pick: usize },
    Wait { micros: u64 },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let submit = (0_u64..5, 1_u32..700, 1_u32..120)
        .prop_map(|(conversation, prompt, output)| Call::Submit { conversation, prompt, output });
    let abort = (0_usize..100).prop_map(|pick| Call::Abort { pick });
    let wait = (0_u64..60_000).prop_map(|micros| Call::Wait { micros });
    proptest::collection::vec(prop_oneof![3 => submit, 1 => abort, 3 => wait], 1..80)
}

/// Plays `calls`; gives every event, and the (prompt, output) of what was not aborted.
fn play(calls: &[Call], engine: &mut Engine) -> (Vec<Event>, HashMap<u64, (u32, u32)>) {
    let (mut events, mut expected) = (Vec::new(), HashMap::new());
    let (mut now, mut next_id) = (Time::ZERO, 0);
    for call in calls {
        match *call {
            Call::Submit { conversation, prompt, output } => {
                engine.submit(request(next_id, conversation, prompt, output), now).unwrap();
                expected.insert(next_id, (prompt, output));
                next_id += 1;
            }
            Call::Abort { pick } if next_id > 0 => {
                let id = pick as u64 % next_id;
                let finished =
                    |e: &Event| e.id == id && matches!(e.kind, EventKind::Finished { .. });
                let is_there = expected.contains_key(&id) && !events.iter().any(finished);
                assert_eq!(engine.abort(id, now), is_there);
                if is_there {
                    expected.remove(&id);
                }
            }
            Call::Abort { .. } => {}
            Call::Wait { micros } => {
                now = now.after(Duration::from_micros(micros));
                engine.advance(now, &mut events);
            }
        }
        engine.check();
    }
    while let Some(next) = engine.next_event() {
        engine.advance(next, &mut events);
        engine.check();
    }
    (events, expected)
}

impl Engine {
    /// Every block is free or held by the sequences that list it, as often as they list it.
    fn check(&self) {
        let mut holders = HashMap::<u32, u32>::new();
        let present = self.running.iter().chain(&self.waiting).chain(&self.incoming);
        for &slot in present {
            for &id in &self.sequences[slot].table {
                *holders.entry(id).or_default() += 1;
            }
        }
        assert_eq!(holders.len() as u32 + self.blocks.free(), self.blocks.total());
        assert!(holders.keys().all(|id| !self.blocks.is_free(*id)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_request_no_token_and_no_block_is_lost(
        calls in calls(),
        kv_blocks in 52_u32..200,
        max_num_seqs in 1_u32..12,
        async_scheduling: bool,
    ) {
        let limits = |o: &mut Options| {
            o.kv_blocks = Some(kv_blocks);
            o.max_num_seqs = max_num_seqs;
            o.max_num_batched_tokens = 256;
            o.async_scheduling = async_scheduling;
        };
        let mut first = engine("H100", limits);
        let (events, expected) = play(&calls, &mut first);
        prop_assert!(events.is_sorted_by_key(|event| event.at));
        for (id, (prompt, output)) in expected {
            let own: Vec<_> = events.iter().filter(|e| e.id == id).map(|e| e.kind).collect();
            let tokens = own.iter().filter(|kind| {
                matches!(kind, EventKind::FirstToken { .. } | EventKind::Token)
            });
            prop_assert_eq!(tokens.count(), output as usize);
            let Some(EventKind::Finished { cached_tokens }) = own.last() else {
                return Err(TestCaseError::fail("not finished"));
            };
            prop_assert!(*cached_tokens < prompt);
        }
        let gauges = first.gauges();
        prop_assert_eq!((gauges.running, gauges.waiting), (0, 0));
        prop_assert!(gauges.kv_utilization.abs() < f64::EPSILON);
        let mut second = engine("H100", limits);
        prop_assert_eq!(play(&calls, &mut second).0, events);
    }
}
