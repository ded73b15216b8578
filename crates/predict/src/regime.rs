//! How busy an endpoint is, as far as models and calibration tell it apart.

use features::{Column, FeatureRow};

/// How busy an endpoint is at the instant of a decision.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Regime {
    /// Nothing in flight there.
    Idle,
    /// Streams decode, and nobody waits for a first token.
    Loaded,
    /// Somebody waits for a first token.
    Queued,
}

impl Regime {
    /// Every regime.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Loaded, Self::Queued];

    /// The regime that `row` was taken in.
    pub fn of(row: &FeatureRow) -> Self {
        if row.get(Column::AheadRequests) > 0.0 {
            Self::Queued
        } else if row.get(Column::Decoding) > 0.0 {
            Self::Loaded
        } else {
            Self::Idle
        }
    }

    /// The word used in metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Loaded => "loaded",
            Self::Queued => "queued",
        }
    }
}
