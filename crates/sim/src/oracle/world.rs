//! What an oracle is shown: the engines themselves, everything they were given, and the whole trace.

use ahash::AHashMap;
use types::Time;

use crate::{class::Class, engine::Engine, workload::Arrival};

/// The simulation at the instant of one decision.
#[derive(Debug)]
pub(crate) struct World<'a> {
    /// Every member's engine, advanced as far as it got.
    pub engines: &'a [Engine],
    /// Whether a member can be sent requests, by member.
    pub alive: &'a [bool],
    /// Requests that were placed and are not finished, by index of their arrival.
    pub placed: &'a AHashMap<u64, Placed>,
    /// The whole trace.
    pub arrivals: &'a [Arrival],
    /// The arrival to place now.
    pub index: usize,
    /// Classes by [`Arrival::class`].
    pub classes: &'a [Class],
    /// Delay of the network, each way, between router and engine.
    pub network: std::time::Duration,
}

/// One request that was placed, as its caller sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Where.
    pub member: usize,
    /// Its class, by index.
    pub class: u16,
    /// When it arrived at the router.
    pub arrived: Time,
    /// When its first token was back at the router.
    pub first: Option<Time>,
    /// When its last token so far was.
    pub last: Time,
    /// Tokens so far.
    pub tokens: u32,
    /// Tokens it has when it is finished.
    pub output_tokens: u32,
}
