//! What the terminal shows while the live part runs.

use std::{
    io::{self, IsTerminal as _},
    sync::Arc,
};

use indicatif::{MultiProgress, ProgressBar};
use predict::ClassError;
use router::Router;
use sim::Progress;

use super::accelerator;
use crate::{
    output,
    status::{self, Status},
};

/// Family that counts decisions by rung.
const DECISIONS: &str = "slackline_router_decisions_total";
/// Cells of the bar that shows an endpoint's share.
const BAR_CELLS: usize = 30;

/// The live view: bars on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub(super) struct View {
    router: Arc<Router>,
    progress: Arc<Progress>,
    screen: Option<Screen>,
}

#[derive(Debug)]
struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    rungs: ProgressBar,
    errors: ProgressBar,
    /// One per endpoint, in the order of the pool.
    endpoints: Vec<ProgressBar>,
}

impl View {
    pub(super) fn new(router: Arc<Router>, progress: Arc<Progress>) -> Self {
        let endpoints = router.pool().endpoints().len();
        let screen = io::stderr().is_terminal().then(|| Screen::new(endpoints));
        Self { router, progress, screen }
    }

    /// Shows `status` with what the router knows; `is_due` says whether a line is due.
    pub(super) fn draw(&mut self, status: &Status, is_due: bool) {
        let Some(screen) = &self.screen else {
            if is_due {
                let rungs = self.rungs();
                let (done, total) = (status.done, status.total);
                output::note(format_args!("{done} of {total} requests, {status}, {rungs}"));
            }
            return;
        };
        status::advance(&screen.bar, status);
        screen.bar.set_message(status.to_string());
        screen.rungs.set_message(self.rungs());
        screen.errors.set_message(errors(&self.router.errors()));
        for (line, text) in screen.endpoints.iter().zip(self.endpoints()) {
            line.set_message(text);
        }
    }

    /// Takes the view off the screen.
    pub(super) fn clear(&self) {
        if let Some(screen) = &self.screen {
            // A terminal that is gone needs no clearing.
            let _ = screen.all.clear();
        }
    }

    /// `decided by: learned 93 %, heuristic 7 %`.
    fn rungs(&self) -> String {
        let families = self.router.registry().gather();
        let metrics = families.iter().filter(|family| family.name() == DECISIONS);
        let mut counts: Vec<(&str, f64)> = metrics
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .filter_map(|metric| {
                let rung = metric.get_label().iter().find(|label| label.name() == "rung")?;
                Some((rung.value(), metric.get_counter().get_value()))
            })
            .collect();
        counts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total: f64 = counts.iter().map(|(_, count)| count).sum();
        let share = |(rung, count): &(&str, f64)| format!("{rung} {:.0} %", count / total * 100.0);
        let shares: Vec<_> = counts.iter().map(share).collect();
        let text = if shares.is_empty() { "nothing yet".to_owned() } else { shares.join(", ") };
        format!("decided by: {text}")
    }

    /// One line per endpoint: class, requests in flight, and its share of those that ended.
    fn endpoints(&self) -> Vec<String> {
        let counts = self.progress.endpoints();
        let total = counts.values().sum::<u64>().max(1) as f64;
        let pool = self.router.pool().endpoints();
        let line = |state: &Arc<datalayer::EndpointState>| {
            let id = &state.endpoint.id;
            let share = counts.get(id.as_str()).copied().unwrap_or(0) as f64 / total;
            let filled = ((share * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
            format!(
                "{:<8} {:<12} {:>4} in flight  {}{} {:>3.0} %",
                id.name(),
                state.accelerator.as_str(),
                state.in_flight(),
                "█".repeat(filled),
                "░".repeat(BAR_CELLS - filled),
                share * 100.0
            )
        };
        pool.iter().map(line).collect()
    }
}

impl Screen {
    fn new(endpoints: usize) -> Self {
        let all = MultiProgress::new();
        let bar = all.add(status::bar());
        let line = || all.add(status::text());
        let (rungs, errors) = (line(), line());
        let endpoints = (0..endpoints).map(|_| line()).collect();
        Self { all, bar, rungs, errors, endpoints }
    }
}

/// Median relative errors by accelerator class.
fn errors(errors: &[ClassError]) -> String {
    let percent =
        |error: Option<f32>| error.map_or("-".to_owned(), |e| format!("{:.0}", e * 100.0));
    let class = |error: &ClassError| {
        let (ttft, itl) = (error.ttft.median_error, error.itl.median_error);
        format!("{} {}/{}", accelerator(error), percent(ttft), percent(itl))
    };
    let classes: Vec<_> = errors.iter().map(class).collect();
    let text = if classes.is_empty() { "nothing yet".to_owned() } else { classes.join(", ") };
    format!("model error, median % of TTFT/ITL: {text}")
}
