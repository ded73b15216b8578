//! Why a request goes nowhere, and who is to blame. Knows nothing of HTTP.

/// Who has to change something for a request to succeed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Blame {
    /// Who sent the request.
    Caller,
    /// A model server.
    Endpoint,
    /// Who runs the router.
    Us,
}

impl Blame {
    /// The word that callers are told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Endpoint => "endpoint",
            Self::Us => "router",
        }
    }
}

/// Why a request goes nowhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The pool is empty.
    #[error("no endpoint is known")]
    NoEndpoints,
    /// No endpoint of the pool is in the subset that the proxy asked for.
    #[error("no endpoint is in the requested subset")]
    NoneInSubset,
    /// Filters, or failures during this request, left no endpoint.
    #[error("no endpoint is left that may serve this request")]
    AllFiltered,
}

impl Refusal {
    /// Who is to blame.
    pub fn blame(self) -> Blame {
        match self {
            Self::NoEndpoints | Self::AllFiltered => Blame::Us,
            Self::NoneInSubset => Blame::Caller,
        }
    }

    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEndpoints => "no-endpoints",
            Self::NoneInSubset => "none-in-subset",
            Self::AllFiltered => "all-filtered",
        }
    }
}
