//! Measured values, in order, as medians, percentiles and spread.

use std::fmt;

/// Values of one measure.
#[derive(Clone, Debug)]
pub struct Figures {
    sorted: Vec<f64>,
    digits: usize,
}

impl Figures {
    /// `values`, shown with `digits` digits after the point.
    pub fn new(values: impl IntoIterator<Item = f64>, digits: usize) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        assert!(!sorted.is_empty(), "nothing was measured");
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted, digits }
    }

    /// The value that a share `q` of all values does not exceed.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted[rank.clamp(1, self.sorted.len()) - 1]
    }

    /// The middle value.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// `p50 … p90 … p99 … max …`
    pub fn percentiles(&self) -> String {
        let digits = self.digits;
        let of = |q| format!("{:.digits$}", self.quantile(q));
        format!("p50 {}, p90 {}, p99 {}, max {}", of(0.5), of(0.9), of(0.99), of(1.0))
    }
}

/// `median (least to most)`
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits;
        let (least, most) = (self.quantile(0.0), self.quantile(1.0));
        write!(f, "{:.digits$} ({least:.digits$} to {most:.digits$})", self.median())
    }
}
