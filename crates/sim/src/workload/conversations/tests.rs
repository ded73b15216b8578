//! Every generator keeps what is published of it, and conversations go on as conversations do.

use std::{collections::HashMap, path::Path, time::Duration};

use ahash::AHashSet;

use crate::workload::{
    Arrival, BlockSource, Make, Trace, Workload, engine_blocks, prompt_text, router_blocks,
};

const LIKES: [&str; 12] = [
    "shared-prefix",
    "scenario-a",
    "scenario-b",
    "scenario-c",
    "scenario-d",
    "sharegpt",
    "production",
    "code-generation",
    "reasoning",
    "b2b-saas",
    "agentic",
    "rl-rollout",
];

fn workload(like: &str, rate: f64, more: &str) -> Workload {
    let text = format!("{{\"generate\":{{\"like\":\"{like}\",\"rate\":{rate:?}{more}}}}}");
    serde_json::from_str(&text).unwrap()
}

fn make(seed: u64, horizon_s: u64) -> Make<'static> {
    Make {
        speed: 1.0,
        seed,
        horizon: Duration::from_secs(horizon_s),
        shares: &[],
        folder: Path::new("."),
    }
}

fn trace(like: &str, rate: f64, more: &str, horizon_s: u64) -> Trace {
    workload(like, rate, more).trace(&make(1, horizon_s)).unwrap()
}

fn mean(trace: &Trace, of: impl Fn(&Arrival) -> f64) -> f64 {
    trace.arrivals.iter().map(of).sum::<f64>() / trace.arrivals.len() as f64
}

/// The share of prompt tokens that a cache without bound would hold, of the arrivals `from` on.
fn hit_share(trace: &Trace, from: Duration) -> f64 {
    let mut cache = AHashSet::new();
    let (mut hits, mut prompt) = (0.0, 0.0);
    for arrival in &trace.arrivals {
        let blocks = engine_blocks(arrival);
        let asked = &blocks[..arrival.prompt_tokens as usize / 16];
        if arrival.at >= from {
            hits += asked.iter().take_while(|block| cache.contains(*block)).count() as f64 * 16.0;
            prompt += f64::from(arrival.prompt_tokens);
        }
        cache.extend(blocks.iter().copied());
    }
    hits / prompt
}

/// The conversations, each with its arrivals in order.
fn conversations(trace: &Trace) -> HashMap<u32, Vec<&Arrival>> {
    let mut found: HashMap<u32, Vec<&Arrival>> = HashMap::new();
    for arrival in &trace.arrivals {
        found.entry(arrival.session.unwrap()).or_default().push(arrival);
    }
    found
}

#[test]
fn equal_seeds_give_equal_traces_and_others_do_not() {
    for like in LIKES {
        let of = |seed| workload(like, 5.0, "").trace(&make(seed, 120)).unwrap().arrivals;
        assert_eq!(of(3), of(3), "{like}");
        assert_ne!(of(3), of(4), "{like}");
    }
}

#[test]
fn every_generator_keeps_its_rate_from_the_first_minute_on() {
    for like in LIKES {
        let trace = trace(like, 20.0, "", 1_280);
        assert!(trace.arrivals.is_sorted_by_key(|arrival| arrival.at), "{like}");
        let rate = trace.arrivals.len() as f64 / 1_280.0;
        assert!((rate / 20.0 - 1.0).abs() < 0.03, "{like}: {rate}");
        let first = trace.slice(Duration::ZERO, Duration::from_secs(64)).arrivals.len() as f64;
        assert!((first / 64.0 / 20.0 - 1.0).abs() < 0.2, "{like}: {first} in the first 64 s");
    }
}

#[test]
fn no_prompt_outgrows_the_context() {
    for like in LIKES {
        for arrival in trace(like, 20.0, ",\"max_context\":60000", 300).arrivals {
            let whole = arrival.prompt_tokens + arrival.output_tokens;
            assert!(whole <= 60_000 && arrival.output_tokens >= 1, "{like}: {whole}");
            let BlockSource::Parts(parts) = &arrival.blocks else { panic!("{like}: no pieces") };
            let told: u32 = parts.iter().map(|part| part.tokens).sum();
            assert!(told >= whole, "{like}: {told} < {whole}");
        }
    }
}

