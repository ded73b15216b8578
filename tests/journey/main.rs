//! Requests walk from a client to an engine and back, over real sockets.

#![expect(clippy::unwrap_used, reason = "a broken journey should fail loudly")]

mod answers;
mod bodies;
mod discovery;
mod faults;
mod fronts;
mod leaks;
mod openai_sdk;
mod placement;
mod proxy;
mod real_engine;
mod site;
