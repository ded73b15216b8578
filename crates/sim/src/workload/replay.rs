//! The `replay:` part of a scenario file: the requests of a trace as they came.

use std::{path::Path, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Arrival, BlockSource, Bundled, Part, Trace, TraceError, TraceOptions, draw::spread,
    options::Make,
};

/// A trace and what is changed in it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A slice that comes with the program (mooncake-conversation, azure-conversation, azure-code), or
    /// the path of a file: a Mooncake or Azure trace, a workload of `AIBrix`, or rows recorded by
    /// `slackline serve --record`. Its content tells which, gzipped or not.
    pub trace: String,
    /// Factor on the rate: gaps are divided by it.
    #[serde(default = "one")]
    pub speed: f64,
    /// Longer prompts are cut to so many tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_tokens: Option<u32>,
    /// Only so many of the first requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<usize>,
    /// Begins again where the trace ends, with prompts that were not seen before, up to the horizon.
    #[serde(default)]
    pub repeat: bool,
}

fn one() -> f64 {
    1.0
}

impl Replay {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.trace.is_empty() {
            return Err("replay.trace: must be the name of a trace or the path of a file".into());
        }
        if !(self.speed > 0.0 && self.speed.is_finite()) {
            return Err(format!("replay.speed: must be above 0, not {}", self.speed));
        }
        if self.max_prompt_tokens == Some(0) {
            return Err("replay.max_prompt_tokens: must be above 0, not 0".into());
        }
        if self.take == Some(0) {
            return Err("replay.take: must be above 0, not 0".into());
        }
        Ok(())
    }

    pub(super) fn about(&self) -> String {
        let speed = ((self.speed - 1.0).abs() > f64::EPSILON)
            .then(|| format!(" at {} times its rate", self.speed));
        let take = self.take.map(|count| format!(", the first {count} requests"));
        let cut = self.max_prompt_tokens.map(|most| format!(", prompts cut to {most} tokens"));
        let repeat = self.repeat.then(|| ", again and again".to_owned());
        let changes: String = [speed, take, cut, repeat].into_iter().flatten().collect();
        format!("replay of {}{changes}", self.trace)
    }

    /// The trace at its own speed.
    fn open(&self, folder: &Path, seed: u64) -> Result<Trace, TraceError> {
        let options = TraceOptions { max_prompt_tokens: self.max_prompt_tokens, seed };
        let trace = match Bundled::of_name(&self.trace) {
            Some(bundled) => Trace::bundled(bundled, &options),
            None => Trace::open(&folder.join(&self.trace), &options),
        }?;
        Ok(match self.take {
            Some(count) => trace.take(count),
            None => trace,
        })
    }

    /// Mean requests per second at speed 1.
    pub(super) fn rate(&self, folder: &Path) -> Result<f64, TraceError> {
        let trace = self.open(folder, 0)?;
        Ok(trace.arrivals.len() as f64 / lap(&trace).as_secs_f64().max(1e-9) * self.speed)
    }

    pub(super) fn trace(&self, make: &Make<'_>) -> Result<Trace, TraceError> {
        let trace = self.open(make.folder, make.seed)?;
        let mut trace = trace.scaled(self.speed * make.speed);
        if self.repeat {
            repeat(&mut trace, make.horizon);
        }
        trace.arrivals.retain(|arrival| arrival.at < make.horizon);
        Ok(trace)
    }
}

/// The span of the trace and a mean gap.
fn lap(trace: &Trace) -> Duration {
    let count = u32::try_from(trace.arrivals.len()).unwrap_or(u32::MAX);
    trace.span() + trace.span() / count.max(1)
}

/// Appends the trace to itself until `horizon`, with other texts and conversations every time.
fn repeat(trace: &mut Trace, horizon: Duration) {
    let (lap, count) = (lap(trace), trace.arrivals.len());
    if lap.is_zero() {
        return;
    }
    let sessions = trace.arrivals.iter().filter_map(|arrival| arrival.session).max();
    let ids = trace.arrivals.iter().filter_map(|arrival| match &arrival.blocks {
        BlockSource::Shared(ids) => ids.iter().max().copied(),
        BlockSource::Unique(_) | BlockSource::Parts(_) => None,
    });
    let (sessions, ids) = (sessions.unwrap_or_default() + 1, ids.max().unwrap_or_default() + 1);
    for turn in 1_u32.. {
        let from = lap * turn;
        if from >= horizon {
            break;
        }
        for at in 0..count {
            let first = &trace.arrivals[at];
            let again = Arrival {
                at: from + first.at,
                blocks: other_text(&first.blocks, turn, (ids, count as u64)),
                session: first.session.map(|id| id.wrapping_add(sessions.wrapping_mul(turn))),
                ..*first
            };
            if again.at >= horizon {
                break;
            }
            trace.arrivals.push(again);
        }
    }
}

/// The content of lap `turn`, where a lap has `ids` block numbers and `count` prompts.
fn other_text(blocks: &BlockSource, turn: u32, (ids, count): (u32, u64)) -> BlockSource {
    match blocks {
        BlockSource::Shared(of) => {
            let shift = ids.wrapping_mul(turn);
            BlockSource::Shared(of.iter().map(|id| id.wrapping_add(shift)).collect())
        }
        BlockSource::Unique(number) => BlockSource::Unique(number + count * u64::from(turn)),
        BlockSource::Parts(parts) => {
            let shift = spread(u64::from(turn));
            let other = |part: &Part| Part { content: part.content ^ shift, ..*part };
            BlockSource::Parts(parts.iter().map(other).collect::<Arc<[Part]>>())
        }
    }
}
