//! Tree ensembles in plain arrays: what is left of a fitted model for predicting.
//!
//! A walk has no branches: the children of a split stand side by side, and a leaf leads to itself, so
//! every tree takes as many steps as the deepest of its group, and a group is walked in step. That
//! hides the wait for memory: eight at a time take a quarter to a half less time than one by one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::{Error, Result, Value, json};

use crate::{
    Fitted,
    window::{Bounds, Sound},
};

/// Levels beyond which a tree is taken for one that leads back into itself.
const MAX_DEPTH: u8 = 64;
/// Largest logarithm of a prediction, either side of zero: its exponential is a normal `f32`.
const MAX_LOG: f32 = 80.0;
/// How many trees are walked in step.
const ABREAST: usize = 8;

/// What stands at one place of a tree that is still in its library's form, `N`.
pub(crate) enum Step<N> {
    /// A leaf, with what it adds to the sum.
    Leaf(f64),
    /// Rows with `row[feature] <= threshold` go to `low`, the others to `high`.
    Split { feature: usize, threshold: f64, low: N, high: N },
}

/// Trees walked in step: where each starts, and the steps from there to the deepest leaf.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Group {
    roots: [u32; ABREAST],
    depth: u8,
}

/// Trees whose leaves add up. Four arrays of one length, the nodes of all trees in them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(into = "Saved", try_from = "Saved")]
struct Flat {
    width: usize,
    groups: Vec<Group>,
    feature: Vec<u16>,
    /// Infinite in a leaf, so that no row leaves it.
    threshold: Vec<f32>,
    /// The child for rows up to the threshold; the other one follows it. A leaf names itself.
    low: Vec<u32>,
    /// Zero in a split.
    value: Vec<f32>,
}

/// How [`Flat`] is stored: JSON knows no infinity, so a leaf keeps its value as threshold.
#[derive(Deserialize, Serialize)]
struct Saved {
    width: usize,
    groups: Vec<Group>,
    feature: Vec<u16>,
    number: Vec<f32>,
    low: Vec<u32>,
}

impl From<Flat> for Saved {
    fn from(flat: Flat) -> Self {
        let numbers = flat.threshold.iter().zip(&flat.value);
        let number = numbers.map(|(t, v)| if t.is_finite() { *t } else { *v }).collect();
        let Flat { width, groups, feature, low, .. } = flat;
        Self { width, groups, feature, number, low }
    }
}

impl TryFrom<Saved> for Flat {
    type Error = &'static str;

    fn try_from(saved: Saved) -> std::result::Result<Self, Self::Error> {
        let Saved { width, groups, feature, number, low } = saved;
        let nodes = number.len();
        if feature.len() != nodes || low.len() != nodes {
            return Err("arrays of trees differ in length");
        }
        let is_leaf = |at: usize| low[at] as usize == at;
        let leads_on = |at: usize| is_leaf(at) || (low[at] as usize) < nodes - 1;
        let mut roots = groups.iter().flat_map(|group| group.roots);
        if !(0..nodes).all(leads_on) || !roots.all(|root| (root as usize) < nodes) {
            return Err("a tree leads outside its array");
        }
        if feature.iter().any(|feature| usize::from(*feature) >= width) {
            return Err("a tree asks for a feature that rows do not have");
        }
        if !number.iter().all(|number| number.is_finite()) {
            return Err("a number of a tree is not finite");
        }
        let threshold = |at| if is_leaf(at) { f32::INFINITY } else { number[at] };
        let value = |at| if is_leaf(at) { number[at] } else { 0.0 };
        let threshold = (0..nodes).map(threshold).collect();
        let value = (0..nodes).map(value).collect();
        Ok(Self { width, groups, feature, threshold, low, value })
    }
}

