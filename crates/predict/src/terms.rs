//! The physical terms that the linear models weigh: products that the engine's arithmetic suggests.
//!
//! Source of the forms: an engine step costs a constant, a share per sequence and per KV token, and a
//! share per prefill token and attention pair; a prompt waits for the prefills ahead of it, then for
//! its own. The weights are learned; nothing here knows an accelerator.

use features::{Column, FeatureRow};

/// Terms of the TTFT model.
pub(crate) const TTFT_WIDTH: usize = 16;
/// Terms of the ITL model.
pub(crate) const ITL_WIDTH: usize = 7;
/// Highest share of an endpoint's time that arriving prefills are taken to use.
const MAX_PREFILL_SHARE: f32 = 0.8;

/// What is predicted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Target {
    /// Time to first token.
    Ttft,
    /// Mean time between tokens.
    Itl,
}

impl Target {
    /// Number of terms of its linear models.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Ttft => TTFT_WIDTH,
            Self::Itl => ITL_WIDTH,
        }
    }

    /// The terms of a row; as many as [`Target::width`] says.
    pub(crate) fn terms(self, row: &FeatureRow) -> Terms {
        let mut terms = Terms { values: [0.0; TTFT_WIDTH], width: self.width() };
        match self {
            Self::Ttft => terms.values = ttft(row),
            Self::Itl => terms.values[..ITL_WIDTH].copy_from_slice(&itl(row)),
        }
        terms
    }

    /// The word used in metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Itl => "itl",
        }
    }
}

/// The terms of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    values: [f32; TTFT_WIDTH],
    width: usize,
}

impl std::ops::DerefMut for Terms {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.width]
    }
}

impl std::ops::Deref for Terms {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[..self.width]
    }
}

/// `[1, step, own uncached, own pairs, ahead tokens, ahead pairs, requests ahead, streams, KV tokens,
/// wait for KV blocks, prefill share · step, rest of the running step, whether one runs, tokens beyond 64,
/// 256 and 1,024]`; tokens in thousands, times in milliseconds. That a step runs costs time also where
/// nobody has told how long steps are.
pub(crate) fn ttft(row: &FeatureRow) -> [f32; TTFT_WIDTH] {
    let get = |column| row.get(column);
    let step = get(Column::Step);
    let [hinge_0, hinge_1, hinge_2] = hinges(get(Column::Uncached) + get(Column::AheadTokens));
    [
        1.0,
        step,
        get(Column::Uncached) / 1e3,
        get(Column::UncachedPairs),
        get(Column::AheadTokens) / 1e3,
        get(Column::AheadPairs),
        get(Column::AheadRequests),
        get(Column::Decoding),
        get(Column::DecodeTokens) / 1e3,
        kv_wait_ms(row),
        prefill_odds(row) * step,
        (step - get(Column::SinceToken)).clamp(0.0, step),
        f32::from(u8::from(get(Column::Decoding) > 0.0)),
        hinge_0,
        hinge_1,
        hinge_2,
    ]
}

/// `[1, streams, KV tokens, o, o · streams, o · KV tokens, step]` with `o` the odds of the share of time
/// that arriving prefills take: a decode step of `t` ms becomes `t / (1 − share) = t · (1 + o)`.
pub(crate) fn itl(row: &FeatureRow) -> [f32; ITL_WIDTH] {
    let get = |column| row.get(column);
    let (joining, share) = joining(row);
    let streams = get(Column::Decoding) + joining + 1.0;
    let context = share * get(Column::AheadContext);
    let kv = (get(Column::DecodeTokens) + context + get(Column::Prompt)) / 1e3;
    let odds = prefill_odds(row);
    [1.0, streams, kv, odds, odds * streams, odds * kv, get(Column::Step)]
}

/// Requests ahead that will run beside this one, and their share of those ahead. Where the engine tells
/// of a queue of its own it is full, and no more run than do now.
pub(crate) fn joining(row: &FeatureRow) -> (f32, f32) {
    let ahead = row.get(Column::AheadRequests);
    if row.get(Column::Waiting) < 1.0 || ahead <= 0.0 {
        return (ahead, 1.0);
    }
    let room = (row.get(Column::Running) - row.get(Column::Decoding)).clamp(0.0, ahead);
    (room, room / ahead)
}

/// The terms of the ITL model for the streams that are there already, without this request; `with` are
/// those of the row.
pub(crate) fn itl_without(with: &Terms, row: &FeatureRow) -> Terms {
    let mut terms = *with;
    let kv = row.get(Column::Prompt) / 1e3;
    terms[1] -= 1.0;
    terms[2] -= kv;
    terms[4] -= terms[3];
    terms[5] -= terms[3] * kv;
    terms
}