#[test]
fn lengths_are_the_published_ones() {
    for (like, prompt, output) in [
        ("sharegpt", 220.0, 200.0),
        ("reasoning", 1_250.0, 7_900.0),
        ("rl-rollout", 500.0, 3_950.0),
    ] {
        let trace = trace(like, 50.0, "", 1_000);
        let found = mean(&trace, |arrival| f64::from(arrival.prompt_tokens));
        assert!((found / prompt - 1.0).abs() < 0.05, "{like}: prompt {found}");
        let found = mean(&trace, |arrival| f64::from(arrival.output_tokens));
        assert!((found / output - 1.0).abs() < 0.05, "{like}: answer {found}");
    }
    // First turns of scenarios: nobody comes twice within a few seconds.
    for (like, prompt) in [
        ("scenario-a", 1_030.0),
        ("scenario-b", 4_000.0),
        ("scenario-c", 7_200.0),
        ("scenario-d", 7_200.0),
    ] {
        let trace = trace(like, 7.0, "", 100);
        let found = mean(&trace, |arrival| f64::from(arrival.prompt_tokens));
        assert!((found / prompt - 1.0).abs() < 0.05, "{like}: {found}");
        let found = mean(&trace, |arrival| f64::from(arrival.output_tokens));
        assert!((found / 1_000.0 - 1.0).abs() < 0.05, "{like}: {found}");
    }
}

#[test]
fn a_next_prompt_starts_with_all_that_went_before() {
    let trace = trace("agentic", 10.0, "", 600);
    let mut followed = 0;
    for (_, turns) in conversations(&trace) {
        for pair in turns.windows(2) {
            let before = engine_blocks(pair[0]);
            let after = engine_blocks(pair[1]);
            assert_eq!(before[..], after[..before.len()]);
            assert!(pair[1].prompt_tokens > pair[0].prompt_tokens + pair[0].output_tokens);
            let router = router_blocks(pair[0]);
            let full = pair[0].prompt_tokens as usize / 64;
            assert_eq!(router[..full], router_blocks(pair[1])[..full]);
            followed += 1;
        }
    }
    assert!(followed > 4_000, "{followed}");
    let turns = conversations(&trace).into_values().max_by_key(Vec::len).unwrap();
    let text = |arrival| prompt_text(arrival, 5);
    assert!(text(turns[1]).starts_with(&text(turns[0])));
    let others = trace.arrivals.iter().find(|other| other.session != turns[0].session).unwrap();
    assert!(!text(turns[1]).starts_with(&text(others)));
}

#[test]
fn a_next_turn_waits_for_the_nominal_answer_and_the_pause() {
    let trace = trace("agentic", 10.0, "", 600);
    let mut gaps = Vec::new();
    for (_, turns) in conversations(&trace) {
        for pair in turns.windows(2) {
            let nominal = 0.5 + 0.03 * f64::from(pair[0].output_tokens);
            let gap = pair[1].at.abs_diff(pair[0].at).as_secs_f64();
            assert!(gap >= nominal - 1e-6, "{gap} < {nominal}");
            gaps.push(gap - nominal);
        }
    }
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((1.8..3.5).contains(&mean), "{mean}");
}

#[test]
fn conversations_have_the_turns_that_were_asked_for_and_are_under_way_at_the_start() {
    let trace = trace("code-generation", 10.0, "", 3_000);
    // Those that begin within and have the time to end.
    let turns: Vec<f64> = conversations(&trace)
        .into_values()
        .filter(|turns| {
            let BlockSource::Parts(parts) = &turns[0].blocks else { panic!("no pieces") };
            let first = parts[0].tokens + parts[1].tokens;
            turns[0].prompt_tokens < first && turns[0].at < Duration::from_mins(25)
        })
        .map(|turns| turns.len() as f64)
        .collect();
    let mean = turns.iter().sum::<f64>() / turns.len() as f64;
    assert!((5.3..6.5).contains(&mean), "{mean} turns of {}", turns.len());
    assert!(turns.iter().all(|turns| (1.0..=20.0).contains(turns)));
    let early = trace.slice(Duration::ZERO, Duration::from_secs(20));
    let late = |arrival: &&Arrival| {
        let BlockSource::Parts(parts) = &arrival.blocks else { panic!("no pieces") };
        arrival.prompt_tokens > parts[0].tokens + parts[1].tokens
    };
    let under_way = early.arrivals.iter().filter(late).count() as f64;
    let share = under_way / early.arrivals.len() as f64;
    assert!((0.65..0.95).contains(&share), "{share}");
}