impl Flat {
    /// The trees at `roots`; `open` says what stands at a node.
    fn of<N>(
        width: usize,
        roots: impl IntoIterator<Item = N>,
        open: impl Fn(N) -> Result<Step<N>>,
    ) -> Result<Self> {
        let mut flat = Self { width, ..Self::default() };
        // Fills the last group up.
        let nothing = flat.reserve() as u32;
        let trees: Vec<_> =
            roots.into_iter().map(|root| flat.push(root, &open)).collect::<Result<_>>()?;
        for trees in trees.chunks(ABREAST) {
            let mut group = Group { roots: [nothing; ABREAST], depth: 0 };
            for (root, (first, depth)) in group.roots.iter_mut().zip(trees) {
                *root = *first;
                group.depth = group.depth.max(*depth);
            }
            flat.groups.push(group);
        }
        Ok(flat)
    }

    /// Adds the tree that starts at `root`, and returns where it starts now and how deep it is.
    fn push<N>(&mut self, root: N, open: impl Fn(N) -> Result<Step<N>>) -> Result<(u32, u8)> {
        let first = self.reserve();
        let mut depth = 0;
        let mut waiting = VecDeque::from([(root, first, 0)]);
        while let Some((node, at, level)) = waiting.pop_front() {
            if level > MAX_DEPTH {
                return Err(Error::custom("a tree without end"));
            }
            depth = level;
            match open(node)? {
                Step::Leaf(value) => self.value[at] = finite(value)?,
                Step::Split { feature, threshold, low, high } => {
                    let child = self.reserve();
                    self.reserve();
                    self.feature[at] = self.known(feature)?;
                    self.threshold[at] = finite(threshold).map(|_| rounded_down(threshold))?;
                    self.low[at] = index(child)?;
                    waiting.push_back((low, child, level + 1));
                    waiting.push_back((high, child + 1, level + 1));
                }
            }
        }
        Ok((index(first)?, depth))
    }

    /// Room for one more node, a leaf until told otherwise.
    fn reserve(&mut self) -> usize {
        let at = self.value.len();
        self.feature.push(0);
        self.threshold.push(f32::INFINITY);
        self.low.push(at as u32);
        self.value.push(0.0);
        at
    }

    fn known(&self, feature: usize) -> Result<u16> {
        u16::try_from(feature)
            .ok()
            .filter(|_| feature < self.width)
            .ok_or_else(|| Error::custom("a split on a feature that rows do not have"))
    }

    /// The sum over all trees. `row` has `width` values.
    fn sum(&self, row: &[f32]) -> f32 {
        // Slices of one length, so that one check of an index does for all.
        let nodes = self.value.len();
        let (feature, threshold) = (&self.feature[..nodes], &self.threshold[..nodes]);
        let (low, value) = (&self.low[..nodes], &self.value[..nodes]);
        let mut sum = 0.0;
        for group in &self.groups {
            let mut at = group.roots.map(|root| root as usize);
            for _ in 0..group.depth {
                for at in &mut at {
                    let x = row[usize::from(feature[*at])];
                    *at = low[*at] as usize + usize::from(x > threshold[*at]);
                }
            }
            for at in at {
                sum += value[at];
            }
        }
        sum
    }
}

/// `value` as stored in an array.
fn finite(value: f64) -> Result<f32> {
    let stored = value as f32;
    if stored.is_finite() { Ok(stored) } else { Err(Error::custom("a number that is not finite")) }
}

fn index(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(Error::custom)
}

/// The largest `f32` up to `threshold`: it parts all `f32` values as `threshold` does.
fn rounded_down(threshold: f64) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) > threshold { nearest.next_down() } else { nearest }
}

/// A fitted ensemble on the logarithms of labels.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Trees {
    /// Mean logarithm of the labels, to which the trees add.
    log_mean: f32,
    bounds: Bounds,
    flat: Flat,
}

impl Trees {
    /// Takes over the trees at `roots`; `open` says what stands at a node, in logarithms less
    /// `log_mean`.
    pub(crate) fn new<N>(
        sound: &Sound,
        log_mean: f64,
        roots: impl IntoIterator<Item = N>,
        open: impl Fn(N) -> Result<Step<N>>,
    ) -> Result<Self> {
        let flat = Flat::of(sound.width, roots, open)?;
        Ok(Self { log_mean: finite(log_mean)?, bounds: Bounds::of(sound), flat })
    }

    /// Rebuilds what [`Fitted::save`] returned.
    pub(crate) fn load(saved: Value) -> Result<Self> {
        let trees: Self = serde_json::from_value(saved)?;
        if trees.bounds.are_of(trees.flat.width) {
            Ok(trees)
        } else {
            Err(Error::custom("trees and bounds differ in width"))
        }
    }

