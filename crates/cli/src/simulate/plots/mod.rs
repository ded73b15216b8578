//! The plots of a laboratory report, as SVG: what a person looks at before the figures.

mod curves;
mod fleets;
mod frame;
mod ink;
mod predicted;
mod rows;
mod scale;

use sim::{LabReport, PolicyAbout};

use super::figures::{Load, loads, seeds, shown, told_seeds};

pub(super) use fleets::numbered;
pub(super) use ink::Inks;

/// A report with what is looked up in it again and again.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub report: &'a LabReport,
    /// Least first.
    pub loads: Vec<Load<'a>>,
    /// Which of them is shown where only one is.
    pub shown: usize,
    pub inks: Inks,
}

impl<'a> View<'a> {
    pub(super) fn new(report: &'a LabReport) -> Self {
        let loads = loads(report);
        let shown = shown(report, &loads);
        Self { report, loads, shown, inks: Inks::new(report) }
    }

    /// The load that is shown where only one is.
    pub(super) fn load(&self) -> Option<&Load<'a>> {
        self.loads.get(self.shown)
    }

    /// Policies that ran at `load`.
    pub(super) fn policies(&self, load: &Load<'_>) -> Vec<&'a PolicyAbout> {
        let ran = |policy: &&PolicyAbout| !load.runs(&policy.name).is_empty();
        self.report.policies.iter().filter(ran).collect()
    }

    /// The name of `policy`, marked if it is an oracle.
    pub(super) fn name(&self, policy: &str) -> String {
        let about = self.report.policies.iter().find(|about| about.name == *policy);
        about.map_or_else(|| policy.to_owned(), named)
    }

    /// What stands for a figure of several seeds, and how the seeds differ.
    fn seeds(&self, range: &str) -> String {
        match &*seeds(self.report) {
            seeds @ [_, _, ..] => format!("Mean of {}; {range}.", told_seeds(seeds)),
            seeds => {
                format!("From {}: how much another seed differs is not known.", told_seeds(seeds))
            }
        }
    }
}

/// A plot, or several that belong together, with what is needed to read them.
#[derive(Debug)]
pub(super) struct Plot {
    /// What is to be seen.
    pub title: String,
    pub svgs: Vec<String>,
    pub caption: String,
    /// Legend: a symbol as SVG, and what it stands for.
    pub keys: Vec<(String, String)>,
}

/// Every plot that the report has something for.
pub(super) fn all(view: &View<'_>) -> anyhow::Result<Vec<Plot>> {
    let mut plots = curves::against_load(view)?;
    plots.extend(rows::goodput(view)?);
    if let Some(load) = view.load() {
        plots.extend(curves::latencies(view, load)?);
        plots.extend(rows::by_class(view, load)?);
        plots.extend(rows::figures(view, load)?);
        plots.extend(rows::utilization(view, load)?);
        plots.extend(predicted::all(view, load)?);
    }
    plots.extend(fleets::all(view)?);
    Ok(plots)
}

/// The load in a title.
fn at(load: &Load<'_>) -> String {
    format!("at {:.1} requests/s", load.rps)
}

/// A policy in a legend, a table or beside a row.
pub(super) fn named(policy: &PolicyAbout) -> String {
    if policy.oracle { format!("{} (oracle)", policy.name) } else { policy.name.clone() }
}

/// The legend of `policies`.
fn keys<'p>(
    view: &View<'_>,
    policies: impl IntoIterator<Item = &'p PolicyAbout>,
) -> Vec<(String, String)> {
    policies.into_iter().map(|policy| (view.inks.swatch(&policy.name), named(policy))).collect()
}
