//! Colours, dashes and markers: one of each per policy over the whole page.
//!
//! Hues are those of Okabe and Ito's palette, which people with any colour vision tell apart, made
//! darker where white paper asks for it and lighter for a dark screen.

use std::{collections::BTreeMap, fmt::Write as _};

use plotters::style::RGBColor;
use sim::LabReport;

/// Red, green and blue.
type Rgb = (u8, u8, u8);
/// Hues on a light and on a dark page.
const HUES: [(Rgb, Rgb); 7] = [
    ((0x00, 0x72, 0xB2), (0x5A, 0xB0, 0xE6)),
    ((0xD5, 0x5E, 0x00), (0xF5, 0x91, 0x45)),
    ((0x00, 0x8A, 0x64), (0x2F, 0xC4, 0x9A)),
    ((0xA8, 0x4A, 0x92), (0xE0, 0x93, 0xCC)),
    ((0xB3, 0x86, 0x00), (0xE8, 0xC2, 0x4A)),
    ((0x4F, 0xA8, 0xD8), (0xA6, 0xDB, 0xF7)),
    ((0x80, 0x2B, 0x4E), (0xD9, 0x7A, 0xA0)),
];
/// What oracles are drawn in: no hue, as nobody can deploy one.
const ORACLE: (Rgb, Rgb) = ((0x55, 0x55, 0x55), (0xC4, 0xC4, 0xC4));
/// Dashes of the first seven policies, the next seven, and so on.
const DASHES: [&str; 3] = ["", "11 3 2 3", "2 3"];
const ORACLE_DASHES: [&str; 2] = ["8 5", "4 4"];
const MARKERS: [Marker; 3] = [Marker::Dot, Marker::Triangle, Marker::Square];
const ORACLE_MARKERS: [Marker; 2] = [Marker::Ring, Marker::Cross];

/// Lines that are no policy's: objectives, targets, diagonals.
pub(super) const GUIDE: RGBColor = RGBColor(0x7A, 0x7A, 0x7A);
const GUIDE_DASH: &str = "3 4";

/// Units of a plot in one pixel: plotters places everything at whole units, which shows in curves.
pub(super) const FINE: u32 = 2;

/// What stands at a point of a plot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Marker {
    Dot,
    Triangle,
    Square,
    Cross,
    Ring,
    Frame,
    /// Small, where many stand together.
    Tick,
}

/// Markers of things that are no policy, such as classes of callers.
pub(super) const GLYPHS: [Marker; 6] =
    [Marker::Dot, Marker::Triangle, Marker::Square, Marker::Cross, Marker::Ring, Marker::Frame];

/// How one policy is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ink {
    /// No other policy of the page has the same, to the last bit: the dash is found by it.
    pub color: RGBColor,
    dark: RGBColor,
    dash: &'static str,
    pub marker: Marker,
}

/// Ink of what is no policy.
pub(super) const PLAIN: Ink =
    Ink { color: GUIDE, dark: RGBColor(0x9A, 0x9A, 0x9A), dash: "", marker: Marker::Dot };

/// How every policy of a report is drawn.
#[derive(Debug)]
pub(in crate::simulate) struct Inks {
    of: BTreeMap<String, Ink>,
}

impl Inks {
    pub(in crate::simulate) fn new(report: &LabReport) -> Self {
        let (mut deployed, mut oracles) = (0, 0);
        let ink = |policy: &sim::PolicyAbout| {
            let count = if policy.oracle { &mut oracles } else { &mut deployed };
            let ink = if policy.oracle { oracle_ink(*count) } else { ink(*count) };
            *count += 1;
            (policy.name.clone(), ink)
        };
        Self { of: report.policies.iter().map(ink).collect() }
    }

    pub(super) fn of(&self, policy: &str) -> Ink {
        self.of.get(policy).copied().unwrap_or(PLAIN)
    }

