//! The configuration file, `slackline.yaml`: the options of the rooms, each under its own key.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use predict::PriorSource;
use router::Router;
use serde::Deserialize;
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

/// What the configuration says, checked. [`Config::default`] is an empty file.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the gateway listens. Default: `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Who is there: `static` or `file`. Default: nobody.
    pub endpoints: discovery::Options,
    /// How metrics of the endpoints are fetched.
    pub scrape: datalayer::Options,
    /// How requests are routed: the keys `schedule`, `learner` and `seed`.
    pub router: router::Options,
    /// Tuning of the gateway.
    pub gateway: gateway::Options,
    /// Tuning of the `ext_proc` front.
    pub epp: epp::Options,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            endpoints: discovery::Options::default(),
            scrape: datalayer::Options::default(),
            router: router::Options::default(),
            gateway: gateway::Options::default(),
            epp: epp::Options::default(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("configuration `{}` is not readable", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}:{column}: {reason}")]
    At {
        /// The file, as it was named to us.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong, with the path of the key.
        reason: String,
    },
}

/// The file as written. Sections whose content is checked beyond their shape know where they stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    listen: Option<SocketAddr>,
    endpoints: Option<discovery::Options>,
    scrape: Option<datalayer::Options>,
    schedule: Option<Spanned<schedule::Options>>,
    learner: Option<Spanned<predict::Options>>,
    seed: Option<u64>,
    gateway: Option<gateway::Options>,
    epp: Option<epp::Options>,
}

impl Config {
    /// Reads and checks the file at `path`. Relative paths in it, of endpoints and of priors, count from
    /// the folder it stands in.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(&text, &path.display().to_string())?;
        if let (discovery::Options::File(file), Some(folder)) =
            (&mut config.endpoints, path.parent())
        {
            file.path = folder.join(&file.path);
        }
        if let (PriorSource::File(file), Some(folder)) =
            (&mut config.router.learner.priors, path.parent())
        {
            *file = folder.join(&*file);
        }
        Ok(config)
    }

    /// Reads and checks `text`; `file` is its name in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let document = read(text, file)?;
        let schedule_at = document.schedule.as_ref().map(|section| section.referenced);
        let learner_at = document.learner.as_ref().map(|section| section.referenced);
        let fallback = Self::default();
        let config = Self {
            listen: document.listen.unwrap_or(fallback.listen),
            endpoints: document.endpoints.unwrap_or(fallback.endpoints),
            scrape: document.scrape.unwrap_or(fallback.scrape),
            router: router::Options {
                schedule: document.schedule.map(|section| section.value).unwrap_or_default(),
                learner: document.learner.map(|section| section.value).unwrap_or_default(),
                seed: document.seed.unwrap_or_default(),
                ..router::Options::default()
            },
            gateway: document.gateway.unwrap_or(fallback.gateway),
            epp: document.epp.unwrap_or(fallback.epp),
        };
        // Names of plugins and their options are known to a router only, so one is made to see.
        if let Err(error) = Router::new(config.router.clone(), Arc::default()) {
            let (key, at) = match error {
                router::Error::Learner(_) => ("learner", learner_at),
                _ => ("schedule", schedule_at),
            };
            return Err(at_location(file, at, &format!("{key}: {error}")));
        }
        Ok(config)
    }
}

fn read(text: &str, file: &str) -> Result<Document, ConfigError> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    let mut key = String::new();
    let document =
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            serde_path_to_error::deserialize::<_, Option<Document>>(deserializer).map_err(|error| {
                key = error.path().to_string();
                error.into_inner()
            })
        });
    document.map(Option::unwrap_or_default).map_err(|error| {
        let at = error.location();
        let text = error.to_string();
        let suffix = at.map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        let reason = suffix.and_then(|suffix| text.strip_suffix(&*suffix)).unwrap_or(&text);
        // The parser's hint is for programmers.
        let reason = reason.split_once(", set DuplicateKeyPolicy").map_or(reason, |(what, _)| what);
        // Sections that know where they stand are wrapped, and the wrapper is no key.
        let key = ["schedule", "learner"].into_iter().fold(key, |key, section| {
            match key.strip_prefix(section).and_then(|rest| rest.strip_prefix(".value")) {
                Some(rest) => format!("{section}{rest}"),
                None => key,
            }
        });
        let reason = match key.as_str() {
            "" | "." | "?" => reason.to_owned(),
            key if reason.contains(&format!("`{key}`")) => reason.to_owned(),
            key => format!("{key}: {reason}"),
        };
        at_location(file, at, &reason)
    })
}

fn at_location(file: &str, at: Option<Location>, reason: &str) -> ConfigError {
    // A location that the parser does not know is line 0.
    let (line, column) = at.map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    ConfigError::At { file: file.to_owned(), line, column, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text, "s.yaml").unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        for text in ["", "# nothing\n", "scrape:\nschedule:\ngateway:\n"] {
            let config = Config::parse(text, "s.yaml").unwrap();
            assert_eq!(config.listen, "127.0.0.1:8080".parse().unwrap());
            assert_eq!(config.scrape.interval_ms, 50);
            assert_eq!(config.router.schedule.policy, schedule::Policy::Learned);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_line_column_and_key() {
        for (text, at, words) in [
            ("listen: nowhere\n", "1:9", "listen"),
            ("seed: 1\nlissten: 127.0.0.1:1\n", "2:1", "unknown field `lissten`"),
            ("scrape:\n  interval_ms: fast\n", "2:16", "scrape.interval_ms"),
            ("scrape:\n  every_ms: 5\n", "2:3", "unknown field `every_ms`"),
            ("gateway:\n  default_slo: {ttft_ms: -1}\n", "2:26", "gateway.default_slo.ttft_ms"),
            ("schedule:\n  policy: best\n", "2:11", "schedule.policy"),
            ("endpoints:\n  dns: x\n", "2:3", "unknown variant `dns`"),
            ("seed: 1\nseed: 2\n", "2:1", "duplicate"),
            ("seed: 1\n}\n", "2:1", ""),
        ] {
            let error = refused(text);
            assert!(error.starts_with(&format!("s.yaml:{at}: ")), "{text:?} gave {error}");
            assert!(error.contains(words), "{text:?} gave {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn an_unknown_plugin_is_told_with_the_line_of_its_section() {
        let error = refused("schedule:\n  profile:\n    scorers: [{type: magic}]\n");
        assert!(error.starts_with("s.yaml:2:3: schedule: no scorer is called `magic`"), "{error}");
        let error = refused("seed: 1\nlearner: {regressors: [magic]}\n");
        assert!(
            error.starts_with("s.yaml:2:10: learner: no regressor is called `magic`"),
            "{error}"
        );
    }
}
