//! One RLS per member of a group, each shrunk towards the group.
//!
//! A member's weights minimise its own loss plus that of the group scaled to some labels' worth:
//! `(A_m + κ·A_g/n_g)·θ = b_m + κ·b_g/n_g`, `θ ≥ 0`, with the information matrices `A` and vectors `b` of
//! [`rls`](crate::kind) and `n` the labels behind them (a normal prior around the group's weights, with
//! the precision of `κ` of its labels), on the scale of the member: one that is `r` times as slow takes
//! `A_g/r²` and `b_g/r`. With few labels a member predicts like its group, with many like
//! itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Regressor as _,
    frozen::dot,
    is_sound,
    rls::{Rls, descend},
};

/// Labels' worth of the group in a member.
const SHRINK: f64 = 30.0;
/// Weight of a member's past: it follows its own change faster than the group does.
const FORGETTING: f32 = 0.99;

/// Labels over which a member's ratio to its group is averaged, and labels' worth of no difference.
const RATIO_LABELS: f32 = 20.0;
const RATIO_SHRINK: f32 = 5.0;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Member {
    labels: f32,
    /// Moving mean of the logarithm of its labels over what the group predicts.
    log_ratio: f32,
    weights: Vec<f32>,
    /// Upper triangle, row by row.
    information: Vec<f32>,
    vector: Vec<f32>,
}

/// A group and its members.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Family {
    group: Rls,
    members: BTreeMap<u32, Member>,
}

/// The weights of every member at one instant.
#[derive(Clone, Debug, Default)]
pub struct FamilyWeights {
    width: usize,
    members: Vec<u32>,
    weights: Vec<f32>,
}

impl Family {
    /// A family for rows of `width` features, without members.
    pub fn new(width: usize) -> Self {
        Self { group: Rls::new(width, crate::rls::Options::default()), members: BTreeMap::new() }
    }

    /// Folds in a label of `member`. Rows and labels that are not sound are ignored, as by every
    /// [`Regressor`](crate::Regressor).
    pub fn learn_one(&mut self, member: u32, row: &[f32], label: f32) {
        let width = self.group.width();
        if !is_sound(row, label) || row.len() != width {
            return;
        }
        let expected = self.group.predict_one(row);
        self.group.learn_one(row, label);
        let of = self.members.entry(member).or_insert_with(|| Member::new(width));
        of.learn(row, label, expected);
        of.solve(&self.group);
    }

    /// The estimate for a row of `member`; `None` for one that has no label yet.
    pub fn predict_one(&self, member: u32, row: &[f32]) -> Option<f32> {
        let member = self.members.get(&member)?;
        Some(dot(&member.weights, row))
    }

    /// Forgets the members that are not to be kept.
    pub fn keep_only(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.members.retain(|member, _| is_kept(*member));
    }

    /// A member has changed: what it learned before counts for little.
    pub fn reset(&mut self, member: u32) {
        const KEPT: f32 = 0.05;
        if let Some(member) = self.members.get_mut(&member) {
            member.labels *= KEPT;
            for value in member.information.iter_mut().chain(&mut member.vector) {
                *value *= KEPT;
            }
        }
    }

    /// Members by other numbers; one for which `number` gives `None` is left out.
    #[must_use]
    pub fn renumbered(&self, number: impl Fn(u32) -> Option<u32>) -> Self {
        let members = self.members.iter().filter_map(|(old, of)| Some((number(*old)?, of.clone())));
        Self { group: self.group.clone(), members: members.collect() }
    }

    /// Folds in what `other` has learned: the groups add up, and of a member that both know the one with
    /// more labels stays.
    pub fn merge(&mut self, other: &Self) -> crate::Result<()> {
        self.group.merge(&other.group.save())?;
        for (number, theirs) in &other.members {
            let mine = self.members.entry(*number).or_insert_with(|| theirs.clone());
            if theirs.labels > mine.labels {
                mine.clone_from(theirs);
            }
        }
        Ok(())
    }

    /// Numbers of the members, ascending.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// The weights, to be read while this goes on learning.
    pub fn publish(&self) -> FamilyWeights {
        FamilyWeights {
            width: self.group.width(),
            members: self.members.keys().copied().collect(),
            weights: self.members.values().flat_map(|of| of.weights.iter().copied()).collect(),
        }
    }
}

