//! The OpenAI-compatible HTTP front: reads a request, asks the router where it goes, and relays.
//!
//! It only translates. Bodies pass as they came, in both directions; an answer is never buffered;
//! and dropping an answer, whatever the reason, closes the connection to the endpoint.

mod answer;
mod body;
mod error;
mod explanation;
mod generate;
mod headers;
mod metrics;
mod models;
mod options;
mod relay;
mod serve;
mod service;
mod state;
mod upstream;

pub use error::Error;
pub use options::Options;
pub use serve::serve;
