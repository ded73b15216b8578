//! What the learner knows, as an immutable value that the request path reads.

use std::{collections::BTreeMap, sync::Arc};

use features::FeatureRow;
use types::{Accelerator, Role};

use crate::{
    class::{Forecasts, Prediction, ServedClass},
    outputs::{Expected, Lengths},
};

/// The classes of one model.
#[derive(Clone, Debug, Default)]
pub struct ForModel {
    pub(crate) classes: Vec<(Accelerator, Role, Arc<ServedClass>)>,
    pub(crate) pooled: Option<Arc<ServedClass>>,
    pub(crate) lengths: Lengths,
    pub(crate) bytes_per_token: Option<f32>,
    pub(crate) min_labels: u32,
}

/// All that is known, by model.
#[derive(Clone, Debug, Default)]
pub struct Models {
    pub(crate) by_model: BTreeMap<Arc<str>, Arc<ForModel>>,
    pub(crate) empty: Arc<ForModel>,
}

impl Models {
    /// What is known of `model`; knows nothing for one never seen.
    pub fn of(&self, model: &str) -> Arc<ForModel> {
        Arc::clone(self.by_model.get(model).unwrap_or(&self.empty))
    }
}

impl ForModel {
    /// Who answers for a class: itself, or with too few labels the pool of all classes; nobody where
    /// that has too few, too.
    fn class(&self, accelerator: &Accelerator, role: Role) -> Option<&ServedClass> {
        let enough = |class: &&Arc<ServedClass>| class.labels() >= self.min_labels;
        let own = self
            .classes
            .iter()
            .find(|(of, with, _)| of == accelerator && *with == role)
            .map(|(_, _, class)| class)
            .filter(enough);
        own.or_else(|| self.pooled.as_ref().filter(enough)).map(|class| &**class)
    }

    /// What endpoint `slot` of this class is expected to do with the request of `row`; `None` while too
    /// little is known.
    pub fn predict(
        &self,
        accelerator: &Accelerator,
        role: Role,
        slot: u32,
        row: &FeatureRow,
    ) -> Option<Prediction> {
        Some(self.class(accelerator, role)?.predict(slot, row))
    }

    /// What is predicted for a request that is sent, with what every model says, to be judged when its
    /// label comes.
    pub fn forecasts(
        &self,
        accelerator: &Accelerator,
        role: Role,
        slot: u32,
        row: &FeatureRow,
    ) -> Option<Forecasts> {
        Some(self.class(accelerator, role)?.forecasts(slot, row))
    }

    /// Bytes of prompt text per token.
    pub fn bytes_per_token(&self) -> f32 {
        self.bytes_per_token.unwrap_or(crate::outputs::BYTES_PER_TOKEN)
    }

    /// Output tokens expected of a request that may give at most `max_tokens`.
    pub fn expected_output(&self, max_tokens: Option<u32>) -> Expected {
        self.lengths.expected(max_tokens)
    }
}
