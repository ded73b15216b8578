//! What the learner tells people: how good every class is, and which models serve anew.

use serde::Serialize;

use crate::{regime::Regime, target::TargetModel};

/// What a label has changed beside the models, to be told to people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Promoted {
    /// `model/accelerator/role`.
    pub class: String,
    /// `ttft` or `itl`.
    pub target: &'static str,
    /// In which regime.
    pub regime: &'static str,
    /// The model that serves from now on.
    pub champion: &'static str,
}

/// How good one target of one class is in one regime.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RegimeError {
    /// The regime.
    pub regime: &'static str,
    /// The model that serves.
    pub champion: &'static str,
    /// Median absolute relative error over the newest rows.
    pub median_error: Option<f32>,
    /// Share of observed values under their promised p90.
    pub p90_coverage: Option<f32>,
}

/// How good one target of one class is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetError {
    /// Labels learned.
    pub labels: u32,
    /// Median absolute relative error over the newest rows, each predicted before it was learned.
    pub median_error: Option<f32>,
    /// Mean absolute relative error of the median that was served.
    pub mean_error: Option<f32>,
    /// Share of observed values under their promised p90.
    pub p90_coverage: Option<f32>,
    /// Mean pinball loss of the promised p90, in milliseconds.
    pub p90_pinball_ms: Option<f32>,
    /// The same of the window's own quantile, uncorrected.
    pub p90_pinball_raw_ms: Option<f32>,
    /// By regime.
    pub regimes: Vec<RegimeError>,
}

/// How good one class is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassError {
    /// `model/accelerator/role`.
    pub class: String,
    /// Time to first token.
    pub ttft: TargetError,
    /// Time between tokens.
    pub itl: TargetError,
    /// Changes of an engine noticed since the start.
    pub drifts: u64,
}

impl TargetError {
    pub(crate) fn of(target: &TargetModel) -> Self {
        let p90 = |coverage: [f32; 4]| coverage[1];
        let judged = target.overall();
        Self {
            labels: target.labels,
            median_error: target.pooled.median_error(),
            mean_error: target.mean_error(),
            p90_coverage: judged.coverage().map(p90),
            p90_pinball_ms: judged.pinball().map(|(served, _)| served),
            p90_pinball_raw_ms: judged.pinball().map(|(_, raw)| raw),
            regimes: Regime::ALL
                .iter()
                .map(|regime| {
                    let own = &target.regimes[*regime as usize];
                    RegimeError {
                        regime: regime.as_str(),
                        champion: target.champion(*regime),
                        median_error: own.median_error(),
                        p90_coverage: own.coverage().map(p90),
                    }
                })
                .collect(),
        }
    }
}
