//! What the learner knows, as an immutable value that the request path reads.

use std::{collections::BTreeMap, sync::Arc};

use features::FeatureRow;
use types::{Accelerator, Role};

use crate::{
    class::{Prediction, ServedClass},
    outputs::OutputLengths,
};

/// The classes of one model.
#[derive(Clone, Debug, Default)]
pub struct ForModel {
    pub(crate) classes: Vec<(Accelerator, Role, Arc<ServedClass>)>,
    pub(crate) pooled: Option<Arc<ServedClass>>,
    pub(crate) outputs: OutputLengths,
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
    /// What endpoint `slot` of this class is expected to do with the request of `row`. A class with
    /// too few labels answers from the pool of all classes; `None` where that has too few, too.
    pub fn predict(
        &self,
        accelerator: &Accelerator,
        role: Role,
        slot: u32,
        row: &FeatureRow,
    ) -> Option<Prediction> {
        let own = self
            .classes
            .iter()
            .find(|(of, with, _)| of == accelerator && *with == role)
            .map(|(_, _, class)| class.predict(slot, row))
            .filter(|prediction| prediction.labels >= self.min_labels);
        own.or_else(|| {
            let pooled = self.pooled.as_ref()?.predict(slot, row);
            (pooled.labels >= self.min_labels).then_some(pooled)
        })
    }

    /// Bytes of prompt text per token.
    pub fn bytes_per_token(&self) -> f32 {
        self.outputs.bytes_per_token()
    }

    /// Output tokens expected of a request that may give at most `max_tokens`.
    pub fn expected_output(&self, max_tokens: Option<u32>) -> f32 {
        self.outputs.expected(max_tokens)
    }
}
