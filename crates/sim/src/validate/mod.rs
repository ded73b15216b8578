//! How far the simulated engine is off real ones: measured operating points replayed in virtual
//! time.
//!
//! Which rows were fitted, which were held out and which are left out is part of the result, since
//! an error means little without it.

mod cycles;
mod data;
mod plan;
mod play;
mod result;
mod silicon;
mod sweeps;
mod table;

pub use result::{FidelityErrors, FidelityGroup, FidelityPoint, Sample, SkippedRows, Validation};

use self::plan::{Skips, play_all};
use crate::{engine::Rejected, profile::ProfileError};

/// Version of the shape of [`Validation`].
const VERSION: u32 = 1;

/// The measured rows cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// A table that comes with the program cannot be read.
    #[error("cannot read the table `{file}`")]
    Data {
        /// Its name.
        file: &'static str,
        /// Why.
        source: csv::Error,
    },
    /// No profile stands in the program's table.
    #[error(transparent)]
    Lookup(#[from] ProfileError),
    /// No profile stands in the validation's table.
    #[error("no validation profile for `{model}` over {tp} GPUs")]
    Profile {
        /// The model.
        model: String,
        /// GPUs per engine.
        tp: u32,
    },
    /// The engine does not take a request of the replay.
    #[error("the simulated engine refuses a request")]
    Refused(#[from] Rejected),
}

/// Replays every measured row that the simulation models, on `jobs` threads.
///
/// Deterministic: neither `jobs` nor the machine changes the result.
pub fn validate(jobs: usize) -> Result<Validation, ValidateError> {
    let profiles = data::profiles()?;
    let mut skips = Skips::default();
    let mut plans = sweeps::plans(&profiles, &mut skips)?;
    plans.extend(silicon::plans(&profiles, &mut skips)?);
    let mut groups = play_all(plans, jobs)?;
    groups.extend(cycles::groups(&profiles, &mut skips)?);
    Ok(Validation { version: VERSION, groups, skipped: skips.rows() })
}
