//! The `workload:` section of a scenario file, and the trace that it makes.

use std::{path::Path, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Arrival, Trace, TraceError, conversations,
    draw::{Draw, spread},
    generate::Generate,
    replay::Replay,
    rollout,
    servegen::Servegen,
};

/// Stream of randomness of arrivals without conversations.
const CLASSES: u64 = 0x636c_6173;

/// What arrives: a recorded trace, recorded rates, or requests like those of a published workload.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// The requests of a trace as they came.
    Replay(Replay),
    /// Rates of a service over days, with requests of independent lengths.
    Servegen(Servegen),
    /// Requests like those of a published workload.
    Generate(Generate),
}

/// What a trace is made for.
#[derive(Clone, Copy, Debug)]
pub struct Make<'a> {
    /// Factor on the nominal rate.
    pub speed: f64,
    /// Equal seeds make equal traces, bit for bit.
    pub seed: u64,
    /// Requests arrive before this.
    pub horizon: Duration,
    /// Share of each class of callers, which sum to 1; none is one class. The class of a request is
    /// drawn by it and is one within a conversation.
    pub shares: &'a [f64],
    /// Relative paths count from here.
    pub folder: &'a Path,
}

impl Workload {
    /// The requests before the horizon.
    ///
    /// Another speed divides the gaps of a replay, and multiplies the rates of the others: their days
    /// and flash crowds stay where they are.
    pub fn trace(&self, make: &Make<'_>) -> Result<Trace, TraceError> {
        let wrong = |what| TraceError::Workload { what };
        self.check().map_err(wrong)?;
        check_make(make).map_err(wrong)?;
        let mut trace = match self {
            Self::Replay(replay) => replay.trace(make)?,
            Self::Servegen(servegen) => servegen.trace(make)?,
            Self::Generate(generate) => generated(generate, make),
        };
        if trace.arrivals.is_empty() {
            return Err(TraceError::Empty { file: trace.name });
        }
        give_classes(&mut trace.arrivals, make.shares, make.seed);
        Ok(trace)
    }

    /// What is wrong, as `key: what is wrong`. Files are not looked at.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Replay(replay) => replay.check(),
            Self::Servegen(servegen) => servegen.check(),
            Self::Generate(generate) => generate.check(),
        }
    }

    /// For a person, in a line.
    pub fn about(&self) -> String {
        match self {
            Self::Replay(replay) => replay.about(),
            Self::Servegen(servegen) => servegen.about(),
            Self::Generate(generate) => generate.about(),
        }
    }

    /// Mean requests per second at speed 1; files are read for it, with paths relative to `folder`.
    pub fn nominal_rate(&self, folder: &Path) -> Result<f64, TraceError> {
        self.check().map_err(|what| TraceError::Workload { what })?;
        match self {
            Self::Replay(replay) => replay.rate(folder),
            Self::Servegen(servegen) => servegen.mean_rate(folder),
            Self::Generate(generate) => Ok(generate.rate),
        }
    }
}

fn generated(generate: &Generate, make: &Make<'_>) -> Trace {
    let shape = generate.shape();
    let rate = generate.rate * make.speed;
    let arrivals = if shape.batch.is_some() {
        rollout::arrivals(&shape, rate, make.seed, make.horizon)
    } else {
        let pace = generate.arrivals().pace(rate);
        conversations::arrivals(&shape, &pace, make.seed, make.horizon)
    };
    Trace { name: generate.like.name().to_owned(), arrivals, clamped: 0 }
}

fn check_make(make: &Make<'_>) -> Result<(), String> {
    if !(make.speed > 0.0 && make.speed.is_finite()) {
        return Err(format!("speed: must be above 0, not {}", make.speed));
    }
    if let Some(share) = make.shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(format!("share: must be from 0 to 1, not {share}"));
    }
    let sum: f64 = make.shares.iter().sum();
    if !make.shares.is_empty() && (sum - 1.0).abs() > 1e-6 {
        return Err(format!("share: the shares of all classes must sum to 1, not {sum}"));
    }
    Ok(())
}

/// Draws the class of every request, by its conversation where it has one.
fn give_classes(arrivals: &mut [Arrival], shares: &[f64], seed: u64) {
    if shares.len() < 2 {
        return;
    }
    let mut draw = Draw::new(seed, CLASSES);
    for arrival in arrivals {
        let uniform = arrival.session.map_or_else(
            || draw.uniform(),
            |session| {
                let spread = spread(spread(seed ^ CLASSES) ^ u64::from(session));
                (spread >> 11) as f64 / (1_u64 << 53) as f64
            },
        );
        let mut left = uniform;
        let class = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        arrival.class = class.unwrap_or(shares.len() - 1) as u16;
    }
}

#[cfg(test)]
mod tests;
