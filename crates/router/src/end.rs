//! How a routed request ended.

/// How a routed request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The whole answer was seen.
    Complete,
    /// The caller went away.
    ClientGone,
    /// The endpoint could not be reached, answered 5xx, or died.
    EndpointFailed,
    /// The endpoint answered 4xx.
    Rejected,
}

impl End {
    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client-gone",
            Self::EndpointFailed => "endpoint-failed",
            Self::Rejected => "rejected",
        }
    }
}
