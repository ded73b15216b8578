//! Axes, grid and descriptions around what a plot shows, and the elements that all plots share.

use std::iter::once;

use anyhow::anyhow;
use plotters::{
    chart::{ChartBuilder, ChartContext},
    coord::cartesian::Cartesian2d,
    drawing::IntoDrawingArea as _,
    element::{Circle, Cross, EmptyElement, PathElement, Polygon, Rectangle, TriangleMarker},
    prelude::{Color as _, SVGBackend},
    series::LineSeries,
    style::{
        BLACK, IntoFont as _, RGBColor, TRANSPARENT, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    ink::{FINE, GUIDE, Ink, Inks, Marker},
    scale::Scale,
};
use crate::output::escaped;
use crate::simulate::figures::Spread;

/// Height of text as plotters counts it, with room above and below.
const TEXT: u32 = 17 * FINE;
/// Half of the size of a marker.
const MARKER: i32 = units(4);
/// Width of a line.
const LINE: u32 = 2 * FINE;

/// Pixels in units of a plot.
const fn units(pixels: i32) -> i32 {
    pixels * FINE.cast_signed()
}

pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;
pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A plot without its contents.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Pixels left of the plot, for the labels of its y axis.
    pub left: u32,
    /// Pixels right of it.
    pub right: u32,
    pub x: Scale,
    pub y: Scale,
    pub x_desc: &'a str,
    pub y_desc: &'a str,
}

impl Frame<'_> {
    /// The plot as SVG with what `fill` draws in it; `title` is read to those who cannot see it.
    pub(super) fn draw(
        self,
        title: &str,
        inks: &Inks,
        fill: impl FnOnce(&mut Chart<'_, '_>) -> Drawn,
    ) -> anyhow::Result<String> {
        let mut svg = String::new();
        self.drawn(&mut svg, fill).map_err(|error| anyhow!("cannot draw `{title}`: {error}"))?;
        let head = format!("<svg role=\"img\" aria-label=\"{}\"", escaped(title));
        Ok(inks.finished(&svg).replacen("<svg", &head, 1))
    }

    fn drawn(self, svg: &mut String, fill: impl FnOnce(&mut Chart<'_, '_>) -> Drawn) -> Drawn {
        let size = (self.size.0 * FINE, self.size.1 * FINE);
        let area = SVGBackend::with_string(svg, size).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8 * FINE)
            .margin_right(self.right * FINE)
            .x_label_area_size(46 * FINE)
            .y_label_area_size(self.left * FINE)
            .build_cartesian_2d(self.x, self.y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GUIDE.mix(0.25).stroke_width(FINE))
            .axis_style(GUIDE.mix(0.6).stroke_width(FINE))
            .set_all_tick_mark_size(units(4))
            .label_style(text())
            .axis_desc_style(text())
            .x_desc(self.x_desc)
            .y_desc(self.y_desc)
            .draw()?;
        fill(&mut chart)?;
        area.present()?;
        Ok(())
    }
}

fn text() -> TextStyle<'static> {
    ("sans-serif", TEXT).into_font().color(&BLACK)
}

/// `said` beside a point, `dx` pixels to its left (and ending there) or right, or centred on it; it may
/// stand outside the axes.
pub(super) fn label(
    chart: &Chart<'_, '_>,
    at: (f64, f64),
    (dx, dy): (i32, i32),
    said: &str,
) -> Drawn {
    let h_pos = match dx {
        0 => HPos::Center,
        dx if dx < 0 => HPos::Right,
        _ => HPos::Left,
    };
    let (x, y) = chart.backend_coord(&at);
    let style = text().pos(Pos::new(h_pos, VPos::Center));
    let area = chart.plotting_area().strip_coord_spec();
    let (left, top) = (area.get_pixel_range().0.start, area.get_pixel_range().1.start);
    area.draw_text(said, &style, (x - left + units(dx), y - top + units(dy)))?;
    Ok(())
}

