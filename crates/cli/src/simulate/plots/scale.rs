//! An axis: linear or logarithmic, with ticks at 1, 2 and 5.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Ticks of a linear axis, about.
const TICKS: f64 = 6.0;
/// Ratio of the ends of an axis above which it is logarithmic, where that is left open.
const WIDE: f64 = 20.0;
/// Ratio of the ends up to which a logarithmic axis has ticks at 2 and 5 too.
const DENSE: f64 = 2_000.0;

/// An axis. What lies beyond its ends is drawn at them.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// From `from` to `to`; ends that leave nothing between them are set apart.
    pub(super) fn linear(from: f64, to: f64) -> Self {
        let from = if from.is_finite() { from } else { 0.0 };
        let to = if to.is_finite() && to > from { to } else { from + 1.0 };
        let step = step(to - from);
        let first = (from / step - 1e-9).ceil() as i64;
        let last = (to / step + 1e-9).floor() as i64;
        let ticks = (first..=last).map(|n| n as f64 * step).collect();
        Self { from, to, log: false, ticks }
    }

    /// The same in logarithms; both ends above zero.
    pub(super) fn log(from: f64, to: f64) -> Self {
        let from = if from.is_finite() && from > 0.0 { from } else { 1.0 };
        let to = if to.is_finite() && to > from { to } else { from * 10.0 };
        let parts: &[f64] = if to / from <= DENSE { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let ticks: Vec<_> = (first..=last)
            .flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)))
            .filter(|tick| (from..=to).contains(tick))
            .collect();
        // Within one octave there may be none of them.
        let ticks = if ticks.len() < 2 { Self::linear(from, to).ticks } else { ticks };
        Self { from, to, log: true, ticks }
    }

    /// Holds all of `values` with some room, within `bounds`.
    pub(super) fn around(values: impl IntoIterator<Item = f64>, bounds: Range<f64>) -> Self {
        let Some((least, most)) = ends(values) else {
            return Self::linear(bounds.start.max(0.0), bounds.end.min(1.0));
        };
        let room = ((most - least) * 0.08).max(most.abs() * 0.01).max(1e-6);
        Self::linear((least - room).max(bounds.start), (most + room).min(bounds.end))
    }

    /// Holds all of `values`, of which none is below zero, with some room: in logarithms if they are
    /// far apart.
    pub(super) fn around_ratios(values: impl IntoIterator<Item = f64> + Clone) -> Self {
        match ends(values.clone()) {
            Some((least, most)) if least > 0.0 && most / least > WIDE => {
                Self::log(least * 0.8, most * 1.25)
            }
            _ => Self::around(values, 0.0..f64::INFINITY),
        }
    }

    /// Holds all of `values` above zero in logarithms.
    pub(super) fn log_around(values: impl IntoIterator<Item = f64>) -> Self {
        let above = values.into_iter().filter(|value| *value > 0.0);
        ends(above).map_or_else(|| Self::log(1.0, 10.0), |(a, b)| Self::log(a * 0.9, b * 1.1))
    }

    /// Room for `count` rows, the first on top, without ticks.
    pub(super) fn rows(count: usize) -> Self {
        Self { from: count as f64 - 0.5, to: -0.5, log: false, ticks: Vec::new() }
    }

    pub(super) fn from(&self) -> f64 {
        self.from
    }

    pub(super) fn to(&self) -> f64 {
        self.to
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }

    /// Where `value` lies between the ends, 0..=1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let part = (at(value) - at(self.from)) / (at(self.to) - at(self.from));
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }
}

/// Least and most of `values` that are numbers.
fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |ends, value| {
        Some(ends.map_or((value, value), |(a, b): (f64, f64)| (a.min(value), b.max(value))))
    })
}

/// 1, 2 or 5 times a power of ten, so that about [`TICKS`] of it make up `length`.
fn step(length: f64) -> f64 {
    let rough = length / TICKS;
    let decade = 10_f64.powf(rough.log10().floor());
    match rough / decade {
        part if part < 1.5 => decade,
        part if part < 3.5 => 2.0 * decade,
        part if part < 7.5 => 5.0 * decade,
        _ => 10.0 * decade,
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * self.part(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        // Steps such as 0.1 do not add up to the last bit.
        format!("{}", (value * 1e6).round() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(Scale::format).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(told(&Scale::linear(0.0, 1.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            told(&Scale::linear(83.1, 99.0)),
            ["84", "86", "88", "90", "92", "94", "96", "98"]
        );
        assert_eq!(told(&Scale::log(80.0, 1_100.0)), ["100", "200", "500", "1000"]);
        assert_eq!(
            told(&Scale::log(1.1, 1.9)),
            ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9"]
        );
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_still_an_axis() {
        for values in [vec![], vec![0.0], vec![5.0, 5.0], vec![f64::NAN]] {
            let scale = Scale::around(values, 0.0..f64::INFINITY);
            assert!(scale.from < scale.to && scale.to.is_finite(), "{scale:?}");
        }
    }

    #[test]
    fn ratios_far_apart_are_shown_in_logarithms() {
        assert!(Scale::around_ratios([1.0, 50.0]).log);
        assert!(!Scale::around_ratios([10.0, 50.0]).log);
        assert!(!Scale::around_ratios([0.0, 50.0]).log);
    }

    #[test]
    fn what_lies_beyond_the_ends_or_is_no_number_is_drawn_at_them() {
        let scale = Scale::log(1.0, 100.0);
        assert_eq!(scale.map(&10.0, (0, 200)), 100);
        assert_eq!(scale.map(&1e9, (0, 200)), 200);
        assert_eq!(scale.map(&0.0, (0, 200)), 0);
        assert_eq!(Scale::linear(0.9, 1.8).map(&f64::MAX, (0, 200)), 200);
        assert_eq!(Scale::linear(0.9, 1.8).map(&f64::MIN, (0, 200)), 0);
        assert_eq!(scale.map(&f64::NAN, (0, 200)), 0);
    }
}