    /// `svg` with the dashes of its lines, which plotters cannot draw but one by one, and with text
    /// in the colour of the page.
    pub(super) fn finished(&self, svg: &str) -> String {
        let mut text = svg.replace("\"#000000\"", "\"currentColor\"");
        let dashed = self.of.values().map(|ink| (ink.color, ink.dash));
        for (color, dash) in dashed.filter(|(_, dash)| !dash.is_empty()).chain([GUIDE_LINE]) {
            // Whiskers and bands are not opaque, and stay whole.
            let line = format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{}\"", hex(color));
            let dash = scaled(dash);
            text = text.replace(&line, &format!("{line} stroke-dasharray=\"{dash}\""));
        }
        text
    }

    /// The rules of a style sheet that give each colour its value on a dark screen.
    pub(in crate::simulate) fn dark_rules(&self) -> String {
        let mut rules = String::new();
        for ink in self.of.values().chain([&PLAIN]) {
            let (light, dark) = (hex(ink.color), hex(ink.dark));
            let _ = write!(rules, "svg [stroke=\"{light}\"]{{stroke:{dark}}}");
            let _ = write!(rules, "svg [fill=\"{light}\"]{{fill:{dark}}}");
        }
        rules
    }

    /// A short line and marker for a legend.
    pub(in crate::simulate) fn swatch(&self, policy: &str) -> String {
        let ink = self.of(policy);
        format!(
            "<svg class=\"key\" width=\"38\" height=\"12\" viewBox=\"0 0 38 12\" aria-hidden=\"true\">\
             <path d=\"M1 6H37\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>{}</svg>",
            hex(ink.color),
            if ink.dash.is_empty() { "none" } else { ink.dash },
            shape(ink.marker, 19, &hex(ink.color))
        )
    }
}

/// A dash, which is written in pixels, in units of a plot.
fn scaled(dash: &str) -> String {
    let lengths = dash.split(' ').filter_map(|length| length.parse::<u32>().ok());
    lengths.map(|length| (length * FINE).to_string()).collect::<Vec<_>>().join(" ")
}

const GUIDE_LINE: (RGBColor, &str) = (GUIDE, GUIDE_DASH);

/// A marker alone, for a legend.
pub(super) fn glyph(marker: Marker) -> String {
    format!(
        "<svg class=\"key\" width=\"14\" height=\"12\" viewBox=\"0 0 14 12\" aria-hidden=\"true\">{}</svg>",
        shape(marker, 7, "currentColor")
    )
}

fn shape(marker: Marker, x: i32, color: &str) -> String {
    let (left, right) = (x - 4, x + 4);
    match marker {
        Marker::Dot => format!("<circle cx=\"{x}\" cy=\"6\" r=\"4\" fill=\"{color}\"/>"),
        Marker::Triangle => {
            format!("<path d=\"M{x} 1L{right} 10H{left}Z\" fill=\"{color}\"/>")
        }
        Marker::Square => {
            format!("<rect x=\"{left}\" y=\"2\" width=\"8\" height=\"8\" fill=\"{color}\"/>")
        }
        Marker::Cross => format!(
            "<path d=\"M{left} 2L{right} 10M{left} 10L{right} 2\" stroke=\"{color}\" stroke-width=\"2\"/>"
        ),
        Marker::Ring => format!(
            "<circle cx=\"{x}\" cy=\"6\" r=\"4\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
        ),
        Marker::Tick => format!("<path d=\"M{x} 2V10\" stroke=\"{color}\"/>"),
        Marker::Frame => format!(
            "<rect x=\"{left}\" y=\"2\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"{color}\" \
             stroke-width=\"2\"/>"
        ),
    }
}

fn ink(at: usize) -> Ink {
    let (light, dark) = HUES[at % HUES.len()];
    let round = at / HUES.len();
    let kind = round % DASHES.len();
    Ink { color: nudged(light, round), dark: rgb(dark), dash: DASHES[kind], marker: MARKERS[kind] }
}

fn oracle_ink(at: usize) -> Ink {
    let kind = at % ORACLE_DASHES.len();
    Ink {
        color: nudged(ORACLE.0, at),
        dark: rgb(ORACLE.1),
        dash: ORACLE_DASHES[kind],
        marker: ORACLE_MARKERS[kind],
    }
}

const fn rgb((red, green, blue): Rgb) -> RGBColor {
    RGBColor(red, green, blue)
}

/// A colour that no eye tells from `rgb`, but a search does.
fn nudged((red, green, blue): Rgb, by: usize) -> RGBColor {
    RGBColor(red, green, blue.wrapping_add(by as u8))
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::simulate::figures::made;

    #[test]
    fn twenty_policies_are_all_drawn_differently() {
        let report = made::with_policies(20);
        let inks = Inks::new(&report);
        let looks: BTreeSet<_> = report.policies.iter().map(|p| inks.swatch(&p.name)).collect();
        assert_eq!(looks.len(), 20);
        // Not by colours alone that look the same: the hue, dash and marker differ too.
        let told = |ink: &Ink| (hex(ink.dark), ink.dash, format!("{:?}", ink.marker));
        let told: BTreeSet<_> = inks.of.values().map(told).collect();
        assert_eq!(told.len(), 20);
    }

    #[test]
    fn oracles_are_dashed_and_the_first_policies_are_not() {
        let inks = Inks::new(&made::report());
        assert!(inks.swatch("clairvoyant").contains("stroke-dasharray=\"8 5\""));
        assert!(inks.swatch("slackline").contains("stroke-dasharray=\"none\""));
    }
}
