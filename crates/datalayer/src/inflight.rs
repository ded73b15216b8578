//! What we ourselves have in flight on an endpoint: exact at the instant of dispatch and of every
//! token, where a scrape is always late.
//!
//! A [`Stream`] is one request from dispatch to end; dropping it takes it out of the account, so that
//! nothing leaks whatever becomes of the request.

use std::{sync::Arc, time::Duration};

use types::Time;

use crate::{
    EndpointState,
    budget::Budgets,
    demand::{Demand, SPREAD, Tail},
};

/// Time constant of the decayed arrival rate, in milliseconds.
const RATE_TAU_MS: f32 = 8_000.0;
/// Weight of the newest step in the moving average of step times.
const STEP_ALPHA: f32 = 0.12;
/// Weight of the newest prefill in the moving average of prefill speed.
const PREFILL_ALPHA: f32 = 0.25;
/// Shortest prefill, in uncached tokens, from which prefill speed is read.
const PREFILL_SAMPLE_TOKENS: u32 = 256;

/// Weight of the newest answer in the moving average of tokens per chunk.
const CHUNK_ALPHA: f32 = 0.1;

/// What is in flight on one endpoint, summed, at one instant.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Requests without a first token yet.
    pub prefilling: u32,
    /// Uncached prompt tokens of those, less what has been computed since by dead reckoning.
    pub prefill_tokens: f32,
    /// Attention pairs of those, likewise.
    pub prefill_pairs: f64,
    /// Prompt tokens of those, cached ones too.
    pub prefill_context_tokens: u64,
    /// Requests past their first token.
    pub decoding: u32,
    /// KV tokens that those hold.
    pub decode_tokens: u64,
    /// Output tokens that those are still expected to give.
    pub remaining_tokens: f32,
    /// Longest time that a request has waited for its first token.
    pub oldest_wait_ms: f32,
    /// Recent time between two tokens of a stream; `None` before the first gap.
    pub step_ms: Option<f32>,
    /// Time since any stream gave a token; `None` before the first.
    pub since_token_ms: Option<f32>,
    /// Recent prefill time per uncached token; `None` before the first long enough prefill.
    pub prefill_ms_per_token: Option<f32>,
    /// Uncached prompt tokens that arrive per second, decayed over eight seconds.
    pub arriving_tokens_per_s: f32,
    /// Requests that arrive per second, decayed likewise.
    pub arriving_per_s: f32,
    /// How much room the streams have left under their ITL objectives.
    pub budgets: Budgets,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    demand: Demand,
    dispatched: Time,
    first_token: Option<Time>,
    last_token: Time,
    tokens: u32,
    tail: Option<Tail>,
}

impl Entry {
    /// When its first token was seen, or is to be assumed.
    fn first_token(&self, now: Time) -> Option<Time> {
        let assumed = || {
            let after = self.demand.assumed_ttft_ms?;
            let at = self.dispatched.after(Duration::from_secs_f32(after.max(0.0) / 1e3));
            (at <= now).then_some(at)
        };
        self.first_token.or_else(assumed)
    }

    /// Output tokens given: seen, or for an answer that is not seen, by elapsed time.
    fn given(&self, now: Time, first: Time, step_ms: Option<f32>) -> f32 {
        let step_ms = step_ms.or(self.demand.assumed_itl_ms);
        match step_ms.filter(|_| self.first_token.is_none()) {
            Some(step_ms) => now.ms_since(first) / step_ms.max(0.1),
            None => self.tokens as f32,
        }
    }

    /// Output tokens still expected of an answer that has given so many: the mean over the lengths that
    /// are longer, the longest eighth as a tail; no more than the caller allows.
    fn remaining(&self, given: f32) -> f32 {
        let rest = match self.tail {
            Some(tail) => {
                let rest = tail.rest(given);
                let others = self.demand.output_spread[..SPREAD - 1].iter();
                let longer = others.filter(|length| **length > given);
                let add = |(count, sum): (f32, f32), length| (count + 1.0, sum + length - given);
                let (count, sum) = longer.fold((1.0, rest), add);
                sum / count
            }
            None => (self.demand.output_tokens - given).max(given * UNKNOWN_GROWTH),
        };
        let most = self.demand.max_output_tokens.map_or(f32::INFINITY, |max| max as f32 - given);
        rest.min(most).max(1.0)
    }
}

