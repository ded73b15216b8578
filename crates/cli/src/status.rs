//! How far a replay is, as bars where a terminal shows them and as lines elsewhere.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use sim::Progress;
use types::Clock;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(200);
/// Looks per line, where lines are written: one line every five seconds.
const TICKS_PER_LINE: u64 = 25;

/// How far a replay is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Status {
    pub(crate) total: u64,
    pub(crate) sent: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Share of the ended ones that met the objective; `None` before the first.
    pub(crate) attainment: Option<f64>,
    /// Requests that ended per second of the trace, lately.
    pub(crate) per_s: f64,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} req/s, SLO met ", self.per_s)?;
        match self.attainment {
            Some(share) => write!(f, "{:.1} %", share * 100.0)?,
            None => f.write_str("-")?,
        }
        write!(f, ", {} failed", self.failed)
    }
}

/// A replay under watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) progress: Arc<Progress>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Times real time.
    pub(crate) time_scale: f64,
}

impl Watch {
    pub(crate) fn status(&self) -> Status {
        let progress = &self.progress;
        let done = progress.done_count();
        let recent = progress.recent(self.clock.now());
        Status {
            total: progress.total(),
            sent: progress.sent_count(),
            done,
            failed: progress.failed_count(),
            attainment: (done > 0).then(|| progress.met_count() as f64 / done as f64),
            per_s: recent.done_per_s / self.time_scale,
        }
    }

    /// Calls `draw` again and again with how far it is, and whether a line is due where lines are
    /// written. Ends when it is dropped.
    pub(crate) async fn show(&self, mut draw: impl FnMut(&Status, bool)) -> Infallible {
        let mut ticks = tokio::time::interval(TICK);
        let mut count = 0_u64;
        loop {
            ticks.tick().await;
            draw(&self.status(), count % TICKS_PER_LINE == TICKS_PER_LINE - 1);
            count += 1;
        }
    }
}

/// A bar that counts to a total, with a message.
pub(crate) fn bar() -> ProgressBar {
    let template = "{elapsed:>5} [{bar:40}] {pos}/{len} requests  {wide_msg}";
    ProgressBar::new(0).with_style(style(template))
}

/// A line of text among bars.
pub(crate) fn text() -> ProgressBar {
    ProgressBar::new(0).with_style(style("{wide_msg}"))
}

fn style(template: &str) -> ProgressStyle {
    // The templates here are right; the default bar would be no worse than a crash.
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// Moves `bar` to where `status` is.
pub(crate) fn advance(bar: &ProgressBar, status: &Status) {
    bar.set_length(status.total);
    bar.set_position(status.done);
}
