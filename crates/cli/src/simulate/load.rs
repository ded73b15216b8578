//! Reads a scenario file, and tells what is wrong in it by line, column and key.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;
use sim::{Fleet, Lab, Seeds, Spec, TraceError, Wrong};

use super::policies::{self, PolicyError};
use crate::yaml::{self, ConfigError, Places};

/// What flags say in place of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// The fleet of several.
    pub(crate) fleet: Option<String>,
    /// Policies by name or file; none leaves those of the scenario.
    pub(crate) policies: Vec<String>,
    /// Seeds; none leaves those of the scenario.
    pub(crate) seeds: Vec<u64>,
    /// Factors on the rate; none leaves those of the scenario.
    pub(crate) loads: Vec<f64>,
    /// One more factor on all of them.
    pub(crate) speed: Option<f64>,
    /// At most so many requests of each trace.
    pub(crate) requests: Option<usize>,
    /// Simulations at one time.
    pub(crate) jobs: usize,
}

/// A scenario file: its text with its name in errors, and where things stand in it.
struct File {
    name: String,
    places: Places,
}

/// Reads and checks the scenario at `path`.
pub(crate) fn load(path: &Path, overrides: &Overrides) -> anyhow::Result<Lab> {
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text, path, overrides)
}

/// Checks the scenario that is `text`, of the file at `path`.
pub(crate) fn parse(text: &str, path: &Path, overrides: &Overrides) -> anyhow::Result<Lab> {
    let name = path.display().to_string();
    let Some(mut spec) = yaml::read::<Spec>(text, &name)? else {
        bail!("{name}:1:1: the file is empty");
    };
    let file = File { places: Places::of(text, &name)?, name };
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let mut ready = Vec::new();
    for (at, entry) in spec.policies.iter().enumerate() {
        let policy = policies::resolve(entry, &folder).map_err(|error| file.policy(at, error))?;
        ready.push(policy);
    }
    // What the file says is checked also where a flag goes before it.
    let fleets = spec.fleets.0.iter().map(|(name, _)| Some(name.as_str()));
    for name in std::iter::once(None).chain(fleets) {
        let fleet = Fleet::of(&spec, name).map_err(|wrong| file.at(&wrong))?;
        if name.is_none() || name == overrides.fleet.as_deref() {
            spec.check(&fleet).map_err(|wrong| file.at(&wrong))?;
        }
    }
    let fleet = match &overrides.fleet {
        Some(name) => Fleet::of(&spec, Some(name)).map_err(|wrong| flag("--fleet", &wrong))?,
        None => Fleet::of(&spec, None).map_err(|wrong| file.at(&wrong))?,
    };
    spec.workload.nominal_rate(&folder).map_err(|error| file.trace(error, &folder))?;
    if !overrides.policies.is_empty() {
        let chosen = overrides.policies.iter().map(|name| {
            match ready.iter().find(|policy| policy.name == *name) {
                Some(policy) => Ok(policy.clone()),
                None => by_flag(name),
            }
        });
        ready = chosen.collect::<anyhow::Result<_>>()?;
    }
    if ready.is_empty() {
        bail!("{}: no policy is named: add `policies`, or use --policy", file.name);
    }
    apply(&mut spec, overrides);
    Ok(Lab {
        spec,
        folder,
        fleet,
        policies: ready,
        requests: overrides.requests,
        jobs: overrides.jobs,
        clock: None,
    })
}

fn apply(spec: &mut Spec, overrides: &Overrides) {
    if !overrides.seeds.is_empty() {
        spec.seeds = Seeds(overrides.seeds.clone());
    }
    if !overrides.loads.is_empty() {
        spec.loads.clone_from(&overrides.loads);
    }
    if let Some(speed) = overrides.speed {
        for load in &mut spec.loads {
            *load *= speed;
        }
    }
}

fn by_flag(name: &str) -> anyhow::Result<sim::Policy> {
    match policies::resolve(&policies::from_flag(name), Path::new("")) {
        Ok(policy) => Ok(policy),
        Err(PolicyError::Unknown(name)) => {
            let near = yaml::did_you_mean(&name, policies::names());
            bail!("--policy: no policy is called `{name}`{near}")
        }
        Err(PolicyError::File(error)) => Err(error),
    }
}

fn flag(name: &str, wrong: &Wrong) -> anyhow::Error {
    anyhow::anyhow!("{name}: {}{}", wrong.reason, nearest(wrong))
}

fn nearest(wrong: &Wrong) -> String {
    let known = wrong.known.iter().map(String::as_str);
    wrong.name.as_deref().map_or_else(String::new, |name| yaml::did_you_mean(name, known))
}

impl File {
    fn at(&self, wrong: &Wrong) -> ConfigError {
        let key = if wrong.path.is_empty() { String::new() } else { format!("{}: ", wrong.path) };
        let reason = format!("{key}{}{}", wrong.reason, nearest(wrong));
        yaml::at_location(&self.name, self.places.find(&wrong.path), &reason)
    }

    fn policy(&self, at: usize, error: PolicyError) -> anyhow::Error {
        let path = format!("policies[{at}]");
        match error {
            PolicyError::Unknown(name) => {
                let known = policies::names().map(str::to_owned);
                let reason = format!("no policy is called `{name}`");
                self.at(&Wrong::unknown(path, reason, &name, known)).into()
            }
            PolicyError::File(error) => {
                self.at(&Wrong::at(path, crate::output::sentence(&error))).into()
            }
        }
    }

    /// A trace that cannot be read stands where the workload names it.
    fn trace(&self, error: TraceError, folder: &Path) -> anyhow::Error {
        let message = crate::output::sentence(&error.into());
        let names = |text: &str| {
            let full: PathBuf = folder.join(text);
            !text.is_empty() && message.contains(&full.display().to_string())
        };
        let (key, at) = self.places.find_text("workload", names).map_or_else(
            || ("workload".to_owned(), self.places.find("workload")),
            |(key, at)| (key, Some(at)),
        );
        yaml::at_location(&self.name, at, &format!("{key}: {message}")).into()
    }
}
