//! What outlives the process: samples, model state and calibration, in sled on disk.
//!
//! Everything here can be relearned, so nothing here may stop routing: a store that cannot be read
//! is moved aside and a fresh one is opened, damage to one value is told from its absence, and
//! [`Writer`] keeps the disk off the request path.
//!
//! Below [`Options::path`] lie `lock`, `manifest` (schema version, and which database is current)
//! and `store-<n>`, the sled database. Values stay under 7 KiB, since sled keeps a leaf of sixteen
//! in its log only up to a quarter of a segment and never reclaims well what it keeps outside.

mod aside;
mod blobs;
mod books;
mod chunk;
mod disk;
mod error;
mod home;
mod manifest;
mod options;
mod samples;
mod seal;
mod store;
mod writer;

pub use error::Error;
pub use home::Found;
pub use options::Options;
pub use store::{Opened, Store};
pub use writer::Writer;