/// Tokens still expected per token given, of an answer that outlives a mean that is all that is known.
const UNKNOWN_GROWTH: f32 = 0.25;
/// The account of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// First tokens seen last: the head of the queue has been computed since then.
    last_first_token: Option<Time>,
    last_token: Option<Time>,
    step_ms: Option<f32>,
    prefill_ms_per_token: Option<f32>,
    tokens_per_chunk: Option<f32>,
    /// Answers that have begun.
    answers: u32,
    rate: Rate,
    recent: Recent,
    /// Entries without a first token.
    prefilling: u32,
}

/// How long the steps of an endpoint took lately, while it did nothing but decode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSample {
    /// Mean time of a step.
    pub step_ms: f32,
    /// Streams decoding at the end.
    pub streams: f32,
    /// KV tokens that those hold.
    pub kv_tokens: f32,
}

/// Steps seen since the last sample.
#[derive(Debug, Default)]
struct Recent {
    steps: f32,
    ms: f32,
}

/// Steps that make a sample.
const SAMPLE_STEPS: f32 = 12.0;

#[derive(Debug, Default)]
struct Rate {
    at: Time,
    tokens: f32,
    requests: f32,
}

impl Rate {
    fn decayed(&self, now: Time) -> (f32, f32) {
        let keep = (-now.ms_since(self.at) / RATE_TAU_MS).exp();
        (self.tokens * keep, self.requests * keep)
    }

    fn add(&mut self, now: Time, tokens: f32) {
        let (old_tokens, old_requests) = self.decayed(now);
        *self = Self { at: now, tokens: old_tokens + tokens, requests: old_requests + 1.0 };
    }
}

