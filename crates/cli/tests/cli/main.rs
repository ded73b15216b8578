//! The program as its users run it: the built binary, real files, real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a broken fixture should fail loudly")]

mod commands;
mod configs;
mod demo;
mod evaluate;
mod keep;
mod program;
mod record;
mod servers;
mod simulate;
mod train;
