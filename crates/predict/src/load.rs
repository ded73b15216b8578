//! Why a saved state cannot be taken over.

/// A saved state that this learner cannot take over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not what a learner saves.
    #[error("the saved models are not readable")]
    Unreadable(#[from] serde_json::Error),
    /// One of its models is not what its regressor saves.
    #[error("a saved model is not readable")]
    Model(#[from] regress::Error),
    /// Its rows have other features.
    #[error("the models were saved with other features")]
    Features,
    /// It has other models than are configured.
    #[error("the models were saved by other regressors than are configured")]
    Models,
}
