//! `slackline check`: what is wrong in a configuration or a scenario, and what it comes to.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::ValueEnum;
use sim::{Fleet, Lab, Spec};

use crate::{
    config::Config,
    output, priors,
    simulate::{self, Overrides},
    yaml::{ConfigError, Places},
};

/// Keys that only a scenario has.
const SCENARIO_KEYS: [&str; 8] =
    ["workload", "fleet", "fleets", "classes", "policies", "horizon_s", "seeds", "model"];

/// Check a configuration or a scenario, and show what it comes to
///
/// Tells the first thing that is wrong by file, line, column and key. A file with a workload, a fleet or
/// policies is a scenario of `slackline simulate`; any other is a configuration of `slackline serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to check
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the JSON schema of this kind of file
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "file")]
    schema: Option<Kind>,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Kind {
    /// A scenario of `slackline simulate`
    Scenario,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.file, args.schema) {
        (_, Some(Kind::Scenario)) => {
            output::line(serde_json::to_string_pretty(&schemars::schema_for!(Spec))?)
        }
        (Some(path), None) => check(path),
        (None, None) => bail!("no file is named"),
    }
}

fn check(path: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let places = Places::of(&text, &name)?;
    let is_scenario = places.keys().any(|key| SCENARIO_KEYS.contains(&key));
    let about = if is_scenario {
        of_scenario(&simulate::parse(&text, path, &Overrides { jobs: 1, ..Overrides::default() })?)?
    } else {
        of_config(&Config::load(path)?)?
    };
    output::line(format_args!("{name}: ok"))?;
    for (what, words) in about {
        output::line(format_args!("  {what:<10} {words}"))?;
    }
    Ok(())
}

/// What a file comes to, by what it is about.
type About = Vec<(&'static str, String)>;

fn of_scenario(lab: &Lab) -> anyhow::Result<About> {
    let report = lab.about();
    let spec = &lab.spec;
    let named = spec.fleets.0.iter().map(|(name, _)| {
        let fleet = Fleet::of(spec, Some(name))?;
        Ok(("fleet", format!("{name}: {}", priced(&fleet))))
    });
    let mut fleets = named.collect::<anyhow::Result<About>>()?;
    if fleets.is_empty() {
        fleets.push(("fleet", priced(&lab.fleet)));
    }
    let rate = lab.nominal_rate()?;
    let policies: Vec<_> = report.policies.iter().map(|policy| policy.name.as_str()).collect();
    let (loads, seeds) = (spec.loads.len(), spec.seeds.0.len());
    let runs = policies.len() * loads * seeds;
    let mut about = vec![("scenario", format!("{}: {}", report.scenario, report.about))];
    about.extend(fleets);
    about.push(("workload", report.workload));
    for class in report.classes {
        let limit = |ms: Option<f32>| ms.map_or_else(|| "any".to_owned(), |ms| format!("{ms} ms"));
        let (ttft, itl) = (limit(class.ttft_ms), limit(class.itl_ms));
        let words = format!("{}: TTFT {ttft}, ITL {itl}, weight {}", class.name, class.weight);
        about.push(("class", words));
    }
    about.push(("policies", policies.join(", ")));
    about.push((
        "runs",
        format!(
            "{runs} of {} s with about {:.0} requests at {rate:.2} per second",
            spec.horizon_s,
            rate * spec.horizon_s
        ),
    ));
    Ok(about)
}

fn priced(fleet: &Fleet) -> String {
    let price = fleet.price_per_hour();
    let words = fleet.words();
    if price > 0.0 { format!("{words}; {price:.2} per hour") } else { words }
}

fn of_config(config: &Config) -> anyhow::Result<About> {
    priors::load(&config.router.learner.priors)?;
    let endpoints = match &config.endpoints {
        discovery::Options::File(file) => format!("those in {}", file.path.display()),
        discovery::Options::Static(endpoints) => format!("{} listed here", endpoints.len()),
    };
    let word = |value: serde_json::Result<serde_json::Value>| match value {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    };
    let schedule = &config.router.schedule;
    let scorers: Vec<_> = schedule
        .profile
        .scorers
        .iter()
        .map(|scorer| format!("{} {}", scorer.name, scorer.weight))
        .collect();
    let filters: Vec<_> = schedule.profile.filters.iter().map(|f| f.name.as_str()).collect();
    let learner = &config.router.learner;
    let learners =
        [&learner.regressors, &learner.experts, &learner.batch].into_iter().flatten().cloned();
    Ok(vec![
        ("listen", config.listen.to_string()),
        ("endpoints", endpoints),
        ("policy", word(serde_json::to_value(schedule.policy))),
        ("filters", filters.join(", ")),
        ("scorers", scorers.join(", ")),
        ("picker", schedule.profile.picker.name.clone()),
        ("learners", learners.collect::<Vec<_>>().join(", ")),
    ])
}
