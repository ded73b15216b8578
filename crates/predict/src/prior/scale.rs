//! How a class that is `factor` times as slow sees the same work: times grow, counts per time shrink.
//!
//! An engine whose every step takes `s` times as long does at `s` times the time what the other does: its
//! latency for a row is `s` times that of the other for the row with all times divided by `s`.

use features::{Column, FeatureRow, SCHEMA, WIDTH};

use crate::terms::Target;

/// Ends of the names of columns that are times, and of those that count per time.
const TIMES: [&str; 2] = ["_ms", "_us_per_token"];
const PER_TIME: &str = "_per_s";

/// The row with every time `factor` times as long.
pub(crate) fn stretched(row: &FeatureRow, factor: f32) -> FeatureRow {
    let mut values = [0.0; WIDTH];
    for ((value, old), feature) in values.iter_mut().zip(row.as_slice()).zip(&SCHEMA) {
        let is_time = TIMES.iter().any(|end| feature.name.ends_with(end));
        *value = match feature.name {
            // How old a page is has nothing to do with the engine.
            "snapshot_age_ms" => *old,
            _ if is_time => old * factor,
            name if name.ends_with(PER_TIME) => old / factor,
            _ => *old,
        };
    }
    FeatureRow::from(values)
}

/// A row on which every term is above zero, and none is at a bound.
fn probe() -> FeatureRow {
    FeatureRow::from([3.0; WIDTH])
        .with(Column::Prompt, 3_000.0)
        .with(Column::Uncached, 2_100.0)
        .with(Column::AheadTokens, 1_700.0)
        .with(Column::AheadContext, 1_900.0)
        .with(Column::Decoding, 7.0)
        .with(Column::DecodeTokens, 9_100.0)
        .with(Column::KvExcess, 700.0)
        .with(Column::Remaining, 1_300.0)
        .with(Column::Step, 23.0)
        .with(Column::SinceToken, 11.0)
        .with(Column::ArrivingTokens, 1_100.0)
        .with(Column::OldestWait, 130.0)
        .with(Column::Output, 210.0)
        .with(Column::PrefillPerToken, 37.0)
        .with(Column::KvUtilization, 0.4)
}

/// By how much each term grows where every time is `factor` times as long.
pub(crate) fn factors(target: Target, factor: f32) -> Vec<f64> {
    let (before, after) = (target.terms(&probe()), target.terms(&stretched(&probe(), factor)));
    let grown = |(before, after): (&f32, &f32)| {
        let grown = f64::from(*after) / f64::from(*before);
        if grown.is_finite() && grown > 0.0 { grown } else { 1.0 }
    };
    before.iter().zip(after.iter()).map(grown).collect()
}

/// A mark of the terms: it changes with the number of terms of a target and with what any of them is
/// made of.
pub(crate) fn mark_of_terms() -> String {
    let mark = |target: Target| {
        let terms = target.terms(&probe());
        // FNV-1a over what is printed, so that the last bits of a product do not matter.
        let hash = terms.iter().fold(0x811c_9dc5_u32, |hash, term| {
            format!("{term:.4e} ")
                .bytes()
                .fold(hash, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
        });
        format!("{}-{}-{hash:08x}", target.as_str(), terms.len())
    };
    [Target::Ttft, Target::Itl].map(mark).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stretch_and_counts_stay() {
        let row = stretched(&probe(), 2.0);
        assert!((row.get(Column::Step) - 46.0).abs() < 1e-3);
        assert!((row.get(Column::ArrivingTokens) - 550.0).abs() < 1e-3);
        assert!((row.get(Column::Uncached) - 2_100.0).abs() < 1e-3);
        assert!((row.get(Column::SnapshotAge) - probe().get(Column::SnapshotAge)).abs() < 1e-6);
    }

    #[test]
    fn every_term_is_a_time_or_is_none() {
        for target in [Target::Ttft, Target::Itl] {
            assert!(target.terms(&probe()).iter().all(|term| *term > 0.0), "{target:?}");
            for factor in factors(target, 2.0) {
                assert!((factor - 1.0).abs() < 1e-3 || (factor - 2.0).abs() < 1e-3, "{factor}");
            }
        }
    }
}
