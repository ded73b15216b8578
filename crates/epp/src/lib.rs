//! The `ext_proc` front: translation only. Envoy shows one HTTP exchange per gRPC stream; the router
//! says where it goes.
//!
//! The mode this front is made for is `FULL_DUPLEX_STREAMED` for both bodies, with headers and
//! trailers sent both ways. A proxy that announces another mode in `protocol_config` is served as
//! far as that mode allows: with `BUFFERED` the destination stands in the answer to the body; with
//! `NONE` or `STREAMED` the decision is made on the headers alone, so it knows no model and no
//! prompt. A proxy that announces nothing is taken to be full duplex.
//!
//! Connections are plaintext HTTP/2.

mod answers;
mod body;
mod exchange;
mod headers;
mod ids;
mod metadata;
mod options;
mod rejection;
mod reply;
mod request;
mod server;
mod serving;

pub use answers::Answers;
pub use exchange::Processor;
pub use options::Options;
pub use server::{Error, Listeners, serve};