impl InFlight {
    pub(crate) fn requests(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    fn add(&mut self, demand: Demand, now: Time) -> u32 {
        self.rate.add(now, demand.uncached_tokens() as f32);
        self.prefilling += 1;
        let entry = Entry {
            demand,
            dispatched: now,
            first_token: None,
            last_token: now,
            tokens: 0,
            tail: Tail::of(&demand),
        };
        if let Some(key) = self.free.pop() {
            self.entries[key as usize] = Some(entry);
            return key;
        }
        self.entries.push(Some(entry));
        self.entries.len() as u32 - 1
    }

    fn remove(&mut self, key: u32) {
        if let Some(entry) = self.entries.get_mut(key as usize).and_then(Option::take) {
            self.free.push(key);
            self.prefilling -= u32::from(entry.first_token.is_none());
        }
        if self.free.len() == self.entries.len() {
            self.entries.clear();
            self.free.clear();
        }
    }

    fn demand(&self, key: u32) -> Option<Demand> {
        self.entries.get(key as usize).copied().flatten().map(|entry| entry.demand)
    }

    fn tokens(&mut self, key: u32, count: u32, now: Time) -> Option<StepSample> {
        let entry = self.entries.get_mut(key as usize)?.as_mut()?;
        let gap_ms = now.ms_since(entry.last_token);
        if entry.first_token.is_none() {
            entry.first_token = Some(now);
            let uncached = entry.demand.uncached_tokens();
            self.prefilling -= 1;
            if uncached >= PREFILL_SAMPLE_TOKENS {
                let head_since =
                    self.last_first_token.unwrap_or(entry.dispatched).max(entry.dispatched);
                let sample = now.ms_since(head_since) / uncached as f32;
                blend(&mut self.prefill_ms_per_token, sample, PREFILL_ALPHA);
            }
            self.last_first_token = Some(now);
        } else if count > 0 {
            // Streams of one engine step give their tokens together: one sample a step.
            let per_token = gap_ms / count as f32;
            if self.last_token.is_none_or(|last| now.ms_since(last) > per_token * 0.25) {
                blend(&mut self.step_ms, per_token, STEP_ALPHA);
                let began = entry.last_token;
                let decodes_only =
                    self.prefilling == 0 && self.last_first_token.is_none_or(|at| at <= began);
                if decodes_only {
                    self.recent.steps += count as f32;
                    self.recent.ms += gap_ms;
                }
            }
        }
        entry.last_token = now;
        entry.tokens += count;
        self.last_token = Some(now);
        self.take_sample()
    }

    /// A sample of the steps since the last one, if there were enough.
    fn take_sample(&mut self) -> Option<StepSample> {
        if self.recent.steps < SAMPLE_STEPS {
            return None;
        }
        let Recent { steps, ms } = std::mem::take(&mut self.recent);
        let decoding = self.entries.iter().flatten().filter(|entry| entry.first_token.is_some());
        let (streams, kv_tokens) = decoding.fold((0.0, 0.0), |(streams, kv), entry| {
            (streams + 1.0, kv + (entry.demand.prompt_tokens + entry.tokens) as f32)
        });
        Some(StepSample { step_ms: ms / steps, streams, kv_tokens })
    }

    /// The endpoint told that an answer of `chunks` pieces had `tokens` tokens.
    fn told(&mut self, chunks: u32, tokens: u32) {
        if chunks > 0 && tokens > 0 {
            let sample = tokens as f32 / chunks as f32;
            blend(&mut self.tokens_per_chunk, sample, CHUNK_ALPHA);
        }
    }

    pub(crate) fn load(&self, now: Time) -> Load {
        let (tokens, requests) = self.rate.decayed(now);
        let mut load = Load {
            step_ms: self.step_ms,
            since_token_ms: self.last_token.map(|last| now.ms_since(last)),
            prefill_ms_per_token: self.prefill_ms_per_token,
            arriving_tokens_per_s: tokens / (RATE_TAU_MS / 1e3),
            arriving_per_s: requests / (RATE_TAU_MS / 1e3),
            ..Load::default()
        };
        let mut head = None::<&Entry>;
        for entry in self.entries.iter().flatten() {
            let context = u64::from(entry.demand.prompt_tokens);
            if let Some(first) = entry.first_token(now) {
                let given = entry.given(now, first, self.step_ms);
                let remaining = entry.remaining(given);
                load.decoding += 1;
                load.decode_tokens += context + given as u64;
                load.remaining_tokens += remaining;
                load.budgets.add(&entry.demand, now.ms_since(first), given, remaining);
            } else {
                load.prefilling += 1;
                load.prefill_tokens += entry.demand.uncached_tokens() as f32;
                load.prefill_pairs += entry.demand.prefill_pairs();
                load.prefill_context_tokens += context;
                load.budgets.add(&entry.demand, 0.0, 0.0, entry.demand.output_tokens);
                if head.is_none_or(|head| entry.dispatched < head.dispatched) {
                    head = Some(entry);
                }
            }
        }
        if let Some(head) = head {
            load.oldest_wait_ms = now.ms_since(head.dispatched);
            self.reckon(head, now, &mut load);
        }
        load
    }

    /// Takes off what the head of the queue has had computed since the last first token, at the
    /// speed seen lately, at most all but a hundredth of it.
    fn reckon(&self, head: &Entry, now: Time, load: &mut Load) {
        let Some(ms_per_token) = self.prefill_ms_per_token.filter(|ms| *ms > 0.0) else { return };
        let since = self.last_first_token.unwrap_or(head.dispatched).max(head.dispatched);
        let uncached = head.demand.uncached_tokens() as f32;
        let done = (now.ms_since(since) / ms_per_token).min(uncached * 0.99);
        load.prefill_tokens = (load.prefill_tokens - done).max(0.0);
        load.prefill_pairs -= head.demand.prefill_pairs() * f64::from(done / uncached);
    }
}

fn blend(average: &mut Option<f32>, sample: f32, alpha: f32) {
    *average = Some(average.map_or(sample, |old| old + alpha * (sample - old)));
}

/// One request in flight on one endpoint. Dropping it takes it out of the account.
#[derive(Debug)]
pub struct Stream {
    endpoint: Arc<EndpointState>,
    key: u32,
}

impl Stream {
    /// Counts a request with `demand` as in flight on `endpoint` from `now` on.
    pub fn dispatch(endpoint: Arc<EndpointState>, demand: Demand, now: Time) -> Self {
        let key = endpoint.account(|account| account.add(demand, now));
        Self { endpoint, key }
    }

    /// Where it is in flight.
    pub fn endpoint(&self) -> &Arc<EndpointState> {
        &self.endpoint
    }