impl FamilyWeights {
    /// The estimate for a row of `member`; `None` for one that had no label yet.
    pub fn predict_one(&self, member: u32, row: &[f32]) -> Option<f32> {
        let at = self.members.binary_search(&member).ok()?;
        Some(dot(&self.weights[at * self.width..(at + 1) * self.width], row))
    }
}

impl Member {
    fn new(width: usize) -> Self {
        Self {
            labels: 0.0,
            log_ratio: 0.0,
            weights: vec![0.0; width],
            information: vec![0.0; width * (width + 1) / 2],
            vector: vec![0.0; width],
        }
    }

    fn learn(&mut self, row: &[f32], label: f32, expected: f32) {
        let weight = 1.0 / (label * label);
        let mut at = 0;
        for (i, x_i) in row.iter().enumerate() {
            let scaled = weight * x_i;
            for x_j in &row[i..] {
                self.information[at] = FORGETTING * self.information[at] + scaled * x_j;
                at += 1;
            }
            self.vector[i] = FORGETTING * self.vector[i] + scaled * label;
        }
        self.labels = FORGETTING * self.labels + 1.0;
        if expected > 0.0 {
            let off = (label / expected).ln() - self.log_ratio;
            self.log_ratio += off.clamp(-1.0, 1.0) / self.labels.min(RATIO_LABELS);
        }
    }

    fn solve(&mut self, group: &Rls) {
        let width = self.weights.len();
        let (theirs, vector, labels) = group.sums();
        let ratio = f64::from(self.log_ratio * self.labels / (self.labels + RATIO_SHRINK)).exp();
        let vector_share = SHRINK / labels.max(1.0) / ratio;
        let share = vector_share / ratio;
        let mut information = vec![0.0; width * width];
        let mut at = 0;
        for i in 0..width {
            for j in i..width {
                let sum = f64::from(self.information[at]) + share * theirs[i * width + j];
                information[i * width + j] = sum;
                information[j * width + i] = sum;
                at += 1;
            }
        }
        let vector: Vec<f64> = self
            .vector
            .iter()
            .zip(vector)
            .map(|(mine, of)| f64::from(*mine) + vector_share * of)
            .collect();
        // From where the group stands: what only it has seen, a member takes over at once.
        let mut weights: Vec<f64> = if self.labels < 2.0 {
            group.weights().to_vec()
        } else {
            self.weights.iter().copied().map(f64::from).collect()
        };
        for _ in 0..2 {
            descend(&mut weights, &information, &vector, group.ridge());
        }
        self.weights = weights.iter().map(|weight| *weight as f32).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(labels: u16) -> Family {
        let mut family = Family::new(2);
        for i in 0..600_u16 {
            let x = f32::from(i % 9);
            family.learn_one(u32::from(i % 3), &[1.0, x], 10.0 + 2.0 * x);
        }
        for i in 0..labels {
            let x = f32::from(i % 9);
            family.learn_one(7, &[1.0, x], 20.0 + 2.0 * x);
        }
        family
    }

    #[test]
    fn a_member_with_few_labels_predicts_like_its_group_and_with_many_like_itself() {
        let at = |labels| taught(labels).predict_one(7, &[1.0, 4.0]).unwrap();
        assert!(at(1) < 22.0, "nearer to the group than to itself: {}", at(1));
        assert!((at(400) - 28.0).abs() < 2.0, "{}", at(400));
    }

    #[test]
    fn one_member_does_not_bend_another() {
        let family = taught(100);
        assert!((family.predict_one(0, &[1.0, 4.0]).unwrap() - 18.0).abs() < 1.5);
        assert_eq!(family.predict_one(99, &[1.0, 4.0]), None);
    }

    #[test]
    fn what_is_published_predicts_the_same_and_a_reset_member_follows_fast() {
        let mut family = taught(300);
        let published = family.publish();
        let row = [1.0, 3.0];
        assert_eq!(published.predict_one(7, &row), family.predict_one(7, &row));
        family.reset(7);
        for i in 0..20_u16 {
            let x = f32::from(i % 9);
            family.learn_one(7, &[1.0, x], 40.0 + 2.0 * x);
        }
        assert!(
            family.predict_one(7, &row).unwrap() > published.predict_one(7, &row).unwrap() + 5.0
        );
    }
}
