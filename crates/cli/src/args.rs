//! What flags of several commands have in common: the types of their values.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use clap::ValueEnum;
use tokio::net::TcpListener;
use types::Millis;

/// What decides, by the name that configuration uses too.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Policy {
    /// Least expected added misses, by learned latencies
    Learned,
    /// Weighted scorers: queue, KV cache, prefix cache
    Heuristic,
    /// Fewest requests in flight
    LeastRequests,
    /// One after the other
    RoundRobin,
    /// Any
    Random,
}

impl From<Policy> for schedule::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Learned => Self::Learned,
            Policy::Heuristic => Self::Heuristic,
            Policy::LeastRequests => Self::LeastRequests,
            Policy::RoundRobin => Self::RoundRobin,
            Policy::Random => Self::Random,
        }
    }
}

/// Listens on `address`.
pub(crate) async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Reads a number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let is_positive = number.is_finite() && number > 0.0;
    if is_positive { Ok(number) } else { Err("not a number above zero".to_owned()) }
}

/// Reads a latency in milliseconds.
pub(crate) fn millis(text: &str) -> Result<Millis, String> {
    let number: f32 = text.parse().map_err(|_| "not a number of milliseconds".to_owned())?;
    Millis::try_from(number)
}

/// Reads `90`, `90s`, `500ms`, `5m` or `1h`; a bare number counts seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3_600.0,
        unit => return Err(format!("`{unit}` is not a unit of time: use ms, s, m or h")),
    };
    let number: f64 = digits.parse().map_err(|_| "not a duration such as 90s or 5m".to_owned())?;
    match Duration::try_from_secs_f64(number * unit_s) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("not a duration above zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_seconds_need_none() {
        for (text, ms) in [("90", 90_000), ("1.5s", 1_500), ("250ms", 250), ("2m", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "0", "5d", "1e400", "nan"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn scales_are_above_zero() {
        assert_eq!(positive("0.5"), Ok(0.5));
        for text in ["0", "-1", "inf", "nan", "fast"] {
            assert!(positive(text).is_err(), "{text}");
        }
    }
}