    /// Takes it out of the account of its endpoint and counts it on `endpoint`.
    pub fn move_to(&mut self, endpoint: Arc<EndpointState>, now: Time) {
        let Some(demand) = self.endpoint.account(|account| account.demand(self.key)) else {
            return;
        };
        *self = Self::dispatch(endpoint, demand, now);
    }

    /// `count` output tokens were seen at `now`; the first call marks the first token. Gives a sample of
    /// the endpoint's steps whenever enough of them have passed.
    pub fn tokens(&self, count: u32, now: Time) -> Option<StepSample> {
        self.endpoint.account(|account| account.tokens(self.key, count, now))
    }

    /// Its answer has begun; which of the endpoint's answers it is, from 1.
    pub fn answer(&self) -> u32 {
        self.endpoint.account(|account| {
            account.answers = account.answers.saturating_add(1);
            account.answers
        })
    }

    /// The endpoint told that its answer, which came in `chunks` pieces, had `tokens` tokens.
    pub fn told(&self, chunks: u32, tokens: u32) {
        self.endpoint.account(|account| account.told(chunks, tokens));
    }

    /// Tokens that one piece of an answer holds on this endpoint, by its last answers; 1 before them.
    pub fn tokens_per_chunk(&self) -> f32 {
        self.endpoint.account(|account| account.tokens_per_chunk).unwrap_or(1.0)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.endpoint.account(|account| account.remove(self.key));
    }
}

#[cfg(test)]
mod tests {
    use types::{Endpoint, EndpointId};

    use super::*;
    use crate::Pool;

