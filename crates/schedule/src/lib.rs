//! Chooses an endpoint: filters narrow, scorers rank, a picker decides.
//!
//! [`Scheduler::decide`] walks the ladder: the learned pick (least expected added misses) where
//! predictions can be trusted, else the weighted heuristic scorers, else least work in flight, else
//! random. Nothing here blocks, and nothing reads a clock.

mod candidate;
mod decision;
mod explain;
mod filters;
mod misses;
mod options;
mod pickers;
mod profile;
mod scheduler;
mod scorers;

pub use candidate::{Candidate, Filter, Kind, Picker, Scorer};
pub use decision::{Decision, Explanation, Reason, Rung};
pub use filters::FILTERS;
pub use misses::{Cost, MissOptions, costs};
pub use options::{Options, Plugin, Policy, ProfileOptions, WeightedPlugin};
pub use pickers::PICKERS;
pub use profile::{Error, Profile};
pub use scheduler::Scheduler;
pub use scorers::SCORERS;
