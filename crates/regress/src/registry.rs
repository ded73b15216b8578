//! The one list of regressors. A new one is a file beside this, a `mod` line and a line here.

use crate::{Error, Kind, Result, mean, rls};

/// Every regressor a pool may name.
pub const REGRESSORS: &[Kind] = &[mean::KIND, rls::KIND];

/// The regressor called `name`.
pub fn kind(name: &str) -> Result<Kind> {
    REGRESSORS
        .iter()
        .find(|kind| kind.name == name)
        .copied()
        .ok_or_else(|| Error::Unknown(name.to_owned()))
}