/// The terms of the TTFT model for a request like this one with nothing of its own to prefill; `with` are
/// those of the row.
pub(crate) fn without_own(with: &Terms, row: &FeatureRow) -> Terms {
    let mut terms = *with;
    terms[2..4].fill(0.0);
    terms[13..].copy_from_slice(&hinges(row.get(Column::AheadTokens)));
    terms
}

/// The same, with nothing ahead of it either.
pub(crate) fn without_any(with: &Terms) -> Terms {
    let mut terms = *with;
    terms[2..6].fill(0.0);
    terms[13..].fill(0.0);
    terms
}

/// Terms of the overload model.
pub(crate) const DRAIN_WIDTH: usize = 6;

/// `[step, backlog over drain rate, oldest wait, wait for KV blocks, own uncached, 1]`, times in
/// milliseconds: while a queue grows, labels come one TTFT late, but the rate at which prompts are worked
/// off and the age of those that still wait are known now.
pub(crate) fn drain(row: &FeatureRow) -> [f32; DRAIN_WIDTH] {
    let get = |column| row.get(column);
    let backlog = get(Column::AheadTokens) + get(Column::Uncached);
    [
        get(Column::Step),
        backlog * get(Column::PrefillPerToken) / 1e3,
        get(Column::OldestWait),
        kv_wait_ms(row),
        get(Column::Uncached) / 1e3,
        1.0,
    ]
}

/// Of the `tokens` that the steps up to a first token prefill, those beyond each knee, in thousands: a
/// step costs its weights up to some number of tokens and its arithmetic beyond.
fn hinges(tokens: f32) -> [f32; 3] {
    [64.0, 256.0, 1_024.0].map(|knee| (tokens - knee).max(0.0) / 1e3)
}

/// Time until running streams have freed the KV tokens that are missing: the excess, over the tokens
/// held, times the mean time a stream still runs.
fn kv_wait_ms(row: &FeatureRow) -> f32 {
    let held = row.get(Column::DecodeTokens);
    let streams = row.get(Column::Decoding);
    if held <= 0.0 || streams <= 0.0 {
        return 0.0;
    }
    let mean_rest_ms = row.get(Column::Remaining) / streams * row.get(Column::Step);
    row.get(Column::KvExcess) / held * mean_rest_ms
}

/// Odds `s / (1 − s)` of the share of time `s` that arriving prefills take.
fn prefill_odds(row: &FeatureRow) -> f32 {
    let ms_per_second = row.get(Column::ArrivingTokens) * row.get(Column::PrefillPerToken) / 1e3;
    let share = (ms_per_second / 1e3).clamp(0.0, MAX_PREFILL_SHARE);
    share / (1.0 - share)
}

#[cfg(test)]
mod tests {
    use features::WIDTH;

    use super::*;

    #[test]
    fn without_this_request_its_stream_and_tokens_are_gone() {
        let row = FeatureRow::from([1.0; WIDTH])
            .with(Column::Prompt, 2_000.0)
            .with(Column::Decoding, 4.0)
            .with(Column::AheadRequests, 0.0)
            .with(Column::DecodeTokens, 10_000.0)
            .with(Column::AheadContext, 0.0);
        let with = Target::Itl.terms(&row);
        let without = itl_without(&with, &row);
        assert!((with[1] - without[1] - 1.0).abs() < 1e-6);
        assert!((with[2] - without[2] - 2.0).abs() < 1e-6);
    }

    #[test]
    fn what_a_request_adds_is_what_its_row_says_of_it() {
        let values: [f32; WIDTH] = std::array::from_fn(|at| 300.0 + 41.0 * at as f32);
        let row = FeatureRow::from(values);
        let with = Target::Ttft.terms(&row);
        let own = row.with(Column::Uncached, 0.0).with(Column::UncachedPairs, 0.0);
        let any = own.with(Column::AheadTokens, 0.0).with(Column::AheadPairs, 0.0);
        assert_eq!(*without_own(&with, &row), ttft(&own));
        assert_eq!(*without_any(&with), ttft(&any));
    }

    #[test]
    fn an_idle_endpoint_has_no_wait_for_blocks() {
        let row = FeatureRow::from([0.0; WIDTH]).with(Column::KvExcess, 1e6);
        assert!(kv_wait_ms(&row).abs() < f32::EPSILON);
    }
}
