//! The twin: a small model of an endpoint's engine that is rolled forward with the request added.
//!
//! An engine step costs `θ · [1, streams, KV tokens, prefill tokens, prefill pairs]` (the arithmetic of a
//! transformer step; the weights are learned). Rolling the queue forward gives the sum of those terms over
//! the steps to the first token, and their mean over the steps of the answer, so that both latencies are
//! linear in `θ` and every label teaches it. Since what is rolled forward is the queue and not a fitted
//! plane, it may be asked about loads never seen.

use features::{Column, FeatureRow};

/// Terms of the twin: those of a step, and one for what a request costs outside of steps.
pub(crate) const WIDTH: usize = 6;

/// Terms of the twin for one row.
pub(crate) type Terms = [f32; WIDTH];

/// Prompt tokens that one step takes at most; the default of vLLM.
const STEP_TOKENS: f32 = 2_048.0;
/// Pieces into which an answer is cut.
const PIECES: usize = 4;
/// KV utilization from which the capacity is read off.
const READABLE: f32 = 0.2;

/// Terms of the TTFT: what is ahead and the own prompt, in steps of [`STEP_TOKENS`], after the rest of the
/// running step and the wait for KV blocks.
pub(crate) fn ttft(row: &FeatureRow) -> Terms {
    let get = |column| row.get(column);
    let tokens = get(Column::AheadTokens) + get(Column::Uncached);
    let pairs = get(Column::AheadPairs) + get(Column::UncachedPairs);
    let streams = get(Column::Decoding);
    let step = get(Column::Step);
    let rest =
        if step > 0.0 { (1.0 - get(Column::SinceToken) / step).clamp(0.0, 1.0) } else { 0.0 };
    let life = get(Column::Remaining) / streams.max(1.0);
    let held = get(Column::DecodeTokens).max(1.0);
    let wait = if streams > 0.0 { get(Column::KvExcess) / held * life } else { 0.0 };
    let prefill = (tokens / STEP_TOKENS).max(1.0);
    let steps = prefill + rest + wait;
    // Those ahead begin to decode one after another.
    let decoding = steps * streams + prefill * get(Column::AheadRequests) / 2.0;
    let kv = steps * get(Column::DecodeTokens) + prefill * get(Column::AheadContext) / 2.0;
    [steps, decoding, kv / 1e3, tokens / 1e3, pairs, 1.0]
}

/// An endpoint between two pieces of the answer.
struct State {
    streams: f32,
    kv: f32,
    queued: f32,
    /// Tokens that a stream still gives, on average.
    life: f32,
}

/// What arrives while the answer runs.
struct Arriving {
    tokens_per_ms: f32,
    context: f32,
    output: f32,
    pairs_per_token: f32,
    /// KV tokens that fit.
    capacity: f32,
    /// Streams that run at once.
    slots: f32,
}

/// Terms of the mean step while the answer of `row` runs; `step_ms` tells what a step of given terms
/// takes.
pub(crate) fn itl(row: &FeatureRow, step_ms: impl Fn(&Terms) -> f32) -> Terms {
    let get = |column| row.get(column);
    let output = get(Column::Output).max(2.0);
    let streams = get(Column::Decoding);
    let per_ms = get(Column::ArrivingRequests) / 1e3;
    let tokens_per_ms = get(Column::ArrivingTokens) / 1e3;
    let uncached = get(Column::Uncached).max(1.0);
    let used = get(Column::KvUtilization);
    let readable = used > READABLE;
    // An engine with a queue of its own runs as many as it can.
    let is_full = get(Column::Waiting) >= 1.0;
    let arriving = Arriving {
        tokens_per_ms,
        context: if per_ms > 0.0 { tokens_per_ms / per_ms } else { get(Column::Prompt) }.max(1.0),
        output,
        pairs_per_token: get(Column::UncachedPairs) / uncached,
        capacity: if readable { get(Column::DecodeTokens) / used } else { f32::INFINITY },
        slots: if is_full { get(Column::Running).max(streams) + 1.0 } else { f32::INFINITY },
    };
    let mut state = State {
        streams: streams + 1.0,
        kv: get(Column::DecodeTokens) + get(Column::Prompt),
        queued: get(Column::AheadTokens),
        life: if streams > 0.0 { get(Column::Remaining) / streams } else { output }.max(1.0),
    };
    let mut mean = [0.0; WIDTH];
    for _ in 0..PIECES {
        let terms = state.advance(&arriving, output / PIECES as f32, &step_ms);
        for (mean, term) in mean.iter_mut().zip(terms) {
            *mean += term / PIECES as f32;
        }
    }
    mean
}

