//! Policies by name: those that come with the program, configuration files, and oracles.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sim::{Chooser, OracleOptions, OracleSpec, Policy, PolicySpec};

use crate::{config::Config, priors};

/// A policy that comes with the program: its name, and the file it is.
type BuiltIn = (&'static str, &'static str);

/// The policy of this name in `config/policies`.
macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../config/policies/", $name, ".yaml")))),*]
    };
}

/// The files of `config/policies`, in the order of its README.
const BUILT_IN: &[BuiltIn] = built_in![
    "random",
    "round-robin",
    "least-requests",
    "power-of-two",
    "session-affinity",
    "llm-d-optimized-baseline",
    "llm-d-tuned",
    "llm-d-token-aware",
    "llm-d-token-aware-decode",
    "llm-d-token-aware-32b",
    "llm-d-token-aware-decode-32b",
    "llm-d-predicted-latency",
    "dynamo",
    "smg-cache-aware",
    "slackline",
    "slackline-no-harm",
    "slackline-width-0.1",
    "slackline-width-0.3",
    "slackline-calibrated",
    "slackline-explore",
    "slackline-rls",
    "slackline-twin",
    "slackline-trees",
    "slackline-mean",
    "greedy-ttft",
    "greedy-e2e",
    "most-slack",
    "best-fit",
];

/// Why there is no such policy.
#[derive(Debug, thiserror::Error)]
pub(super) enum PolicyError {
    /// None that comes with the program has this name.
    #[error("no policy is called `{0}`")]
    Unknown(String),
    /// Its file cannot be used.
    #[error(transparent)]
    File(anyhow::Error),
}

/// Names of all that come with the program.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let oracles = [OracleSpec::TrueLatency, OracleSpec::Clairvoyant];
    BUILT_IN.iter().map(|(name, _)| *name).chain(oracles.map(oracle_name))
}

/// The policy that an entry of a scenario names; relative paths in it count from `folder`.
pub(super) fn resolve(spec: &PolicySpec, folder: &Path) -> Result<Policy, PolicyError> {
    let named = |oracle: &OracleSpec| oracle_name(*oracle) == spec.name;
    let oracles = [OracleSpec::TrueLatency, OracleSpec::Clairvoyant];
    let implied = oracles.into_iter().find(named).filter(|_| spec.file.is_none());
    if let Some(oracle) = spec.oracle.or(implied) {
        return Ok(of_oracle(spec, oracle));
    }
    let (config, about) = match &spec.file {
        Some(file) => {
            let file = folder.join(file);
            let config = Config::load(&file).map_err(|error| PolicyError::File(error.into()))?;
            (config, file.display().to_string())
        }
        None => built_in(&spec.name)?,
    };
    let mut options = config.router;
    options.priors = priors::load(&options.learner.priors).map_err(PolicyError::File)?;
    Ok(Policy {
        name: spec.name.clone(),
        about: spec.about.clone().unwrap_or(about),
        chooser: Chooser::Router(options),
    })
}

/// The policy that a flag names: one that comes with the program, or a file.
pub(super) fn from_flag(name: &str) -> PolicySpec {
    let path = PathBuf::from(name);
    let is_file = path.extension().is_some_and(|extension| extension == "yaml");
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    match stem {
        // Paths of flags count from where the program runs, not from the scenario.
        Some(stem) if is_file => {
            let file = std::path::absolute(&path).unwrap_or(path);
            PolicySpec { name: stem, file: Some(file), ..PolicySpec::default() }
        }
        _ => PolicySpec { name: name.to_owned(), ..PolicySpec::default() },
    }
}

fn built_in(name: &str) -> Result<(Config, String), PolicyError> {
    let (_, text) = BUILT_IN
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| PolicyError::Unknown(name.to_owned()))?;
    let config = Config::parse(text, &format!("config/policies/{name}.yaml (built in)"))
        .map_err(|error| PolicyError::File(error.into()))?;
    Ok((config, about(text)))
}

/// The first sentence of the comment that `text` begins with.
fn about(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let paragraph: Vec<_> = comment.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split_once(". ").map_or(&*paragraph, |(first, _)| first);
    sentence.trim_end_matches('.').to_owned()
}

fn oracle_name(oracle: OracleSpec) -> &'static str {
    match oracle {
        OracleSpec::TrueLatency => "true-latency",
        OracleSpec::Clairvoyant => "clairvoyant",
    }
}

fn of_oracle(spec: &PolicySpec, oracle: OracleSpec) -> Policy {
    let (options, about) = match oracle {
        OracleSpec::TrueLatency => (
            OracleOptions::TrueLatency,
            "an oracle: knows what every request takes on each endpoint now",
        ),
        OracleSpec::Clairvoyant => (
            clairvoyant(spec),
            "an oracle: knows what every request takes and the requests to come",
        ),
    };
    Policy {
        name: spec.name.clone(),
        about: spec.about.clone().unwrap_or_else(|| about.to_owned()),
        chooser: Chooser::Oracle(options),
    }
}

fn clairvoyant(spec: &PolicySpec) -> OracleOptions {
    let OracleOptions::Clairvoyant { window, breadth } = OracleOptions::CLAIRVOYANT else {
        return OracleOptions::CLAIRVOYANT;
    };
    let asked = spec.window_s.and_then(|window_s| Duration::try_from_secs_f64(window_s).ok());
    OracleOptions::Clairvoyant {
        window: asked.unwrap_or(window),
        breadth: spec.breadth.unwrap_or(breadth),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn every_file_of_the_folder_comes_with_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/policies");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|ext| ext == "yaml"));
        let there: BTreeSet<_> =
            files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let known: BTreeSet<_> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, there);
        assert_eq!(known.len(), BUILT_IN.len());
    }

    #[test]
    fn a_policy_is_told_by_the_first_sentence_of_its_file() {
        assert_eq!(about("# Any endpoint.\n#\n# More.\nseed: 1\n"), "Any endpoint");
        assert_eq!(
            about("# Our reading of X\n# at work. Not Y (v1.2).\n"),
            "Our reading of X at work"
        );
        assert_eq!(about("seed: 1\n"), "");
    }

    #[test]
    fn every_policy_that_comes_with_the_program_is_usable_and_tells_what_it_is() {
        for name in names() {
            let spec = from_flag(name);
            let policy = resolve(&spec, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(policy.name, name);
            assert!(policy.about.len() > 5, "{name}: {}", policy.about);
        }
    }
}
