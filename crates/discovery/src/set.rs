//! The endpoints that discovery knows at one moment.

use std::collections::HashMap;

use types::Endpoint;

/// Endpoints in the order of their source, each identity once. Shared as `Arc`, never changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct EndpointSet {
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl EndpointSet {
    /// The set of `endpoints`; of those with one identity the last counts, in its own place.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let mut endpoints: Vec<_> = endpoints.into_iter().collect();
        let last: HashMap<_, _> =
            endpoints.iter().enumerate().map(|(at, endpoint)| (endpoint.id.clone(), at)).collect();
        let mut at = 0;
        endpoints.retain(|endpoint| {
            at += 1;
            last.get(&endpoint.id) == Some(&(at - 1))
        });
        Self { endpoints }
    }
}
