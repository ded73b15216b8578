//! Plays one operating point on one engine in virtual time.

use std::{sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use types::Time;

use super::{ValidateError, result::median};
use crate::{
    engine::{Engine, Event, EventKind, Options, Submit},
    profile::Profile,
};

/// Lengths in tokens, drawn uniformly between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lengths {
    low: f64,
    high: f64,
}

impl Lengths {
    /// Half as long to half again as long as `mean`.
    pub(super) fn around(mean: f64) -> Self {
        Self { low: mean * 0.5, high: mean * 1.5 }
    }

    /// Between `share` of `most` and all of it.
    pub(super) fn below(most: f64, share: f64) -> Self {
        Self { low: most * share, high: most }
    }

    fn draw(self, random: &mut SmallRng) -> u32 {
        let tokens = self.low + (self.high - self.low) * random.random::<f64>();
        (tokens.round() as u32).max(1)
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// So many at once, each followed by the next when it ends; as many requests in all as the
    /// second number says. The burst at the start counts.
    Closed(u32, usize),
    /// At so many per second, evenly spaced, for so long; what has not ended by then does not
    /// count.
    Steady(f64, Duration),
}

/// One operating point to play.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) pace: Pace,
    pub(super) prompt: Lengths,
    pub(super) output: Lengths,
    pub(super) seed: u64,
}

/// Which value stands for many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Average {
    Mean,
    Median,
}

impl Average {
    fn of(self, mut values: Vec<f64>) -> Option<f64> {
        match self {
            Self::Mean if values.is_empty() => None,
            Self::Mean => Some(values.iter().sum::<f64>() / values.len() as f64),
            Self::Median => {
                values.sort_by(f64::total_cmp);
                median(&values)
            }
        }
    }
}

/// TTFT and mean gap between tokens of `load` on `profile`, both in ms; `None` if no request ended.
pub(super) fn play(
    profile: &Profile,
    options: &Options,
    load: &Load,
    average: Average,
) -> Result<Option<(f64, f64)>, ValidateError> {
    let mut run = Run {
        engine: Engine::new(profile.clone(), Options { seed: load.seed, ..options.clone() }),
        random: SmallRng::seed_from_u64(load.seed),
        load,
        sent: Vec::new(),
        ended: Vec::new(),
    };
    match load.pace {
        Pace::Closed(at_once, requests) => run.closed(at_once as usize, requests)?,
        Pace::Steady(rate, span) => run.steady(rate, span)?,
    }
    let requests = run.ended.iter().map(|id| &run.sent[*id as usize]);
    let ttft = requests.clone().map(|request| request.first.ms_since(request.at).into());
    let gaps = requests.filter(|request| request.tokens > 1).map(|request| {
        f64::from(request.last.ms_since(request.first)) / f64::from(request.tokens - 1)
    });
    Ok(average.of(ttft.collect()).zip(average.of(gaps.collect())))
}

/// One request of a run.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    first: Time,
    last: Time,
    tokens: u32,
}

struct Run<'a> {
    engine: Engine,
    random: SmallRng,
    load: &'a Load,
    /// By id.
    sent: Vec<Sent>,
    /// Ids of those that are complete.
    ended: Vec<u64>,
}

impl Run<'_> {
    fn closed(&mut self, at_once: usize, requests: usize) -> Result<(), ValidateError> {
        for _ in 0..at_once.min(requests) {
            self.send(Time::ZERO)?;
        }
        let mut events = Vec::new();
        while let Some(at) = self.engine.next_event() {
            self.engine.advance(at, &mut events);
            for event in events.drain(..) {
                self.note(event);
                let has_ended = matches!(event.kind, EventKind::Finished { .. });
                if has_ended && self.sent.len() < requests {
                    self.send(event.at)?;
                }
            }
        }
        Ok(())
    }

    fn steady(&mut self, rate: f64, span: Duration) -> Result<(), ValidateError> {
        let mut events = Vec::new();
        let requests = (rate * span.as_secs_f64()) as u32;
        for number in 0..=requests {
            let at = Time::from_secs_f64(f64::from(number) / rate);
            self.engine.advance(at, &mut events);
            events.drain(..).for_each(|event| self.note(event));
            self.send(at)?;
        }
        Ok(())
    }

    fn send(&mut self, at: Time) -> Result<(), ValidateError> {
        let submit = Submit {
            id: self.sent.len() as u64,
            prompt_tokens: self.load.prompt.draw(&mut self.random),
            blocks: Arc::default(),
            output_tokens: self.load.output.draw(&mut self.random),
        };
        self.sent.push(Sent { at, first: at, last: at, tokens: 0 });
        Ok(self.engine.submit(submit, at)?)
    }

    fn note(&mut self, event: Event) {
        let request = &mut self.sent[event.id as usize];
        match event.kind {
            EventKind::FirstToken { .. } => {
                request.first = event.at;
                request.last = event.at;
                request.tokens = 1;
            }
            EventKind::Token => {
                request.last = event.at;
                request.tokens += 1;
            }
            EventKind::Finished { .. } => self.ended.push(event.id),
            EventKind::Preempted => {}
        }
    }
}
