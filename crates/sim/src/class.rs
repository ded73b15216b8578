//! The classes of callers of a scenario: what each is promised, and what a miss of it weighs.

use std::sync::Arc;

use types::Slo;

/// One class of callers.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name in reports.
    pub name: Arc<str>,
    /// What its requests are promised.
    pub slo: Slo,
    /// What a miss of it weighs beside those of others.
    pub weight: f32,
    /// Tenant that its requests name, if any: the router learns lengths per tenant.
    pub tenant: Option<Arc<str>>,
}

impl Class {
    /// The one class of a scenario that tells callers not apart.
    pub fn only(slo: Slo) -> Self {
        Self { name: "all".into(), slo, weight: 1.0, tenant: None }
    }
}
