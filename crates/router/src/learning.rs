//! Runs the learner beside the request path: outcomes go in under a lock, and what is known comes out
//! as an immutable value.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use predict::{ClassError, Learner, Models, Outcome, Ticket};
use types::Time;

/// Labels at the start after each of which the models are published.
const EAGER_LABELS: u64 = 200;
/// Time between two publications after that.
const PUBLISH_MS: f32 = 20.0;

/// The learner and what it has published.
#[derive(Debug)]
pub(crate) struct Learning {
    learner: Mutex<State>,
    models: ArcSwap<Models>,
}

#[derive(Debug)]
struct State {
    learner: Learner,
    labels: u64,
    published: Time,
}

impl Learning {
    pub(crate) fn new(learner: Learner) -> Self {
        let state = State { learner, labels: 0, published: Time::ZERO };
        Self { learner: Mutex::new(state), models: ArcSwap::default() }
    }

    /// What is known.
    pub(crate) fn models(&self) -> Arc<Models> {
        self.models.load_full()
    }

    /// Learns what came of `ticket`.
    pub(crate) fn learn(&self, ticket: &Ticket, outcome: &Outcome, now: Time) {
        let mut state = self.learner.lock();
        state.learner.learn(ticket, outcome);
        state.labels += 1;
        if state.labels <= EAGER_LABELS || now.ms_since(state.published) >= PUBLISH_MS {
            state.published = now;
            self.models.store(Arc::new(state.learner.publish()));
        }
    }

    /// Forgets what belongs to one endpoint alone.
    pub(crate) fn forget(&self, slot: u32) {
        self.learner.lock().learner.forget(slot);
    }

    /// How good every class is.
    pub(crate) fn errors(&self) -> Vec<ClassError> {
        self.learner.lock().learner.errors()
    }
}
