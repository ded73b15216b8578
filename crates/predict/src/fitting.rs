//! Which batch models are to be fitted next, and putting what a fit gave in place.

use crate::{
    learner::{Class, Learner},
    target::TargetModel,
    terms::Target,
    window::{Place, Refit, Refitted},
};

impl Learner {
    /// Up to `room` of the fits that are due, those first that have waited longest; each is to be run and
    /// handed to [`Learner::install`]. The others go on waiting. A fit holds a copy of its rows, so that
    /// only as many are to be taken as will be run soon.
    pub fn take_refits(&mut self, room: usize) -> Vec<Refit> {
        let mut taken = Vec::new();
        while taken.len() < room {
            let Some(place) = self.due.pop_front() else { break };
            let kinds = self.kinds.batch_of(place.target).collect();
            let Some(of) = self.target_at(&place) else { continue };
            // What was merged or restored since waits for new rows.
            if of.rows.take_due() {
                let experts = &of.experts;
                taken.push(Refit::new(place, kinds, &of.rows, |terms| experts.base_now(terms)));
            }
        }
        taken
    }

    /// Whether a fit waits to be taken.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Puts freshly fitted models in place of the older ones. They serve once they have proved better.
    /// One that could not be fitted leaves the older one in place and is named in the answer.
    pub fn install(&mut self, refitted: Refitted) -> Vec<regress::Error> {
        let Some(target) = self.target_at(&refitted.place) else { return Vec::new() };
        let mut failed = Vec::new();
        for (at, fitted) in refitted.models.into_iter().enumerate() {
            match fitted {
                Ok(fitted) => target.experts.install(at, fitted),
                Err(error) => failed.push(error),
            }
        }
        if let Some(class) = self.class_at(&refitted.place) {
            class.stale = true;
        }
        failed
    }

    fn class_at(&mut self, place: &Place) -> Option<&mut Class> {
        self.models.get_mut(&place.class.model)?.classes.get_mut(&place.class)
    }

    fn target_at(&mut self, place: &Place) -> Option<&mut TargetModel> {
        let class = self.class_at(place)?;
        Some(match place.target {
            Target::Ttft => &mut class.ttft,
            Target::Itl => &mut class.itl,
        })
    }
}
