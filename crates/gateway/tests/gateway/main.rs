//! The gateway between real sockets: a caller and engines that do as each test says.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

mod breaking;
mod harness;
mod own_answers;
mod passing;
mod stopping;
