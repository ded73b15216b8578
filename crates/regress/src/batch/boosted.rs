//! Gradient-boosted trees on the logarithms of labels: smartcore's regressor after `XGBoost`, exact
//! greedy splits.

use serde::{Deserialize, de::Error as _};
use serde_json::{Value, json};
use smartcore::{
    linalg::basic::matrix::DenseMatrix,
    xgboost::{XGRegressor, XGRegressorParameters},
};
use types::read_options;

use super::{failed, logged, within};
use crate::{
    BatchKind, Error, Result,
    flat::{Step, Trees},
    window::Sound,
};

pub(crate) const KIND: BatchKind = BatchKind {
    name: "boosted-trees",
    fit: |window, options, seed| {
        let options: Options = read_options(KIND.name, options)?;
        options.check()?;
        let sound = Sound::of(window)?;
        let log_mean = sound.log_mean();
        let model = grow(&sound, &options, seed, log_mean)?;
        Ok(Box::new(flatten(&json!(model), &sound, log_mean)?))
    },
    load: |saved| Ok(Box::new(Trees::load(saved)?)),
};

/// Tuning of one ensemble.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Number of trees, `1..=500`.
    trees: u16,
    /// Splits between the root of a tree and a leaf, `1..=12`.
    depth: u16,
    /// Share of each tree's answer that is added, `0.01..=1`; lower asks for more trees.
    rate: f64,
    /// Share of the rows that each tree sees, `0.1..=1`.
    subsample: f64,
    /// Least rows on either side of a split, `1..=10_000`.
    leaf_rows: usize,
    /// Pull of a leaf towards zero, in rows, `0..=10_000`.
    ridge: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { trees: 40, depth: 4, rate: 0.17, subsample: 0.8, leaf_rows: 5, ridge: 1.0 }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        within(KIND.name, "trees", f64::from(self.trees), &(1.0..=500.0))?;
        within(KIND.name, "depth", f64::from(self.depth), &(1.0..=12.0))?;
        within(KIND.name, "rate", self.rate, &(0.01..=1.0))?;
        within(KIND.name, "subsample", self.subsample, &(0.1..=1.0))?;
        within(KIND.name, "leaf_rows", self.leaf_rows as f64, &(1.0..=10_000.0))?;
        within(KIND.name, "ridge", self.ridge, &(0.0..=10_000.0))
    }
}

type Model = XGRegressor<f32, f64, DenseMatrix<f32>, Vec<f64>>;

/// The library's model. It takes no weights, so rows are resampled by theirs; it starts from zero,
/// since labels are logarithms less their mean.
fn grow(sound: &Sound, options: &Options, seed: u64, log_mean: f64) -> Result<Model> {
    let (rows, labels) = logged(KIND.name, sound, &sound.resampled(seed), log_mean)?;
    let parameters = XGRegressorParameters::default()
        .with_n_estimators(options.trees.into())
        .with_max_depth(options.depth)
        .with_learning_rate(options.rate)
        .with_subsample(options.subsample)
        .with_min_child_weight(options.leaf_rows)
        .with_lambda(options.ridge)
        .with_base_score(0.0)
        .with_seed(seed);
    XGRegressor::fit(&rows, &labels, parameters).map_err(|error| failed(KIND.name)(Box::new(error)))
}

/// The parts of the serialised model that predicting needs. Each must be there: what is renamed
/// upstream is an error, not a default.
#[derive(Deserialize)]
struct Layout {
    regressors: Vec<Node>,
    parameters: Parameters,
}

#[derive(Deserialize)]
struct Parameters {
    learning_rate: f64,
    base_score: f64,
}

#[derive(Deserialize)]
struct Node {
    #[serde(deserialize_with = "Option::deserialize")]
    left: Option<Box<Node>>,
    #[serde(deserialize_with = "Option::deserialize")]
    right: Option<Box<Node>>,
    value: f64,
    threshold: f64,
    split_feature_idx: usize,
}

impl Node {
    fn step(&self, rate: f64) -> serde_json::Result<Step<&Self>> {
        match (&self.left, &self.right) {
            (None, None) => Ok(Step::Leaf(rate * self.value)),
            (Some(low), Some(high)) => Ok(Step::Split {
                feature: self.split_feature_idx,
                threshold: self.threshold,
                low,
                high,
            }),
            _ => Err(serde_json::Error::custom("a split with one child")),
        }
    }
}

fn flatten(model: &Value, sound: &Sound, log_mean: f64) -> Result<Trees> {
    let unknown = |source| Error::Layout { kind: KIND.name, source };
    let Layout { regressors, parameters } = Layout::deserialize(model).map_err(unknown)?;
    let Parameters { learning_rate, base_score } = parameters;
    Trees::new(sound, log_mean + base_score, &regressors, |node| node.step(learning_rate))
        .map_err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::samples::{assert_agrees, bumpy, rows_around};

    /// What guards against a release of the library with trees of another meaning.
    #[test]
    fn flattened_trees_predict_what_the_library_predicts() {
        let sound = bumpy(700);
        let log_mean = sound.log_mean();
        let model = grow(&sound, &Options::default(), 7, log_mean).unwrap();
        let flat = flatten(&json!(model), &sound, log_mean).unwrap();
        let rows = rows_around(&sound, 2_000);
        let predicted = model.predict(&rows.matrix()).unwrap();
        assert_agrees(&flat, &rows, &predicted, log_mean);
    }

    #[test]
    fn a_renamed_field_is_an_error() {
        let sound = bumpy(100);
        let model = grow(&sound, &Options::default(), 7, 0.0).unwrap();
        for field in ["left", "right", "value", "threshold", "split_feature_idx"] {
            let text = json!(model).to_string().replace(&format!("\"{field}\""), "\"renamed\"");
            let model = serde_json::from_str(&text).unwrap();
            assert!(matches!(flatten(&model, &sound, 0.0), Err(Error::Layout { .. })), "{field}");
        }
    }
}
