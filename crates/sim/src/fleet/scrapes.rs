//! What the router knows of each engine's gauges: their values at the last reading that has arrived.
//!
//! Engines are read at every multiple of the interval, from the start, after the steps that end at that
//! instant and before the arrivals. No event is spent on it: gauges change with steps only, so a reading
//! is taken when a step is about to change them, and handed to the router when it decides.

use std::{collections::VecDeque, time::Duration};

use crate::engine::{Engine, Gauges};

/// Equal readings at neighbouring instants.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Numbers of the first and the last of those instants.
    instants: (u64, u64),
    gauges: Gauges,
}

/// The readings of one engine.
#[derive(Clone, Debug)]
struct Readings {
    /// Those that have not been followed by newer ones at the router, in order.
    past: VecDeque<Span>,
    /// Number of the first instant at which the gauges are what they are now; `None` while it is down.
    since: Option<u64>,
    /// Nanoseconds at that instant: a step after it changes what is read there.
    due: u64,
    /// Number of the instant whose reading was handed out last, and the preemptions it told.
    told: Option<(u64, u64)>,
}

/// What is read of one engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Nanoseconds of the instant.
    pub(super) at: u64,
    /// The gauges then.
    pub(super) gauges: Gauges,
}

/// The readings of a fleet.
#[derive(Debug)]
pub(super) struct Scrapes {
    every: u64,
    delay: u64,
    engines: Vec<Readings>,
}

impl Scrapes {
    /// Readings every `every` (at least a microsecond) that arrive `delay` later; of no engine yet.
    pub(super) fn new(engines: usize, every: Duration, delay: Duration) -> Self {
        const SHORTEST: u64 = 1_000;
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let down = Readings { past: VecDeque::new(), since: None, due: u64::MAX, told: None };
        Self {
            every: nanos(every).max(SHORTEST),
            delay: nanos(delay),
            engines: vec![down; engines],
        }
    }

    /// The engine is there from `now` on.
    pub(super) fn up(&mut self, at: usize, now: u64) {
        let since = now.div_ceil(self.every);
        self.engines[at].since = Some(since);
        self.engines[at].due = since.saturating_mul(self.every);
    }

    /// Its page cannot be read from `now` on.
    pub(super) fn down(&mut self, at: usize, engine: &Engine, now: u64) {
        self.changes(at, engine, now);
        self.engines[at].since = None;
        self.engines[at].due = u64::MAX;
    }

    /// The gauges of `engine` are about to change at `now`.
    pub(super) fn changes(&mut self, at: usize, engine: &Engine, now: u64) {
        if now <= self.engines[at].due {
            return;
        }
        // Nobody will ask for what has been followed by a newer reading already.
        let arrived = self.instant(now - 1);
        let readings = &mut self.engines[at];
        let Some(since) = readings.since else { return };
        let last = (now - 1) / self.every;
        readings.past.push_back(Span { instants: (since, last), gauges: engine.gauges() });
        readings.since = Some(last + 1);
        readings.due = (last + 1).saturating_mul(self.every);
        if let Some(arrived) = arrived {
            readings.forget(arrived);
        }
    }

    /// The newest reading that has arrived by `now` (by the instant before it, if not `inclusive`), if it
    /// has not been handed out.
    pub(super) fn newest(
        &mut self,
        at: usize,
        engine: &Engine,
        now: u64,
        inclusive: bool,
    ) -> Option<Reading> {
        let arrived = self.instant(if inclusive { now } else { now.checked_sub(1)? })?;
        let readings = &mut self.engines[at];
        if readings.told.is_some_and(|(told, _)| told == arrived) {
            return None;
        }
        let (instant, gauges) = readings.at(arrived, engine)?;
        if readings.told.is_some_and(|(told, _)| told == instant) {
            return None;
        }
        readings.told = Some((instant, gauges.counts.preemptions));
        Some(Reading { at: instant * self.every, gauges })
    }

    /// Whether the router may not know how much `engine` has preempted.
    pub(super) fn hides_preemptions(&self, at: usize, engine: &Engine) -> bool {
        self.engines[at].told.is_none_or(|(_, told)| told != engine.counts().preemptions)
    }

    /// Number of the newest instant whose readings have arrived by `now`.
    pub(super) fn instant(&self, now: u64) -> Option<u64> {
        Some(now.checked_sub(self.delay)? / self.every)
    }
}

impl Readings {
    /// Drops what is older than the reading at `instant`.
    fn forget(&mut self, instant: u64) {
        while self.past.get(1).is_some_and(|next| next.instants.0 <= instant) {
            self.past.pop_front();
        }
    }

    /// The newest reading at or before `instant`, and when it was.
    fn at(&mut self, instant: u64, engine: &Engine) -> Option<(u64, Gauges)> {
        if self.since.is_some_and(|since| since <= instant) {
            self.past.clear();
            return Some((instant, engine.gauges()));
        }
        self.forget(instant);
        let span = self.past.front().filter(|span| span.instants.0 <= instant)?;
        Some((instant.min(span.instants.1), span.gauges))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::Time;

    use super::*;
    use crate::{
        engine::{Options, Submit},
        profile::Profile,
    };

    /// The reading at every instant up to `last`, taken when it is due.
    fn plainly(every: u64, last: u64, steps: &[(u64, Gauges)]) -> Vec<(u64, Gauges)> {
        let mut readings = Vec::new();
        for at in (0..=last / every).map(|number| number * every) {
            let gauges = steps.iter().rev().find(|(step, _)| *step <= at).unwrap().1;
            readings.push((at, gauges));
        }
        readings
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn readings_are_those_of_a_scrape_at_every_instant(
            (every_ms, delay_ms) in (1_u64..80, 0_u64..200),
            submits in proptest::collection::vec((0_u64..400, 1_u32..3_000), 1..8),
            mut asks in proptest::collection::vec((0_u64..900_000_000, any::<bool>()), 0..20),
        ) {
            let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
            let mut engine = Engine::new(profile.clone(), Options::new(&profile));
            let ms = Duration::from_millis;
            for (id, (at, prompt_tokens)) in (0..).zip(&submits) {
                let now = Time::ZERO.after(ms(*at));
                let blocks = [].into();
                let submit =
                    Submit { id, prompt_tokens: *prompt_tokens, blocks, output_tokens: 30 };
                engine.submit(submit, now).unwrap();
            }
            let mut scrapes = Scrapes::new(1, ms(every_ms), ms(delay_ms));
            scrapes.up(0, 0);
            asks.sort_unstable();
            let mut asks = asks.into_iter().peekable();
            let mut steps = vec![(0, engine.gauges())];
            let mut told = None;
            loop {
                let next = engine.next_event().map_or(u64::MAX, Time::nanos);
                while let Some((now, inclusive)) = asks.next_if(|(now, _)| *now < next) {
                    let got = scrapes.newest(0, &engine, now, inclusive);
                    let arrived = now.checked_sub(delay_ms * 1_000_000 + u64::from(!inclusive));
                    let plain = arrived.and_then(|last| {
                        plainly(every_ms * 1_000_000, last, &steps).pop()
                    });
                    let fresh = plain.filter(|(at, _)| told != Some(*at));
                    prop_assert_eq!(got.map(|reading| (reading.at, reading.gauges)), fresh);
                    told = plain.map(|(at, _)| at).or(told);
                }
                if next == u64::MAX {
                    break;
                }
                scrapes.changes(0, &engine, next);
                engine.advance(Time::from_nanos(next), &mut Vec::new());
                steps.push((next, engine.gauges()));
            }
        }
    }
}