    /// The estimate as a logarithm.
    pub(crate) fn predict_log(&self, row: &[f32]) -> f32 {
        let sum = if row.len() == self.flat.width { self.flat.sum(row) } else { 0.0 };
        self.log_mean + sum
    }
}

impl Fitted for Trees {
    fn predict_one(&self, row: &[f32]) -> f32 {
        self.predict_log(row).clamp(-MAX_LOG, MAX_LOG).exp()
    }

    fn covers(&self, row: &[f32]) -> bool {
        self.bounds.cover(row)
    }

    fn save(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x0 <= 1.5 ? 1 : (x1 <= 0.1 ? 2 : 3)`, numbered as in a list of nodes.
    fn step(node: usize) -> Step<usize> {
        match node {
            0 => Step::Split { feature: 0, threshold: 1.5, low: 1, high: 2 },
            2 => Step::Split { feature: 1, threshold: 0.1, low: 3, high: 4 },
            1 => Step::Leaf(1.0),
            3 => Step::Leaf(2.0),
            _ => Step::Leaf(3.0),
        }
    }

    fn tree() -> Flat {
        Flat::of(2, [0], |node| Ok(step(node))).unwrap()
    }

    #[test]
    fn a_row_ends_in_the_leaf_its_splits_lead_to() {
        let flat = tree();
        for (row, leaf) in [
            ([1.5, 9.0], 1.0),
            ([f32::NEG_INFINITY, 9.0], 1.0),
            ([2.0, 0.0], 2.0),
            ([2.0, 0.2], 3.0),
            ([f32::INFINITY, f32::INFINITY], 3.0),
        ] {
            assert!((flat.sum(&row) - leaf).abs() < f32::EPSILON, "{row:?}");
        }
    }

    /// 0.1 as `f32` lies above 0.1 as `f64`, so the row goes high there.
    #[test]
    fn a_threshold_parts_values_as_it_did_in_double_precision() {
        let threshold = 0.1_f64;
        for x in [0.1_f32.next_down(), 0.1, 0.1_f32.next_up()] {
            assert_eq!(f64::from(x) <= threshold, x <= rounded_down(threshold));
        }
    }

    /// More trees than are walked in step, of unequal depth.
    #[test]
    fn all_trees_add_up() {
        let roots = [0, 1, 3, 4, 1, 1, 1, 1, 1, 2, 0];
        let flat = Flat::of(2, roots, |node| Ok(step(node))).unwrap();
        let (low, high) = (flat.sum(&[0.0, 0.0]), flat.sum(&[9.0, 9.0]));
        assert!((low - 15.0).abs() < 1e-6, "{low}");
        assert!((high - 20.0).abs() < 1e-6, "{high}");
    }

    #[test]
    fn a_tree_without_end_is_an_error() {
        let endless = |node: usize| {
            Ok(if node == 0 {
                Step::Split { feature: 0, threshold: 0.0, low: 0, high: 1 }
            } else {
                Step::Leaf(0.0)
            })
        };
        assert!(Flat::of(2, [0], endless).is_err());
    }

    #[test]
    fn an_unknown_feature_is_an_error() {
        assert!(Flat::of(1, [0], |node| Ok(step(node))).is_err());
    }

    #[test]
    fn saved_trees_that_lead_nowhere_are_refused() {
        let sound = json!(tree());
        assert!(serde_json::from_value::<Flat>(sound.clone()).is_ok());
        for (key, value) in [
            ("width", json!(1)),
            ("low", json!([0, 2, 2, 5, 4, 5])),
            ("low", json!([0, 2, 2, 4, 4])),
            ("groups", json!([{ "roots": [6, 0, 0, 0, 0, 0, 0, 0], "depth": 2 }])),
            ("number", json!([0.0, 1.5, 1.0, 0.1, 2.0, 1e60])),
        ] {
            let mut broken = sound.clone();
            broken[key] = value;
            assert!(serde_json::from_value::<Flat>(broken).is_err(), "{key}");
        }
    }
}
