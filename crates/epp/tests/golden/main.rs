//! Whole `ext_proc` exchanges: what is said to which message, in memory and over real gRPC.

mod behaviour;
mod conformance;
mod drive;
mod meaning;
mod messages;
mod server;
