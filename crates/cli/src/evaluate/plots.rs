//! Plots of what was predicted against what came, as SVG.

use anyhow::anyhow;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange as _,
    drawing::IntoDrawingArea as _,
    element::{Circle, PathElement},
    prelude::{Color as _, SVGBackend},
    series::{LineSeries, PointSeries},
    style::{BLACK, RGBColor, WHITE},
};
use predict::{Judged, LEVELS, Target};

use super::measure::{Outcomes, TARGETS, covered, median_of, stretches};

/// Width and height of a plot, in pixels.
const SIZE: (u32, u32) = (960, 360);
/// Dots of one plot at most: more are thinned evenly.
const MAX_DOTS: usize = 1_500;
/// Stretches of time that a line is drawn through.
const STRETCHES: usize = 80;

const GREY: RGBColor = RGBColor(150, 150, 150);
const BLUE: RGBColor = RGBColor(31, 119, 180);
const ORANGE: RGBColor = RGBColor(230, 126, 34);

/// What a plot says and looks like.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) svg: String,
}

/// One plot per target and class.
pub(super) fn over_time(outcomes: Outcomes<'_>, without_times: bool) -> anyhow::Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for target in TARGETS {
        for class in outcomes.classes() {
            let rows = outcomes.of(target, Some(&class));
            if rows.is_empty() {
                continue;
            }
            let title = format!("{} of {class}", spelled(target));
            let x_title = if without_times { "row, thousands" } else { "time, seconds" };
            let svg = one_over_time(&rows, outcomes.start_ms(), (&title, x_title))
                .map_err(|error| anyhow!("cannot draw: {error}"))?;
            plots.push(Plot { title, svg });
        }
    }
    Ok(plots)
}

fn spelled(target: Target) -> &'static str {
    match target {
        Target::Ttft => "Time to first token (TTFT)",
        Target::Itl => "Mean time between tokens (ITL)",
    }
}

type Drawn<T> = Result<T, Box<dyn std::error::Error>>;
/// A latency of a judged row.
type Latency = fn(&Judged) -> f32;

fn one_over_time(rows: &[&Judged], start_ms: f64, titles: (&str, &str)) -> Drawn<String> {
    let (title, x_title) = titles;
    let at = |j: &Judged| (j.decided_at_ms - start_ms) / 1e3;
    let last = rows.iter().map(|j| at(j)).fold(1e-3, f64::max);
    let ms = || rows.iter().flat_map(|j| [j.observed_ms, j.promised.p50(), j.promised.p90()]);
    let low = f64::from(ms().fold(f32::MAX, f32::min)).max(1e-3);
    let high = f64::from(ms().fold(0.0, f32::max)).max(low);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..last, (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(x_title)
            .y_desc("milliseconds, logarithmic")
            .y_label_formatter(&|ms| format!("{ms}"))
            .draw()?;
        let every = rows.len().div_ceil(MAX_DOTS).max(1);
        let dots = rows.iter().step_by(every).map(|j| (at(j), f64::from(j.observed_ms)));
        chart
            .draw_series(PointSeries::<_, _, Circle<_, _>, _>::new(dots, 1.5, GREY.mix(0.7)))?
            .label("came")
            .legend(|(x, y)| Circle::new((x + 8, y), 2, GREY.filled()));
        let lines: [(&str, RGBColor, Latency); 3] = [
            ("came, median", BLACK, |j| j.observed_ms),
            ("predicted p50, median", BLUE, |j| j.promised.p50()),
            ("predicted p90, median", ORANGE, |j| j.promised.p90()),
        ];
        for (label, color, of) in lines {
            let line = stretches(rows, start_ms, STRETCHES)
                .into_iter()
                .map(|(from_s, rows)| (from_s, median_of(&rows, of)));
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)))?
                .label(label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(GREY)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

/// Promised share against the share that came within it, by target; the diagonal is right.
pub(super) fn calibration(outcomes: Outcomes<'_>) -> anyhow::Result<Plot> {
    let title = "Calibration: how often the promised quantile held".to_owned();
    let svg =
        draw_calibration(outcomes, &title).map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(Plot { title, svg })
}

fn draw_calibration(outcomes: Outcomes<'_>, title: &str) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (480, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(40.0..100.0, 0.0..100.0)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("promised, % of rows")
            .y_desc("held, % of rows")
            .draw()?;
        chart.draw_series(LineSeries::new([(40.0, 40.0), (100.0, 100.0)], GREY))?;
        for (target, color) in TARGETS.into_iter().zip([BLUE, ORANGE]) {
            let rows = outcomes.of(target, None);
            let points: Vec<_> = LEVELS
                .iter()
                .enumerate()
                .filter_map(|(at, level)| {
                    Some((f64::from(*level) * 100.0, covered(&rows, at)? * 100.0))
                })
                .collect();
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
                .label(target.as_str().to_uppercase())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 4, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(GREY)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