impl State {
    /// Runs `steps` steps; the terms of their mean.
    fn advance(&mut self, a: &Arriving, steps: f32, step_ms: impl Fn(&Terms) -> f32) -> Terms {
        let per_stream = self.kv / self.streams;
        // What fits: free blocks, and those of streams that end.
        let freed = self.streams / self.life * per_stream;
        let ending = self.streams / self.life * a.context;
        let room = ((a.capacity - self.kv).max(0.0) / steps + freed)
            .min((a.slots - self.streams).max(0.0) * a.context / steps + ending);
        let terms = |prefill: f32| {
            let pairs = prefill * a.pairs_per_token;
            [1.0, self.streams, self.kv / 1e3, prefill / 1e3, pairs, 0.0]
        };
        let mut prefill = 0.0;
        let mut took = step_ms(&terms(prefill)).max(0.1);
        for _ in 0..2 {
            let wanted = self.queued / steps + a.tokens_per_ms * took;
            prefill = wanted.min(STEP_TOKENS).min(room);
            took = step_ms(&terms(prefill)).max(0.1);
        }
        let terms = terms(prefill);
        let admitted = prefill * steps / a.context;
        // A share of 1 − e^−x ends; x / (1 + x) is close and cheap.
        let rate = steps / self.life;
        let ended = (self.streams - 1.0).max(0.0) * rate / (1.0 + rate);
        let stay = (self.streams - ended).max(1.0);
        self.queued = (self.queued + (a.tokens_per_ms * took - prefill) * steps).max(0.0);
        let kv = self.kv + admitted * a.context + self.streams * steps - ended * per_stream;
        self.kv = kv.clamp(1.0, a.capacity.max(1.0));
        self.streams = stay + admitted;
        self.life = ((self.life * stay + a.output * admitted) / self.streams).max(1.0);
        terms
    }
}

#[cfg(test)]
mod tests {
    use features::WIDTH as COLUMNS;

    use super::*;

    /// Ten milliseconds a step, a tenth more per stream, and ten for a thousand prompt tokens.
    fn step_ms(terms: &Terms) -> f32 {
        10.0 * terms[0] + 0.1 * terms[1] + 10.0 * terms[3]
    }

    fn busy() -> FeatureRow {
        FeatureRow::from([0.0; COLUMNS])
            .with(Column::Decoding, 20.0)
            .with(Column::DecodeTokens, 20_000.0)
            .with(Column::Remaining, 4_000.0)
            .with(Column::Output, 200.0)
            .with(Column::Prompt, 1_000.0)
            .with(Column::Uncached, 1_000.0)
            .with(Column::KvUtilization, 0.5)
    }

    #[test]
    fn what_arrives_slows_the_answer_and_what_ends_speeds_it_up() {
        let alone = itl(&busy(), step_ms);
        assert!(alone[1] < 21.0, "streams end: {alone:?}");
        let arriving =
            busy().with(Column::ArrivingRequests, 20.0).with(Column::ArrivingTokens, 20_000.0);
        let crowded = itl(&arriving, step_ms);
        assert!(crowded[1] > alone[1] && crowded[3] > alone[3], "{crowded:?}");
    }

    #[test]
    fn a_full_cache_bounds_the_streams_however_many_arrive() {
        let flood = busy()
            .with(Column::KvUtilization, 1.0)
            .with(Column::ArrivingRequests, 1e4)
            .with(Column::ArrivingTokens, 1e7);
        let terms = itl(&flood, step_ms);
        assert!(terms.iter().all(|term| term.is_finite()));
        assert!(terms[1] < 60.0 && terms[2] <= 21.0 && terms[3] <= 2.1, "{terms:?}");
    }

    #[test]
    fn a_queue_is_worked_off_step_by_step() {
        let near = ttft(&busy());
        let far = ttft(&busy().with(Column::AheadTokens, 20_480.0));
        assert!((near[0] - 1.0).abs() < 1e-3 || near[0] < 2.0);
        assert!(far[0] - near[0] > 9.0, "{near:?} {far:?}");
    }
}
