//! The same fleet, trace and seed in virtual time, under four policies.

use std::{fmt::Write as _, io, io::IsTerminal as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use predict::{PriorSource, Priors};
use schedule::Policy;
use sim::{Chooser, Class, Member, Report, Scenario, Simulated, Timing, Trace, simulate};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{MODEL, model_error, slo};
use crate::{output, priors};

/// The policies, by the names that the report gives them.
const POLICIES: [(&str, Policy); 4] = [
    ("slackline (learned)", Policy::Learned),
    ("llm-d (our reading)", Policy::Heuristic),
    ("least-requests", Policy::LeastRequests),
    ("round-robin", Policy::RoundRobin),
];
/// What the second of them is.
const LLM_D: &str = "llm-d: its optimized baseline (queue 2, KV cache 2, prefix 3, no-hit-LRU 2) by \
                     our reading of its scorers.";
/// Simulations that run at one time.
const AT_ONCE: usize = 2;
/// Time between two scrapes, as in the live part.
const SCRAPE_EVERY: Duration = Duration::from_millis(50);

/// Runs every policy, each with nothing learned but what priors tell.
pub(super) async fn run(fleet: Vec<Member>, trace: Trace, seed: u64) -> anyhow::Result<Report> {
    let priors = priors::load(&PriorSource::Builtin)?;
    let shared = Arc::new((fleet, trace));
    let spinner = spinner();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (at, (name, policy)) in POLICIES.into_iter().enumerate() {
        let (shared, slots) = (Arc::clone(&shared), Arc::clone(&slots));
        let scenario = scenario(policy, seed, Arc::clone(&priors));
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let play = move || simulate(name, &shared.0, &shared.1, &scenario);
            (at, tokio::task::spawn_blocking(play).await)
        });
    }
    let mut results: Vec<Option<Simulated>> = vec![None; POLICIES.len()];
    while let Some(ended) = running.join_next().await {
        let (at, played) = ended.context("a simulation ended badly")?;
        results[at] = Some(played.context("a simulation ended badly")??);
        spinner.inc(1);
    }
    spinner.finish_and_clear();
    let mut report = Report::default();
    for simulated in results.into_iter().flatten() {
        if report.policies.is_empty() {
            report.model_error = model_error(&simulated.errors);
        }
        report.policies.push(simulated.report);
    }
    Ok(report)
}

fn scenario(policy: Policy, seed: u64, priors: Arc<Priors>) -> Scenario {
    let schedule = schedule::Options { policy, ..schedule::Options::default() };
    let options = router::Options { schedule, seed, priors, ..router::Options::default() };
    Scenario {
        timing: Timing { scrape_every: SCRAPE_EVERY, ..Timing::default() },
        ..Scenario::new(Chooser::Router(options), vec![Class::only(slo())], MODEL)
    }
}

fn spinner() -> ProgressBar {
    const DOING: &str = "comparing four policies on the same trace in virtual time";
    if !io::stderr().is_terminal() {
        output::note(DOING);
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}: {pos} of {len} done, {elapsed}");
    let spinner = ProgressBar::new(POLICIES.len() as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(DOING);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// The comparison for people: a table, what its names mean, and what it comes to.
pub(super) fn told(report: &Report) -> String {
    let table = Report { model_error: [].into(), ..report.clone() };
    let mut text = table.table();
    let errors: Vec<_> =
        report.model_error.iter().map(|(key, error)| format!("{key} {error:.2}")).collect();
    for line in errors.chunks(3) {
        let _ = writeln!(text, "model error: {}", line.join(", "));
    }
    let _ = writeln!(text, "{LLM_D}\n\n{}", verdict(report));
    text
}

/// By how much the first policy is ahead of each other one.
fn verdict(report: &Report) -> String {
    let [learned, others @ ..] = &*report.policies else { return String::new() };
    let than = |other: &sim::PolicyReport| {
        let points = (learned.attainment - other.attainment) * 100.0;
        let way = if points < 0.0 { "fewer" } else { "more" };
        format!("{:.1} points {way} than {}", points.abs(), other.name)
    };
    format!(
        "Learned routing met the objective of {:.1} % of the requests: {}.",
        learned.attainment * 100.0,
        listed(&others.iter().map(than).collect::<Vec<_>>())
    )
}

/// `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use sim::PolicyReport;

    use super::*;

    fn policy(name: &str, attainment: f64) -> PolicyReport {
        let json = serde_json::json!({
            "name": name, "requests": 100, "attainment": attainment, "offered_rps": 3.0,
            "goodput_rps": 3.0 * attainment, "throughput_tokens_per_s": 900.0,
            "ttft_ms": {}, "itl_ms": {}, "e2e_ms": {}, "errors": {}, "share": {}
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_verdict_says_by_how_much_and_which_way() {
        let policies =
            vec![policy("a", 0.9), policy("b", 0.85), policy("c", 0.912), policy("d", 0.1)];
        let report = Report { policies, ..Report::default() };
        assert_eq!(
            verdict(&report),
            "Learned routing met the objective of 90.0 % of the requests: 5.0 points more than b, \
             1.2 points fewer than c and 80.0 points more than d."
        );
    }
}
