//! Why the gateway does not start.

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A metric cannot be registered; one router serves one gateway.
    #[error("cannot register the metrics of the gateway")]
    Metrics(#[from] prometheus::Error),
}
