//! The hallway: one request walks from room to room in [`Router::route`]. Read that function first.
//!
//! No async, no socket: fronts call [`Router::route`], show the response to an [`Observer`], and the
//! learner gets its label. The simulator calls the same functions in virtual time.

mod end;
mod flight;
mod front;
mod learning;
mod metrics;
mod observer;
mod record;
mod refusal;
mod route;
mod tokens;

pub use end::End;
pub use flight::Flight;
pub use front::{
    BodyError, Fault, Head, HeaderError, Kind, ResponseScanner, Seen, Usage, read_request,
    read_scope, read_session, read_slo,
};
pub use learning::Refits;
pub use observer::Observer;
pub use record::{Alternative, Considered, Known, MOST_CANDIDATES, MOST_STEPS, Recorded, Recorder};
pub use refusal::{Blame, Refusal};
pub use route::{Error, Options, Routed, Router};
