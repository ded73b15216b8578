//! Why a saved state cannot be taken over.

/// Names as a text.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl LoadError {
    /// Why rows of the columns `there` are not rows of the columns `here`; `None` if they are.
    pub(crate) fn columns(there: &[String], here: &[String]) -> Option<Self> {
        let missing = |from: &[String], of: &[String]| {
            of.iter().filter(|name| !from.contains(name)).cloned().collect()
        };
        (there != here).then(|| Self::Features {
            only_there: missing(here, there),
            only_here: missing(there, here),
        })
    }
}

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
    #[error(
        "the models were saved with other features (only there: {}; only here: {})",
        listed(only_there),
        listed(only_here)
    )]
    Features {
        /// Features that this version does not know.
        only_there: Vec<String>,
        /// Features that the other did not know; if there are none in either, the order differs.
        only_here: Vec<String>,
    },
    /// It has other models than are configured.
    #[error("the models were saved by other regressors than are configured")]
    Models,
}
