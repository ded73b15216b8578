//! Who is there: static and file discovery.
//!
//! A kind of discovery gives one [`EndpointSet`] after another on a watch channel. Nothing here
//! asks how an endpoint is; that is for the data layer.

mod discovery;
mod entry;
mod node;
mod options;
mod parse;
mod problem;
mod set;
mod source;
mod watch;

pub use discovery::{Discovery, start};
pub use options::{FileOptions, Inline, Options};
pub use parse::{MAX_FILE_BYTES, Parsed, parse};
pub use problem::{Problem, Severity};
pub use set::EndpointSet;
pub use source::Error;
