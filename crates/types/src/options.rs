//! How a plugin reads the options that configuration gives it.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// Reads the options of the plugin called `kind`; `null` means none.
pub fn read_options<T: DeserializeOwned>(
    kind: &'static str,
    options: &Value,
) -> Result<T, OptionsError> {
    let none = Value::Object(serde_json::Map::new());
    let options = if options.is_null() { &none } else { options };
    T::deserialize(options).map_err(|source| OptionsError { kind, source })
}

/// For a plugin with nothing to tune: any key is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// The options do not fit the plugin.
#[derive(Debug, thiserror::Error)]
#[error("options for `{kind}` are not valid: {source}")]
pub struct OptionsError {
    kind: &'static str,
    source: serde_json::Error,
}
