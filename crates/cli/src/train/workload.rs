//! The load that a prior is taught by: stretches of several rates, prompt and output lengths, with prompts
//! that share their beginnings. Seeded.

use std::{sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Exp1, LogNormal};
use sim::{Arrival, BLOCK_TOKENS, Batch, BlockSource, Profile, TRACE_BLOCK_TOKENS, Trace};

/// Share of the engine's capacity that the requests of a stretch ask for: from one at a time to a little
/// more than it can do.
const LOADS: [f64; 6] = [0.02, 0.1, 0.3, 0.6, 0.85, 1.05];
/// Median prompt and output of a stretch, in tokens.
const SHAPES: [(f64, f64); 5] =
    [(120.0, 80.0), (500.0, 250.0), (1_500.0, 120.0), (4_000.0, 400.0), (2_000.0, 30.0)];
/// Standard deviation of the logarithm of lengths, about that of the Azure conversation trace.
const SPREAD: f64 = 0.9;
/// Longest prompt and output.
const LONGEST: (f64, f64) = (16_000.0, 1_500.0);
/// Share of requests whose prompt begins as others do, and how many such beginnings there are.
const SHARED: f64 = 0.3;
const BEGINNINGS: u32 = 12;
/// Most sequences that the capacity is reckoned with.
const AT_ONCE: f64 = 96.0;

/// About `requests` requests to one engine of `profile`.
pub(super) fn varied(profile: &Profile, requests: usize, seed: u64) -> Trace {
    let mut random = SmallRng::seed_from_u64(seed);
    let each = (requests / (LOADS.len() * SHAPES.len())).max(1);
    let mut arrivals = Vec::with_capacity(requests);
    let mut at_ms = 0.0;
    // Light and heavy load take turns, so that a queue of one stretch does not fill the next.
    for shape in SHAPES {
        for load in LOADS {
            let gap_ms = service_ms(profile, shape) / load;
            for _ in 0..each {
                let wait: f64 = Exp1.sample(&mut random);
                at_ms += wait * gap_ms;
                let number = arrivals.len() as u32;
                arrivals.push(request(profile, shape, (at_ms, number), &mut random));
            }
        }
    }
    Trace { name: "varied load".to_owned(), arrivals, clamped: 0 }
}

/// Time that one more request of this shape takes from an engine that is full, in milliseconds.
pub(super) fn service_ms(profile: &Profile, (prompt, output): (f64, f64)) -> f64 {
    let kv_tokens = f64::from(profile.kv_blocks) * f64::from(BLOCK_TOKENS);
    let sequences = (kv_tokens / (prompt + output)).clamp(1.0, AT_ONCE) as u32;
    let decode = Batch {
        tokens: sequences,
        sequences,
        context: u64::from(sequences) * (prompt + output / 2.0) as u64,
        pairs: 0.0,
    };
    let whole = Batch {
        tokens: sequences + prompt as u32,
        sequences: sequences + 1,
        pairs: prompt * prompt / 2.0,
        ..decode
    };
    let step_ms = profile.step_ms(&decode);
    (profile.step_ms(&whole) - step_ms) + output * step_ms / f64::from(sequences)
}

fn request(
    profile: &Profile,
    (prompt, output): (f64, f64),
    (at_ms, number): (f64, u32),
    random: &mut SmallRng,
) -> Arrival {
    let room = f64::from(profile.kv_blocks) * f64::from(BLOCK_TOKENS) / 4.0;
    let mut length = |median: f64, longest: f64| {
        let drawn = LogNormal::new(median.ln(), SPREAD).map_or(median, |of| of.sample(random));
        drawn.clamp(4.0, longest.min(room)) as u32
    };
    let (prompt_tokens, output_tokens) = (length(prompt, LONGEST.0), length(output, LONGEST.1));
    let blocks = prompt_tokens.div_ceil(TRACE_BLOCK_TOKENS);
    let begins_as = if random.random_bool(SHARED) { random.random_range(0..BEGINNINGS) } else { 0 };
    let shared = if begins_as == 0 { 0 } else { random.random_range(0..blocks) };
    let id = |block: u32| {
        // Beginnings have low numbers, and every other block one of its own.
        if block < shared { begins_as * 64 + block } else { 1_000 + number * 64 + block }
    };
    let ids: Arc<[u32]> = (0..blocks).map(id).collect();
    Arrival {
        at: Duration::try_from_secs_f64(at_ms / 1e3).unwrap_or(Duration::MAX),
        prompt_tokens,
        output_tokens,
        blocks: BlockSource::Shared(ids),
        session: None,
        class: 0,
    }
}

/// The trace at the pace of `load` of the capacity of `profile`; its bursts stay.
pub(super) fn paced(mut trace: Trace, profile: &Profile, load: f64) -> Trace {
    let count = trace.arrivals.len() as f64;
    let mean = |of: fn(&Arrival) -> u32| {
        trace.arrivals.iter().map(|arrival| f64::from(of(arrival))).sum::<f64>() / count.max(1.0)
    };
    let shape = (mean(|arrival| arrival.prompt_tokens), mean(|arrival| arrival.output_tokens));
    let wanted_s = count * service_ms(profile, shape) / load / 1e3;
    let factor = wanted_s / trace.span().as_secs_f64().max(1e-9);
    for arrival in &mut trace.arrivals {
        arrival.at = arrival.at.mul_f64(factor);
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_loads_and_prompts_that_share_beginnings() {
        let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
        let trace = varied(&profile, 600, 1);
        assert_eq!(trace.arrivals, varied(&profile, 600, 1).arrivals);
        assert_ne!(trace.arrivals, varied(&profile, 600, 2).arrivals);
        assert!(trace.arrivals.is_sorted_by_key(|arrival| arrival.at));
        let first = |arrival: &Arrival| match &arrival.blocks {
            BlockSource::Shared(ids) => ids.first().copied().unwrap_or(u32::MAX),
            BlockSource::Unique(_) | BlockSource::Parts(_) => u32::MAX,
        };
        let shared = trace.arrivals.iter().filter(|arrival| first(arrival) < 1_000).count();
        assert!((30..200).contains(&shared), "{shared}");
    }

    #[test]
    fn a_slower_card_is_asked_for_less() {
        let profile = |gpu| Profile::named(gpu, "llama-3.1-8b").unwrap();
        let shape = (1_000.0, 200.0);
        assert!(service_ms(&profile("L4"), shape) > 4.0 * service_ms(&profile("H100"), shape));
    }
}
