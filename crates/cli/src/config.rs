//! The configuration file, `slackline.yaml`: the options of the rooms, each under its own key.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use predict::PriorSource;
use router::Router;
use serde::Deserialize;

use crate::yaml::{self, ConfigError, Places};

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

/// The file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    listen: Option<SocketAddr>,
    endpoints: Option<discovery::Options>,
    scrape: Option<datalayer::Options>,
    schedule: Option<schedule::Options>,
    learner: Option<predict::Options>,
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
        let document = yaml::read::<Document>(text, file)?.unwrap_or_default();
        let fallback = Self::default();
        let config = Self {
            listen: document.listen.unwrap_or(fallback.listen),
            endpoints: document.endpoints.unwrap_or(fallback.endpoints),
            scrape: document.scrape.unwrap_or(fallback.scrape),
            router: router::Options {
                schedule: document.schedule.unwrap_or_default(),
                learner: document.learner.unwrap_or_default(),
                seed: document.seed.unwrap_or_default(),
                ..router::Options::default()
            },
            gateway: document.gateway.unwrap_or(fallback.gateway),
            epp: document.epp.unwrap_or(fallback.epp),
        };
        // Names of plugins and their options are known to a router only, so one is made to see.
        if let Err(error) = Router::new(config.router.clone(), Arc::default()) {
            let key = match error {
                router::Error::Learner(_) => "learner",
                _ => "schedule",
            };
            let at = Places::of(text, file)?.find(key);
            return Err(yaml::at_location(file, at, &format!("{key}: {error}")));
        }
        Ok(config)
    }
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
