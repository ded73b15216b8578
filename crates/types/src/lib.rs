//! The nouns every room shares: requests, endpoint identities, objectives, units and time.
//!
//! Nothing here does I/O or spawns a task. The one real clock, [`SystemClock`], stands here so that
//! no other room needs to name the operating system's.

mod clock;
mod endpoint;
mod options;
mod request;
mod units;

pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use endpoint::{Accelerator, Address, AddressError, Endpoint, EndpointId, Role};
pub use options::{NoOptions, OptionsError, read_options};
pub use request::{Api, Request, Slo, SubsetEntry};
pub use units::Millis;
