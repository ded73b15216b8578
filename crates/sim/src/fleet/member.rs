//! One engine of a fleet, and the endpoint that the router takes it for.

use std::time::Duration;

use types::{Address, Endpoint, EndpointId, Role};

use crate::{engine::Options, profile::Profile};

/// One engine of a fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name of the endpoint.
    pub name: String,
    /// What it runs on.
    pub profile: Profile,
    /// How it is set up.
    pub options: Options,
    /// Phases it serves.
    pub role: Role,
    /// When it has started and joins the pool, with an empty cache; zero is from the start.
    pub joins_at: Duration,
}

impl Member {
    /// One that serves both phases from the start.
    pub fn new(name: impl Into<String>, profile: Profile, options: Options) -> Self {
        Self { name: name.into(), profile, options, role: Role::Both, joins_at: Duration::ZERO }
    }

    /// Members stand at made-up addresses, which nothing connects to.
    pub(super) fn endpoint(&self, at: usize) -> Result<Endpoint, FleetError> {
        let unusable = || FleetError::Address(self.name.clone());
        let port = u16::try_from(at + 1).map_err(|_| unusable())?;
        let host = format!("{}.fleet.invalid", self.name);
        let address = Address::new(&host, port).map_err(|_| unusable())?;
        let mut labels = vec![("llm-d.ai/accelerator".to_owned(), self.profile.gpu.clone())];
        if self.role != Role::Both {
            labels.push(("llm-d.ai/role".to_owned(), self.role.as_str().to_owned()));
        }
        let labels = labels.into_iter().collect();
        Ok(Endpoint { id: EndpointId::new("default", &self.name), address, labels })
    }
}

/// A fleet or a policy that cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The name of a member does not make an address.
    #[error("member {0} of the fleet has no usable address")]
    Address(String),
    /// Nothing was promised to anybody.
    #[error("the scenario has no class of callers")]
    NoClasses,
    /// An arrival is of a class that is not there.
    #[error("arrival {arrival} is of class {class}, and there are {classes}")]
    Class {
        /// Number of the arrival, from 0.
        arrival: usize,
        /// Its class.
        class: u16,
        /// How many there are.
        classes: usize,
    },
    /// An event is about a member that is not there.
    #[error("an event is about member {member}, and there are {members}")]
    Event {
        /// Which member.
        member: usize,
        /// How many there are.
        members: usize,
    },
    /// The router's options do not fit.
    #[error(transparent)]
    Router(#[from] router::Error),
}