#[test]
fn groups_share_their_system_prompt_and_nothing_else() {
    let trace = trace("scenario-c", 6.0, "", 100);
    let mut firsts: HashMap<u64, AHashSet<u64>> = HashMap::new();
    for arrival in &trace.arrivals {
        let blocks = engine_blocks(arrival);
        firsts.entry(blocks[374]).or_default().insert(blocks[375]);
    }
    assert!((100..=150).contains(&firsts.len()), "{}", firsts.len());
    let questions: usize = firsts.values().map(|questions| questions.len()).sum();
    assert_eq!(questions, trace.arrivals.len());
}

#[test]
fn fixed_users_ask_in_turn_and_more_join_only_when_all_are_busy() {
    let trace = trace("scenario-c", 10.0, "", 300);
    let turns: Vec<usize> = conversations(&trace).into_values().map(|turns| turns.len()).collect();
    assert_eq!(turns.len(), 750);
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert!(*least >= 3 && *most <= 4 + 1, "{least}..={most}");
    let crowded = self::trace("scenario-c", 60.0, "", 300);
    assert!(conversations(&crowded).len() > 1_500);
}

#[test]
fn most_of_production_was_seen_before_until_the_shared_prefixes_change() {
    let start = Duration::from_mins(5);
    let steady = trace("production", 10.0, ",\"change_every_s\":0", 1_800);
    let hits = hit_share(&steady, start);
    assert!((0.92..0.96).contains(&hits), "{hits}");
    let changing = trace("production", 10.0, ",\"change_every_s\":300", 1_800);
    let collapsed = hit_share(&changing, start);
    assert!(collapsed < hits - 0.03, "{collapsed} of {hits}");
    let lengths = |of: fn(&Arrival) -> u32| steady.arrivals.iter().map(of).max().unwrap();
    assert!(lengths(|arrival| arrival.output_tokens) == 8_192);
}

#[test]
fn a_flash_crowd_is_one_of_new_conversations() {
    let flash = ",\"arrivals\":{\"flash\":{\"at_s\":100,\"for_s\":20,\"factor\":6}}";
    let trace = trace("agentic", 10.0, flash, 140);
    let began = |from: u64, to: u64| {
        let range = Duration::from_secs(from)..Duration::from_secs(to);
        conversations(&trace).values().filter(|turns| range.contains(&turns[0].at)).count()
    };
    assert!(began(100, 120) > 5 * began(60, 80), "{} {}", began(100, 120), began(60, 80));
}

#[test]
fn samples_of_a_prompt_come_together_and_share_it_alone() {
    let trace = trace("rl-rollout", 64.0, ",\"prompts\":16,\"samples\":4", 10);
    let bursts: AHashSet<Duration> = trace.arrivals.iter().map(|arrival| arrival.at).collect();
    assert_eq!((bursts.len(), trace.arrivals.len()), (10, 640));
    let prompts: AHashSet<u64> =
        trace.arrivals.iter().map(|arrival| *router_blocks(arrival).last().unwrap()).collect();
    assert_eq!(prompts.len(), 160);
    let answers: AHashSet<u64> =
        trace.arrivals.iter().map(|arrival| *engine_blocks(arrival).last().unwrap()).collect();
    assert_eq!(answers.len(), 640);
}

#[test]
fn another_rate_asks_the_same_conversations() {
    let of = |speed| {
        let make = Make { speed, ..make(1, 100) };
        workload("scenario-d", 4.0, "").trace(&make).unwrap()
    };
    let (slow, fast) = (of(1.0), of(2.0));
    let lengths = |trace: &Trace| -> Vec<u32> {
        trace.arrivals.iter().take(100).map(|arrival| arrival.prompt_tokens).collect()
    };
    assert_eq!(lengths(&slow), lengths(&fast));
    let ratio = fast.arrivals.len() as f64 / slow.arrivals.len() as f64;
    assert!((1.7..2.3).contains(&ratio), "{ratio}");
}
