//! Makes what two learners know one: replicas of a router that saw different requests.
//!
//! Online models add up as far as they can (information matrices do, exactly), windows are the newest of both,
//! and what cannot be added (batch models, offsets, champions) is that of the one with more behind it.

use crate::{
    learner::{Class, Learner, MAX_CLASSES, MAX_MODELS, OneModel},
    load::LoadError,
};

impl Learner {
    /// Folds in what another learner of the same models has learned from other requests, class by class,
    /// from what its [`Learner::save`] gave; endpoints are those that `slot_of` finds by name. Fails, and
    /// leaves the learner as it was, if it was saved with other features or other models.
    ///
    /// What both have learned already (as from a common past) counts twice.
    pub fn merge(
        &mut self,
        saved: &[u8],
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        let mut both = self.fresh();
        both.restore(saved, slot_of)?;
        // Theirs first takes up ours: until all has gone well, ours is only read.
        for (name, theirs) in &mut both.models {
            if let Some(ours) = self.models.get(name) {
                theirs.take_up(ours)?;
            }
        }
        let mut merged = both.models;
        for (name, ours) in std::mem::take(&mut self.models) {
            if let Some(of) = merged.get_mut(&name) {
                of.add_missing(ours);
            } else if merged.len() < MAX_MODELS {
                merged.insert(name, ours);
            }
        }
        self.models = merged;
        Ok(())
    }
}

impl OneModel {
    /// Folds in what `other` knows of the classes that both have.
    fn take_up(&mut self, other: &Self) -> Result<(), LoadError> {
        if let (Some(mine), Some(theirs)) = (&mut self.pooled, &other.pooled) {
            mine.take_up(theirs)?;
        }
        for (key, mine) in &mut self.classes {
            if let Some(theirs) = other.classes.get(key) {
                mine.take_up(theirs)?;
            }
        }
        self.outputs.merge(&other.outputs);
        self.scopes.merge(&other.scopes);
        Ok(())
    }

    /// Adds the classes of `other` that are not here, as long as there is room.
    fn add_missing(&mut self, other: Self) {
        if self.pooled.is_none() {
            self.pooled = other.pooled;
        }
        for (key, class) in other.classes {
            if self.classes.len() < MAX_CLASSES {
                self.classes.entry(key).or_insert(class);
            }
        }
    }
}

impl Class {
    fn take_up(&mut self, other: &Self) -> Result<(), LoadError> {
        self.ttft.merge(&other.ttft)?;
        self.itl.merge(&other.itl)?;
        self.joint.merge(&other.joint)?;
        self.drift.merge(&other.drift)?;
        self.grown |= other.grown;
        self.stale = true;
        Ok(())
    }
}
