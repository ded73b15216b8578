//! Random forest on the logarithms of labels: smartcore's regressor, with rows drawn by weight.

use serde::{Deserialize, de::Error as _};
use serde_json::{Value, json};
use smartcore::{
    ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters},
    linalg::basic::matrix::DenseMatrix,
};
use types::read_options;

use super::{failed, logged, within};
use crate::{
    BatchKind, Error, Result,
    flat::{Step, Trees},
    window::Sound,
};

pub(crate) const KIND: BatchKind = BatchKind {
    name: "random-forest",
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

/// Tuning of one forest.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Number of trees, `1..=500`.
    trees: u16,
    /// Splits between the root of a tree and a leaf, `1..=20`.
    depth: u16,
    /// Share of the features that each split chooses from, `0.01..=1`.
    features: f64,
    /// Least rows in a leaf, `1..=10_000`.
    leaf_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { trees: 16, depth: 8, features: 0.5, leaf_rows: 6 }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        within(KIND.name, "trees", f64::from(self.trees), &(1.0..=500.0))?;
        within(KIND.name, "depth", f64::from(self.depth), &(1.0..=20.0))?;
        within(KIND.name, "features", self.features, &(0.01..=1.0))?;
        within(KIND.name, "leaf_rows", self.leaf_rows as f64, &(1.0..=10_000.0))
    }
}

type Model = RandomForestRegressor<f32, f64, DenseMatrix<f32>, Vec<f64>>;

/// The library's model. Each tree draws its rows with replacement, by weight.
fn grow(sound: &Sound, options: &Options, seed: u64, log_mean: f64) -> Result<Model> {
    let every: Vec<usize> = (0..sound.len()).collect();
    let (rows, labels) = logged(KIND.name, sound, &every, log_mean)?;
    let chosen = (options.features * sound.width as f64).ceil() as usize;
    let parameters = RandomForestRegressorParameters::default()
        .with_n_trees(options.trees.into())
        // The library counts levels of nodes, the root included.
        .with_max_depth(options.depth + 1)
        .with_m(chosen)
        .with_min_samples_leaf(options.leaf_rows)
        .with_min_samples_split(2 * options.leaf_rows)
        .with_seed(seed);
    RandomForestRegressor::fit_with_weights(&rows, &labels, &sound.weights, parameters)
        .map_err(|error| failed(KIND.name)(Box::new(error)))
}

/// The parts of the serialised model that predicting needs. Each must be there: what is renamed
/// upstream is an error, not a default.
#[derive(Deserialize)]
struct Layout {
    forest_regressor: Forest,
}

#[derive(Deserialize)]
struct Forest {
    trees: Vec<Tree>,
}

#[derive(Deserialize)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    output: f64,
    split_feature: usize,
    #[serde(deserialize_with = "Option::deserialize")]
    split_value: Option<f64>,
    #[serde(deserialize_with = "Option::deserialize")]
    true_child: Option<usize>,
    #[serde(deserialize_with = "Option::deserialize")]
    false_child: Option<usize>,
}

impl Tree {
    /// What stands at node `at`; a leaf adds its `share`.
    fn step(&self, at: usize, share: f64) -> serde_json::Result<Step<(&Self, usize)>> {
        let node = self.nodes.get(at).ok_or_else(|| serde_json::Error::custom("no such node"))?;
        match (node.split_value, node.true_child, node.false_child) {
            (_, None, None) => Ok(Step::Leaf(share * node.output)),
            (Some(threshold), Some(low), Some(high)) => Ok(Step::Split {
                feature: node.split_feature,
                threshold,
                low: (self, low),
                high: (self, high),
            }),
            _ => Err(serde_json::Error::custom("half a split")),
        }
    }
}

fn flatten(model: &Value, sound: &Sound, log_mean: f64) -> Result<Trees> {
    let unknown = |source| Error::Layout { kind: KIND.name, source };
    let Layout { forest_regressor } = Layout::deserialize(model).map_err(unknown)?;
    let trees = forest_regressor.trees;
    let share = 1.0 / trees.len() as f64;
    let roots = trees.iter().map(|tree| (tree, 0));
    Trees::new(sound, log_mean, roots, |(tree, at)| tree.step(at, share)).map_err(unknown)
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
        let predicted: Vec<f32> = predicted.iter().map(|log| *log as f32).collect();
        assert_agrees(&flat, &rows, &predicted, log_mean);
    }

    #[test]
    fn a_renamed_field_is_an_error() {
        let sound = bumpy(100);
        let model = grow(&sound, &Options::default(), 7, 0.0).unwrap();
        for field in
            ["trees", "output", "split_feature", "split_value", "true_child", "false_child"]
        {
            let text = json!(model).to_string().replace(&format!("\"{field}\""), "\"renamed\"");
            let model = serde_json::from_str(&text).unwrap();
            assert!(matches!(flatten(&model, &sound, 0.0), Err(Error::Layout { .. })), "{field}");
        }
    }
}
