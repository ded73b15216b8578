//! Counters of a replay, readable while it runs.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use types::Time;

use crate::report::RequestResult;

/// Seconds that recent figures cover.
const RECENT_SECS: u64 = 10;
/// Endpoints counted by name.
const MAX_ENDPOINTS: usize = 4_096;

/// How far a replay is.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    sent: AtomicU64,
    done: AtomicU64,
    met: AtomicU64,
    failed: AtomicU64,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    start: Time,
    seconds: VecDeque<Second>,
    endpoints: BTreeMap<Arc<str>, u64>,
}

/// What ended in one second of the clock.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    done: u64,
    met: u64,
}

/// What ended in the last ten seconds of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    /// Requests that ended, per second.
    pub done_per_s: f64,
    /// Those of them that met their objective, per second.
    pub met_per_s: f64,
}

impl Progress {
    /// Requests that will be sent in all; zero before the replay begins.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Requests sent.
    pub fn sent_count(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Requests that ended, in whichever way.
    pub fn done_count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Requests that met their objective.
    pub fn met_count(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// Requests that failed.
    pub fn failed_count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Requests sent and not yet ended.
    pub fn in_flight(&self) -> u64 {
        self.sent_count().saturating_sub(self.done_count())
    }

    /// Requests that ended per endpoint that served them.
    pub fn endpoints(&self) -> BTreeMap<Arc<str>, u64> {
        self.window.lock().endpoints.clone()
    }

    /// Rates over the ten seconds before `now`, an instant of the clock that the replay runs by.
    pub fn recent(&self, now: Time) -> Recent {
        let window = self.window.lock();
        let age = now.since(window.start);
        let covered = age.clamp(Duration::from_secs(1), Duration::from_secs(RECENT_SECS));
        let from = second_of(now).saturating_sub(RECENT_SECS - 1);
        let seconds = || window.seconds.iter().filter(|second| second.number >= from);
        let per_s = |count: u64| count as f64 / covered.as_secs_f64();
        Recent {
            done_per_s: per_s(seconds().map(|second| second.done).sum()),
            met_per_s: per_s(seconds().map(|second| second.met).sum()),
        }
    }

    pub(super) fn begin(&self, total: u64, now: Time) {
        self.total.store(total, Ordering::Relaxed);
        self.window.lock().start = now;
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done(&self, result: &RequestResult, met: bool, now: Time) {
        let met = u64::from(met);
        self.met.fetch_add(met, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(result.failure.is_some()), Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
        let mut window = self.window.lock();
        if let Some(endpoint) = &result.endpoint {
            if let Some(count) = window.endpoints.get_mut(endpoint) {
                *count += 1;
            } else if window.endpoints.len() < MAX_ENDPOINTS {
                window.endpoints.insert(Arc::clone(endpoint), 1);
            }
        }
        let number = second_of(now);
        match window.seconds.back_mut() {
            // Tasks of one instant may report out of order.
            Some(last) if last.number >= number => {
                last.done += 1;
                last.met += met;
            }
            _ => window.seconds.push_back(Second { number, done: 1, met }),
        }
        while window.seconds.len() > RECENT_SECS as usize {
            window.seconds.pop_front();
        }
    }
}

fn second_of(time: Time) -> u64 {
    time.nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_rates_forget_what_is_older_than_ten_seconds() {
        let progress = Progress::default();
        progress.begin(100, Time::from_secs_f64(100.0));
        let result = RequestResult { endpoint: Some("a".into()), ..RequestResult::default() };
        for second in 0..20 {
            let now = Time::from_secs_f64(100.0 + f64::from(second));
            progress.done(&result, second % 2 == 0, now);
            progress.done(&result, false, now);
        }
        let recent = progress.recent(Time::from_secs_f64(119.5));
        assert_eq!(recent, Recent { done_per_s: 2.0, met_per_s: 0.5 });
        assert_eq!(progress.recent(Time::from_secs_f64(140.0)), Recent::default());
        assert_eq!((progress.done_count(), progress.met_count()), (40, 10));
        assert_eq!(progress.endpoints()["a"], 40);
    }

    #[test]
    fn the_first_seconds_are_not_averaged_over_ten() {
        let progress = Progress::default();
        progress.begin(100, Time::ZERO);
        for _ in 0..6 {
            progress.done(&RequestResult::default(), true, Time::from_secs_f64(1.0));
        }
        assert!((progress.recent(Time::from_secs_f64(2.0)).done_per_s - 3.0).abs() < 1e-9);
    }
}
