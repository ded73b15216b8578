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
    fn keeps(&self, _request: &Request, candidate: &Candidate) -> bool {
        candidate.endpoint.role != Role::Prefill
    }
}
