//! The list of online regressors, and look-up by name in both lists. A new online regressor is a
//! file beside this, a `mod` line and a line here; a batch one stands in the folder `batch`.

use crate::{BATCH, BatchKind, Error, Kind, Result, mean, rls};

/// Every online regressor a pool may name.
pub const REGRESSORS: &[Kind] = &[mean::KIND, rls::KIND];

/// The online regressor called `name`.
pub fn kind(name: &str) -> Result<Kind> {
    REGRESSORS
        .iter()
        .find(|kind| kind.name == name)
        .copied()
        .ok_or_else(|| Error::Unknown(name.to_owned()))
}

/// The batch regressor called `name`.
pub fn batch_kind(name: &str) -> Result<BatchKind> {
    BATCH
        .iter()
        .find(|kind| kind.name == name)
        .copied()
        .ok_or_else(|| Error::Unknown(name.to_owned()))
}