/// A line in the ink of a policy.
pub(super) fn line(chart: &mut Chart<'_, '_>, points: Vec<(f64, f64)>, ink: Ink) -> Drawn {
    chart.draw_series(LineSeries::new(points, ink.color.stroke_width(LINE)))?;
    Ok(())
}

/// A dashed line that belongs to no policy.
pub(super) fn guide(chart: &mut Chart<'_, '_>, points: [(f64, f64); 2]) -> Drawn {
    chart.draw_series(LineSeries::new(points, GUIDE.stroke_width(LINE)))?;
    Ok(())
}

/// Dots that are many and may lie on each other.
pub(super) fn cloud(
    chart: &mut Chart<'_, '_>,
    points: impl Iterator<Item = (f64, f64)>,
    color: RGBColor,
) -> Drawn {
    let style = color.mix(0.5).filled();
    chart.draw_series(points.map(|at| Circle::new(at, units(2), style)))?;
    Ok(())
}

/// What lies between two lines, faint.
pub(super) fn band(chart: &mut Chart<'_, '_>, edge: Vec<(f64, f64)>, ink: Ink) -> Drawn {
    chart.draw_series(once(Polygon::new(edge, ink.color.mix(0.13))))?;
    Ok(())
}

/// From `a` to `b` with a bar across each end, `upright` if that is from below to above.
pub(super) fn whisker(
    chart: &mut Chart<'_, '_>,
    (a, b): ((f64, f64), (f64, f64)),
    color: RGBColor,
    upright: bool,
) -> Drawn {
    let style = color.mix(0.75).stroke_width(LINE);
    chart.draw_series(once(PathElement::new([a, b], style)))?;
    let (dx, dy) = if upright { (units(3), 0) } else { (0, units(3)) };
    for end in [a, b] {
        let bar = EmptyElement::at(end) + PathElement::new([(-dx, -dy), (dx, dy)], style);
        chart.draw_series(once(bar))?;
    }
    Ok(())
}

/// A spread lying on row `y`: its range, and `kind` at its mean.
pub(super) fn lying(
    chart: &mut Chart<'_, '_>,
    (spread, y): (&Spread, f64),
    color: RGBColor,
    kind: Marker,
) -> Drawn {
    if spread.most > spread.least {
        whisker(chart, ((spread.least, y), (spread.most, y)), color, false)?;
    }
    marker(chart, (spread.mean, y), color, kind)
}

/// A marker at a point.
pub(super) fn marker(
    chart: &mut Chart<'_, '_>,
    at: (f64, f64),
    color: RGBColor,
    kind: Marker,
) -> Drawn {
    let square = [(-MARKER, -MARKER), (MARKER, MARKER)];
    // Outlines are not quite opaque, so that they are not dashed as lines are.
    let (full, outline) = (color.filled(), color.mix(0.99).stroke_width(LINE));
    let m = MARKER;
    let around = [(-m, -m), (m, -m), (m, m), (-m, m), (-m, -m)];
    let area = chart.plotting_area();
    match kind {
        Marker::Dot => area.draw(&Circle::new(at, MARKER, full))?,
        Marker::Triangle => area.draw(&TriangleMarker::new(at, MARKER + units(2), full))?,
        Marker::Square => area.draw(&(EmptyElement::at(at) + Rectangle::new(square, full)))?,
        Marker::Cross => area.draw(&Cross::new(at, MARKER, outline))?,
        Marker::Ring => area.draw(&Circle::new(at, MARKER, outline))?,
        Marker::Frame => area.draw(&(EmptyElement::at(at) + PathElement::new(around, outline)))?,
        Marker::Tick => {
            let upright = PathElement::new(
                [(0, -units(2)), (0, units(2))],
                color.mix(0.8).stroke_width(FINE),
            );
            area.draw(&(EmptyElement::at(at) + upright))?;
        }
    }
    Ok(())
}
