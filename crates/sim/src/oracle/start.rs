//! From an engine to the state its shadow starts from.

use std::collections::{BTreeMap, VecDeque};

use types::Time;

use super::{
    World,
    ahead::Recent,
    promise::Promise,
    shadow::{Job, Start, Stream},
};
use crate::{
    engine::{Outlined, Stage},
    profile::BLOCK_TOKENS,
};

/// Milliseconds from `now` to `time`; negative in the past.
fn from_now(time: Time, now: Time) -> f64 {
    (time.nanos() as f64 - now.nanos() as f64) / 1e6
}

/// The state of `member`, with what is on its way there.
pub(super) fn start<'a>(
    world: &World<'a>,
    member: usize,
    now: Time,
    recent: &BTreeMap<u64, Recent>,
) -> Start<'a> {
    let engine = &world.engines[member];
    let options = engine.options();
    let network = world.network.as_secs_f64() * 1e3;
    let mut start = Start {
        profile: engine.profile(),
        slowdown: options.slowdown,
        budget: options.max_num_batched_tokens,
        seats: options.max_num_seqs as usize,
        ahead: options.async_scheduling,
        network,
        free: i64::from(engine.kv_blocks().1) * i64::from(BLOCK_TOKENS),
        step: engine.step_span().map(|(start, end)| (from_now(start, now), from_now(end, now))),
        decoding: Vec::new(),
        prefilling: Vec::new(),
        waiting: VecDeque::new(),
        incoming: Vec::new(),
    };
    for seen in engine.outline() {
        let mut job = job(world, &seen, now, start.step.map_or(0.0, |(begin, _)| begin));
        if seen.stage == Stage::Running {
            let left = (seen.prompt_tokens + seen.generated).saturating_sub(seen.computed);
            if seen.generated > 0 && left <= 1 {
                let Job { index, prompt, output, promise, .. } = job;
                let ends = output.saturating_sub(seen.generated).max(1);
                start.decoding.push((ends, Stream { index, prompt, output, promise }));
            } else {
                start.prefilling.push(job);
            }
            continue;
        }
        if seen.generated == 0 {
            job.computed = recent.get(&seen.id).map_or(0, |request| request.hit);
        }
        match seen.stage {
            Stage::Waiting => start.waiting.push_back(job),
            _ => start.incoming.push(job),
        }
    }
    let running = (start.decoding.len() + start.prefilling.len()) as u32;
    start.free += i64::from(running) * i64::from(BLOCK_TOKENS / 2);
    let is_coming =
        |(id, request): &(&u64, &Recent)| request.member == member && !engine.holds(**id);
    for (id, request) in recent.iter().filter(is_coming) {
        start.incoming.extend(job_to_come(world, *id as usize, (member, request.hit), now));
    }
    start.incoming.sort_by(|one, other| one.enters.total_cmp(&other.enters));
    start
}

/// A request in an engine. One whose first token is not back yet, but under way, gets it `last`, when
/// the step before ended.
fn job(world: &World<'_>, seen: &Outlined, now: Time, last: f64) -> Job {
    let network = world.network.as_secs_f64() * 1e3;
    let placed = world.placed.get(&seen.id);
    let promise = placed.map_or_else(
        || Promise::new(types::Slo::default(), 0.0, from_now(seen.arrival, now), None),
        |placed| {
            let under_way = (seen.generated > 0).then_some(last + network);
            let first = placed.first.map(|first| from_now(first, now)).or(under_way);
            promise(world, placed.class, from_now(placed.arrived, now), first)
        },
    );
    Job {
        index: seen.id as usize,
        enters: from_now(seen.arrival, now),
        prompt: seen.prompt_tokens,
        output: placed.map_or(seen.output_tokens, |placed| placed.output_tokens),
        generated: seen.generated,
        computed: seen.computed,
        scheduled: seen.scheduled,
        promise,
    }
}

fn promise(world: &World<'_>, class: u16, arrived: f64, first: Option<f64>) -> Promise {
    let class = world.classes.get(usize::from(class));
    let (slo, weight) = class.map_or_else(Default::default, |class| (class.slo, class.weight));
    Promise::new(slo, weight, arrived, first)
}

/// Arrival `index`, sent to a member as it arrives, where so many tokens of it are cached.
pub(super) fn job_to_come(
    world: &World<'_>,
    index: usize,
    (member, hit): (usize, u32),
    now: Time,
) -> Option<Job> {
    let arrival = world.arrivals.get(index)?;
    let arrived = from_now(Time::ZERO.after(arrival.at), now);
    let prompt = arrival.prompt_tokens.max(1);
    let delay = world.network.as_secs_f64() * 1e3 + world.engines[member].api_delay_ms(prompt);
    // A retry leaves later than it arrived.
    let leaves = if index == world.index { 0.0 } else { arrived };
    Some(Job {
        index,
        enters: leaves + delay,
        prompt,
        output: arrival.output_tokens.max(1),
        generated: 0,
        computed: hit,
        scheduled: 0,
        promise: promise(world, arrival.class, arrived, None),
    })
}
