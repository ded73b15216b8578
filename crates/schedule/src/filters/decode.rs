//! Keeps endpoints that can decode: all but those whose role is prefill alone.

use types::{NoOptions, Request, Role, read_options};

use crate::candidate::{Candidate, Filter, Kind};

pub(super) const KIND: Kind<dyn Filter> = Kind {
    name: "decode",
    build: |options| {
        let NoOptions {} = read_options(KIND.name, options)?;
        Ok(Box::new(Decode))
    },
};

#[derive(Debug)]
struct Decode;

impl Filter for Decode {
    fn narrow(&self, _request: &Request, candidates: &mut Vec<Candidate>, _random: u64) {
        candidates.retain(|candidate| candidate.endpoint.role != Role::Prefill);
    }
}