    fn endpoint() -> Arc<EndpointState> {
        let endpoint = Endpoint {
            id: EndpointId::new("default", "a"),
            address: "10.0.0.1:1".parse().unwrap(),
            labels: [].into(),
        };
        Arc::clone(&Pool::new([endpoint]).endpoints()[0])
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn demand(prompt_tokens: u32, cached_tokens: u32) -> Demand {
        Demand { prompt_tokens, cached_tokens, output_tokens: 100.0, ..Demand::default() }
    }

    #[test]
    fn a_request_counts_from_dispatch_to_end() {
        let endpoint = endpoint();
        let stream = Stream::dispatch(Arc::clone(&endpoint), demand(1_000, 600), at(0));
        let waiting = endpoint.load(at(5));
        assert_eq!((waiting.prefilling, waiting.decoding), (1, 0));
        assert!((waiting.prefill_tokens - 400.0).abs() < f32::EPSILON);
        assert!((waiting.oldest_wait_ms - 5.0).abs() < f32::EPSILON);
        stream.tokens(1, at(20));
        stream.tokens(1, at(30));
        let decoding = endpoint.load(at(30));
        assert_eq!((decoding.prefilling, decoding.decoding), (0, 1));
        assert_eq!(decoding.decode_tokens, 1_002);
        assert_eq!(decoding.step_ms, Some(10.0));
        drop(stream);
        assert_eq!(endpoint.in_flight(), 0);
        assert_eq!(endpoint.load(at(40)).decode_tokens, 0);
    }

    #[test]
    fn a_prompt_ahead_shrinks_while_it_is_computed() {
        let endpoint = endpoint();
        let first = Stream::dispatch(Arc::clone(&endpoint), demand(1_000, 0), at(0));
        first.tokens(1, at(100));
        let _second = Stream::dispatch(Arc::clone(&endpoint), demand(1_000, 0), at(100));
        let halfway = endpoint.load(at(150));
        assert!((halfway.prefill_tokens - 500.0).abs() < 1.0, "{}", halfway.prefill_tokens);
        let overdue = endpoint.load(at(900));
        assert!(overdue.prefill_tokens > 0.0);
    }

    #[test]
    fn steps_that_two_streams_share_are_one_sample() {
        let endpoint = endpoint();
        let streams: Vec<_> =
            (0..2).map(|_| Stream::dispatch(Arc::clone(&endpoint), demand(10, 0), at(0))).collect();
        for ms in [10, 20, 30] {
            for stream in &streams {
                stream.tokens(1, at(ms));
            }
        }
        assert_eq!(endpoint.load(at(30)).step_ms, Some(10.0));
    }

    #[test]
    fn an_answer_that_is_not_seen_is_assumed_to_decode_after_its_predicted_ttft() {
        let endpoint = endpoint();
        let demand = Demand { assumed_ttft_ms: Some(50.0), ..demand(100, 0) };
        let _stream = Stream::dispatch(Arc::clone(&endpoint), demand, at(0));
        assert_eq!(endpoint.load(at(49)).prefilling, 1);
        assert_eq!(endpoint.load(at(51)).decoding, 1);
    }

    #[test]
    fn an_answer_that_is_not_seen_gives_tokens_at_the_assumed_speed() {
        let endpoint = endpoint();
        let demand = Demand {
            assumed_ttft_ms: Some(50.0),
            assumed_itl_ms: Some(10.0),
            output_tokens: 40.0,
            ..demand(100, 0)
        };
        let _stream = Stream::dispatch(Arc::clone(&endpoint), demand, at(0));
        let load = endpoint.load(at(250));
        assert_eq!(load.decode_tokens, 120);
        assert!((load.remaining_tokens - 20.0).abs() < 0.1, "{}", load.remaining_tokens);
    }

    fn remaining(demand: Demand, given: u32) -> f32 {
        let endpoint = endpoint();
        let stream = Stream::dispatch(Arc::clone(&endpoint), demand, at(0));
        stream.tokens(given, at(1));
        endpoint.load(at(1)).remaining_tokens
    }

    /// The middles of the eighths of a Pareto distribution of exponent `shape` from 100 on.
    fn pareto(shape: f32) -> Demand {
        let quantile = |at: usize| {
            let above = (15 - 2 * at) as f32 / 16.0;
            100.0 * above.powf(-1.0 / shape)
        };
        Demand { output_spread: std::array::from_fn(quantile), ..demand(10, 0) }
    }

    #[test]
    fn what_a_long_answer_still_gives_grows_with_what_it_has_given() {
        for shape in [2.5_f32, 4.0] {
            for given in [400, 1_000, 5_000] {
                let expected = given as f32 / (shape - 1.0);
                let rest = remaining(pareto(shape), given);
                assert!((rest / expected - 1.0).abs() < 0.05, "{shape} {given}: {rest}");
            }
        }
    }

    #[test]
    fn what_an_answer_still_gives_has_no_cliff_at_the_end_of_the_known_lengths() {
        let demand = pareto(3.0);
        let longest = demand.output_spread[SPREAD - 1] as u32;
        let mut before = remaining(demand, longest - 60);
        for given in longest - 59..longest + 60 {
            let rest = remaining(demand, given);
            assert!(rest > 20.0 && (rest - before).abs() < 10.0, "{given}: {before} {rest}");
            before = rest;
        }
        // At the start it is the mean of the distribution.
        let (fresh, mean) = (remaining(demand, 1), 150.0);
        assert!((fresh / mean - 1.0).abs() < 0.05, "{fresh}");
    }

    #[test]
    fn no_answer_is_expected_to_outgrow_what_its_caller_allows() {
        let bounded = Demand { max_output_tokens: Some(1_200), ..pareto(2.5) };
        assert!((remaining(bounded, 1_000) - 200.0).abs() < 0.1);
        assert!((remaining(bounded, 1_200) - 1.0).abs() < 0.1);
        let by_mean = Demand { max_output_tokens: Some(60), ..demand(10, 0) };
        assert!((remaining(by_mean, 20) - 40.0).abs() < 0.1);
    }

    #[test]
    fn a_request_served_elsewhere_counts_there() {
        let (asked, served) = (endpoint(), endpoint());
        let mut stream = Stream::dispatch(Arc::clone(&asked), demand(10, 0), at(0));
        stream.move_to(Arc::clone(&served), at(1));
        assert_eq!((asked.in_flight(), served.in_flight()), (0, 1));
    }

    #[test]
    fn arrivals_fade() {
        let endpoint = endpoint();
        drop(Stream::dispatch(Arc::clone(&endpoint), demand(8_000, 0), at(0)));
        assert!((endpoint.load(at(0)).arriving_tokens_per_s - 1_000.0).abs() < 1.0);
        assert!(endpoint.load(at(60_000)).arriving_tokens_per_s < 1.0);
    }
}
