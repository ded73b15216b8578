//! What configuration says about discovery.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;
use types::Endpoint;

use crate::entry::{self, Port, Reason};

/// Which kind of discovery, with its tuning: `{static: […]}` or `{file: {path, watch}}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Options {
    /// The endpoints stand in the configuration and never change.
    Static(Vec<Inline>),
    /// The endpoints stand in a file of llm-d's `file-discovery` schema.
    File(FileOptions),
}

impl Default for Options {
    /// No endpoints.
    fn default() -> Self {
        Self::Static(Vec::new())
    }
}

/// Where the endpoints file is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOptions {
    /// Path of the file, YAML or JSON.
    pub path: PathBuf,
    /// Whether to follow its changes. llm-d calls this `watchFile`, and there it is off by default.
    #[serde(alias = "watchFile", default = "on")]
    pub watch: bool,
}

fn on() -> bool {
    true
}

/// An endpoint that stands in the configuration: the fields of a file entry, unknown ones refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "Fields")]
pub struct Inline(Endpoint);

impl Inline {
    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0
    }
}

impl From<Endpoint> for Inline {
    fn from(endpoint: Endpoint) -> Self {
        Self(endpoint)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: String,
    #[serde(default)]
    namespace: String,
    address: String,
    port: Port,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl TryFrom<Fields> for Inline {
    type Error = Reason;

    fn try_from(fields: Fields) -> Result<Self, Reason> {
        let id = entry::identity(&fields.name, &fields.namespace)?;
        let address = entry::address(&fields.address, entry::port(&fields.port)?)?;
        Ok(Self(Endpoint { id, address, labels: fields.labels }))
    }
}
