//! What may be learned: latencies that a request can have had, of rows that are numbers, from a clock that
//! went forwards.
//!
//! A label that is wrong is worse than none, since it moves a model, a correction and the promised quantiles
//! for hundreds of requests. Only what cannot be is refused: a slow answer is news.

use features::{Column, FeatureRow};
use types::Time;

use crate::ticket::Outcome;

/// Longest latency that a request is believed to have had: nobody waits an hour for a token.
const MOST_MS: f32 = 3_600_000.0;
/// Most output tokens that an answer is believed to have.
const MOST_TOKENS: u32 = 10_000_000;
/// By how much a latency may be longer than the time that has passed, for rounding: a share, and
/// milliseconds.
const ROUNDED: (f32, f32) = (1.01, 1.0);

/// Why nothing is learned from an outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsound {
    /// A feature of the row is no number, or is a time that is negative.
    #[error("a feature of the row is not a number, or a negative time")]
    Row,
    /// A latency is no number.
    #[error("a latency is not a number")]
    NotFinite,
    /// A latency is zero or negative.
    #[error("a latency is not above zero")]
    NotPositive,
    /// A latency or a number of tokens is beyond anything that happens.
    #[error("a latency or a number of tokens is beyond anything that happens")]
    Absurd,
    /// The clock has gone back since the decision.
    #[error("the clock has gone back since the decision")]
    ClockBack,
    /// It took longer than the time since the decision: a clock has jumped.
    #[error("a latency is longer than the time since the decision")]
    Future,
}

impl Unsound {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Row,
        Self::NotFinite,
        Self::NotPositive,
        Self::Absurd,
        Self::ClockBack,
        Self::Future,
    ];

    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::NotFinite => "not-finite",
            Self::NotPositive => "not-positive",
            Self::Absurd => "absurd",
            Self::ClockBack => "clock-back",
            Self::Future => "future",
        }
    }
}

impl Outcome {
    /// Whether it may be learned at `now` as what came of `row`, which was decided at `decided_at`. Nothing
    /// of an outcome is learned that is wrong anywhere.
    pub fn check(&self, row: &FeatureRow, decided_at: Time, now: Time) -> Result<(), Unsound> {
        self.check_values(row)?;
        if now < decided_at {
            return Err(Unsound::ClockBack);
        }
        let passed_ms = now.ms_since(decided_at) * ROUNDED.0 + ROUNDED.1;
        let gaps = self.output_tokens.unwrap_or(2).saturating_sub(1).max(1) as f32;
        let decode_ms = self.itl_ms.map(|ms| ms * gaps);
        let wholes = [self.ttft_ms, decode_ms, self.itl_so_far, self.e2e.map(|whole| whole.ms)];
        let is_early = wholes.into_iter().flatten().any(|ms| ms > passed_ms);
        if is_early { Err(Unsound::Future) } else { Ok(()) }
    }

    /// The part of [`Outcome::check`] that needs no clock.
    pub(crate) fn check_values(&self, row: &FeatureRow) -> Result<(), Unsound> {
        if !is_sound(row) {
            return Err(Unsound::Row);
        }
        let latencies =
            [self.ttft_ms, self.itl_ms, self.itl_so_far, self.e2e.map(|whole| whole.ms)];
        latencies.into_iter().flatten().try_for_each(check_latency)?;
        let tokens = [self.output_tokens, self.e2e.map(|whole| whole.output_tokens)];
        let is_absurd = tokens.into_iter().flatten().any(|tokens| tokens > MOST_TOKENS);
        if is_absurd { Err(Unsound::Absurd) } else { Ok(()) }
    }
}

/// Whether models may be asked about `row`.
pub(crate) fn is_sound(row: &FeatureRow) -> bool {
    row.as_slice().iter().all(|value| value.is_finite()) && row.get(Column::Step) >= 0.0
}

/// Whether `ms` is a latency that happens.
pub(crate) fn check_latency(ms: f32) -> Result<(), Unsound> {
    if !ms.is_finite() {
        Err(Unsound::NotFinite)
    } else if ms <= 0.0 {
        Err(Unsound::NotPositive)
    } else if ms > MOST_MS {
        Err(Unsound::Absurd)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use features::WIDTH;

    use super::*;
    use crate::ticket::Whole;

    const ROW: [f32; WIDTH] = [1.0; WIDTH];

    fn check(outcome: Outcome, decided_ms: u64, now_ms: u64) -> Result<(), Unsound> {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        outcome.check(&ROW.into(), at(decided_ms), at(now_ms))
    }

    fn ttft(ms: f32) -> Outcome {
        Outcome { ttft_ms: Some(ms), ..Outcome::default() }
    }

    #[test]
    fn what_can_have_happened_is_sound() {
        for outcome in [
            Outcome::default(),
            ttft(0.01),
            ttft(200.4),
            Outcome { itl_ms: Some(20.0), output_tokens: Some(11), ..Outcome::default() },
            Outcome {
                e2e: Some(Whole { ms: 200.0, output_tokens: 40 }),
                output_tokens: Some(40),
                ..Outcome::default()
            },
        ] {
            assert_eq!(check(outcome, 1_000, 1_200), Ok(()), "{outcome:?}");
        }
        assert_eq!(check(ttft(3_500_000.0), 0, 3_500_000), Ok(()), "slow is no fault");
    }

    #[test]
    fn each_fault_has_its_reason() {
        for (outcome, now, reason) in [
            (ttft(f32::NAN), 1_200, Unsound::NotFinite),
            (ttft(f32::INFINITY), 1_200, Unsound::NotFinite),
            (ttft(0.0), 1_200, Unsound::NotPositive),
            (ttft(-5.0), 1_200, Unsound::NotPositive),
            (ttft(1e12), u64::MAX / 1_000_000, Unsound::Absurd),
            (ttft(10.0), 900, Unsound::ClockBack),
            (ttft(500.0), 1_200, Unsound::Future),
            (
                Outcome { itl_ms: Some(30.0), output_tokens: Some(11), ..Outcome::default() },
                1_200,
                Unsound::Future,
            ),
            (
                Outcome { output_tokens: Some(u32::MAX), ..Outcome::default() },
                1_200,
                Unsound::Absurd,
            ),
        ] {
            assert_eq!(check(outcome, 1_000, now), Err(reason), "{outcome:?} at {now}");
        }
        let mut row = ROW;
        row[3] = f32::NAN;
        let checked = ttft(10.0).check(&row.into(), Time::ZERO, Time::from_secs_f64(1.0));
        assert_eq!(checked, Err(Unsound::Row));
    }
}
