//! Time as every room sees it: nanoseconds since some start, from a clock that is passed in.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// An instant: nanoseconds since the start of the clock that gave it. Monotonic.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `secs` seconds after the start; what is not positive is the start.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9) as u64)
    }

    /// Nanoseconds since the start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds passed since `earlier`; zero if `earlier` is later.
    pub fn ms_since(self, earlier: Self) -> f32 {
        (self.0.saturating_sub(earlier.0) as f64 / 1e6) as f32
    }

    /// This instant moved by `span`.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where instants come from.
///
/// Two calls never go backwards. Calls are cheap and never block.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// The present instant.
    fn now(&self) -> Time;
}

/// The monotonic clock of the operating system, starting when it is made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the real clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is moved: for tests and virtual time.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves the clock to `time`; moving it back has no effect.
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_into_the_future_is_zero() {
        let early = Time::from_nanos(1_000_000);
        assert_eq!(Time::ZERO.ms_since(early).to_bits(), 0.0_f32.to_bits());
        assert_eq!(early.ms_since(Time::ZERO).to_bits(), 1.0_f32.to_bits());
    }

    #[test]
    fn a_manual_clock_never_goes_back() {
        let clock = ManualClock::default();
        clock.advance_to(Time::from_nanos(5));
        clock.advance_to(Time::from_nanos(3));
        assert_eq!(clock.now(), Time::from_nanos(5));
    }
}
