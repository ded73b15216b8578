//! What the learner knows, as an immutable value that the request path reads.

use std::{collections::BTreeMap, sync::Arc};

use features::FeatureRow;
use types::{Accelerator, Role};

use crate::{
    class::{Forecasts, Prediction, ServedClass, Source},
    outputs::{Expected, Lengths},
    prior::{Bare, Ready, on_scale},
    scopes::{self, ByScope},
    seen::Seen,
    sound::is_sound,
};

/// The classes of one model.
#[derive(Clone, Debug, Default)]
pub struct ForModel {
    pub(crate) classes: Vec<(Accelerator, Role, Arc<ServedClass>)>,
    pub(crate) pooled: Option<Arc<ServedClass>>,
    pub(crate) lengths: Lengths,
    pub(crate) scopes: Arc<ByScope>,
    pub(crate) bytes_per_token: Option<f32>,
    pub(crate) min_labels: u32,
    /// The columns that models see.
    pub(crate) seen: Seen,
    /// What is known of the model's classes without rows.
    pub(crate) bare: Option<Bare>,
}

/// All that is known, by model.
#[derive(Clone, Debug, Default)]
pub struct Models {
    pub(crate) by_model: BTreeMap<Arc<str>, Arc<ForModel>>,
    pub(crate) empty: Arc<ForModel>,
    pub(crate) ready: Arc<Ready>,
}

/// Who answers for a class.
struct Answer<'a> {
    class: &'a ServedClass,
    source: Source,
    /// Times of the class over those of who answers.
    scale: f32,
}

impl Models {
    /// What is known of `model`; for one never seen, what priors tell.
    pub fn of(&self, model: &str) -> Arc<ForModel> {
        if let Some(known) = self.by_model.get(model) {
            return Arc::clone(known);
        }
        match self.ready.of(model) {
            Some(bare) => Arc::new(ForModel { bare: Some(bare), ..ForModel::clone(&self.empty) }),
            None => Arc::clone(&self.empty),
        }
    }
}

impl ForModel {
    /// Who answers for a class: itself, with enough labels; else itself as it grows from a prior, or the
    /// prior as it is; else the pool of all classes; nobody where that has too few labels, too.
    fn answer(&self, accelerator: &Accelerator, role: Role) -> Option<Answer<'_>> {
        let enough = |class: &ServedClass| class.labels() >= self.min_labels;
        let by = |class, source, scale| Some(Answer { class, source, scale });
        let own = self
            .classes
            .iter()
            .find(|(of, with, _)| of == accelerator && *with == role)
            .map(|(_, _, class)| &**class);
        match own {
            Some(own) if enough(own) => return by(own, Source::Learned, 1.0),
            Some(own) if own.grown => return by(own, Source::Prior, 1.0),
            _ => {}
        }
        if let Some((prior, scale)) = self.bare.as_ref().and_then(|bare| bare.on(accelerator)) {
            return by(prior, Source::Prior, scale);
        }
        by(self.pooled.as_deref().filter(|pooled| enough(pooled))?, Source::Pooled, 1.0)
    }

    /// What endpoint `slot` of this class is expected to do with the request of `row`; `None` while too
    /// little is known, and for a row that is not all numbers.
    pub fn predict(
        &self,
        accelerator: &Accelerator,
        role: Role,
        slot: u32,
        row: &FeatureRow,
    ) -> Option<Prediction> {
        let Answer { class, source, scale } =
            self.answer(accelerator, role).filter(|_| is_sound(row))?;
        let predicted = class.predict(slot, &on_scale(&self.seen.row(row), scale)).on_scale(scale);
        Some(Prediction { source, ..predicted })
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
        let Answer { class, scale, .. } =
            self.answer(accelerator, role).filter(|_| is_sound(row))?;
        Some(class.forecasts(slot, &on_scale(&self.seen.row(row), scale)).on_scale(scale))
    }

    /// Bytes of prompt text per token.
    pub fn bytes_per_token(&self) -> f32 {
        self.bytes_per_token.unwrap_or(crate::outputs::BYTES_PER_TOKEN)
    }

    /// Output tokens expected of a request of the tenant or route `scope` that may give at most
    /// `max_tokens`: by the model's answers, and as they come by those of the scope.
    pub fn expected_output(&self, scope: Option<&str>, max_tokens: Option<u32>) -> Expected {
        scopes::expected(self.lengths.expected(max_tokens), &self.scopes, scope, max_tokens)
    }
}
