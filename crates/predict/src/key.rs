//! What makes endpoints one class.

use std::{fmt, sync::Arc};

use types::{Accelerator, Role};

/// What a class of endpoints has in common.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClassKey {
    /// Model served.
    pub model: Arc<str>,
    /// Accelerator class.
    pub accelerator: Accelerator,
    /// Phases served.
    pub role: Role,
}

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.model, self.accelerator.as_str(), self.role.as_str())
    }
}
