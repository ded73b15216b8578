//! Chooses an endpoint: filters narrow, scorers rank, a picker decides.
//!
//! [`Scheduler::decide`] walks the ladder: the learned pick (least expected added misses) where
//! predictions can be trusted, else the weighted heuristic scorers, else least work in flight, else
//! random. Nothing here blocks, and nothing reads a clock.

mod candidate;
mod decision;
mod draw;
mod error;
mod explain;
mod filters;
mod headroom;
mod misses;
mod options;
mod pickers;
mod profile;
mod ranges;
mod rule;
mod scheduler;
mod scorers;

pub use candidate::{Candidate, Filter, Kind, Picker, Scorer};
pub use decision::{Decision, Explanation, Reason, Rung};
pub use error::Error;
pub use filters::FILTERS;
pub use misses::{Cost, MissOptions, Source, Width, costs};
pub use options::{Options, Plugin, Policy, ProfileOptions, WeightedPlugin};
pub use pickers::PICKERS;
pub use profile::Profile;
pub use rule::Rule;
pub use scheduler::Scheduler;
pub use scorers::SCORERS;
