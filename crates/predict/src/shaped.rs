//! Models shaped after what an engine does, each a non-negative RLS on terms of its own.

use features::FeatureRow;
use regress::{Frozen, Kind, Regressor};
use serde_json::Value;

use crate::{
    terms::{self, Target},
    twin,
};

/// How such a model looks at a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    /// The queue rolled forward, see [`twin`].
    Twin,
    /// What a growing queue shows at once, see [`terms::drain`].
    Overload,
}

impl Shape {
    /// Every shape.
    pub(crate) const ALL: [Self; 2] = [Self::Twin, Self::Overload];

    /// The word used in configuration and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Twin => "twin",
            Self::Overload => "overload",
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Twin => twin::WIDTH,
            Self::Overload => terms::DRAIN_WIDTH,
        }
    }
}

/// What tells a latency by the terms of a row: a model that learns, or one as it was published.
pub(crate) trait Says {
    fn says(&self, terms: &[f32]) -> f32;
}

impl Says for Box<dyn Regressor> {
    fn says(&self, terms: &[f32]) -> f32 {
        self.predict_one(terms)
    }
}

impl Says for Frozen {
    fn says(&self, terms: &[f32]) -> f32 {
        self.predict_one(terms)
    }
}

/// One such model of one target.
#[derive(Debug)]
pub(crate) struct Shaped<M = Box<dyn Regressor>> {
    shape: Shape,
    target: Target,
    pub(crate) model: M,
}

impl Shaped {
    pub(crate) fn new(shape: Shape, target: Target, kind: &Kind, tuning: &Value) -> Option<Self> {
        let model = (kind.build)(shape.width(), tuning).ok()?;
        Some(Self { shape, target, model })
    }

    /// It as it predicts now.
    pub(crate) fn freeze(&self) -> Shaped<Frozen> {
        Shaped { shape: self.shape, target: self.target, model: self.model.freeze() }
    }

    pub(crate) fn learn(&mut self, row: &FeatureRow, label: f32) {
        let terms = self.terms(row);
        self.model.learn_one(&terms, label);
    }
}

impl<M: Says> Shaped<M> {
    fn terms(&self, row: &FeatureRow) -> [f32; twin::WIDTH] {
        match (self.shape, self.target) {
            (Shape::Twin, Target::Ttft) => twin::ttft(row),
            (Shape::Twin, Target::Itl) => twin::itl(row, |step| self.model.says(step)),
            (Shape::Overload, _) => terms::drain(row),
        }
    }

    pub(crate) fn predict(&self, row: &FeatureRow) -> f32 {
        self.model.says(&self.terms(row))
    }
}
