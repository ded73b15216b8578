//! Runs the learner beside the request path: outcomes go in under a lock, and what is known comes out
//! as an immutable value. Batch models are fitted on a thread of their own.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
};

use arc_swap::ArcSwap;
use datalayer::StepSample;
use parking_lot::Mutex;
use predict::{
    ClassError, ClassKey, Labelled, Learner, LoadError, Models, Outcome, Refit, Step, Ticket,
};
use serde::{Deserialize, Serialize};
use types::Time;

/// Labels at the start after each of which the models are published.
const EAGER_LABELS: u64 = 200;
/// Time between two publications after that.
const PUBLISH_MS: f32 = 20.0;

/// Where batch models are fitted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refits {
    /// On a thread of their own.
    #[default]
    Background,
    /// Where the label arrives, so that equal inputs give equal models: for virtual time.
    Inline,
}

/// The learner and what it has published.
#[derive(Debug)]
pub(crate) struct Learning {
    shared: Arc<Shared>,
    /// Wakes the thread that fits; the learner keeps what is due, so that no more than one fit holds rows.
    wake: Option<SyncSender<()>>,
}

#[derive(Debug)]
struct Shared {
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
    pub(crate) fn new(mut learner: Learner, refits: Refits) -> std::io::Result<Self> {
        let models = ArcSwap::from_pointee(learner.publish());
        let state = State { learner, labels: 0, published: Time::ZERO };
        let shared = Arc::new(Shared { learner: Mutex::new(state), models });
        let wake = match refits {
            Refits::Inline => None,
            Refits::Background => {
                let (sender, receiver) = sync_channel(1);
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name("refit".to_owned())
                    .spawn(move || shared.fit_all(&receiver))?;
                Some(sender)
            }
        };
        Ok(Self { shared, wake })
    }

    /// What is known.
    pub(crate) fn models(&self) -> Arc<Models> {
        self.shared.models.load_full()
    }

    /// Learns what came of `ticket`.
    pub(crate) fn learn(&self, ticket: &Ticket, outcome: &Outcome, now: Time) {
        let mut state = self.shared.learner.lock();
        for promoted in state.learner.learn(ticket, outcome) {
            tracing::info!(
                class = promoted.class,
                target = promoted.target,
                regime = promoted.regime,
                champion = promoted.champion,
                "another model serves"
            );
        }
        state.labels += 1;
        self.refit(&mut state);
        if state.labels <= EAGER_LABELS || now.ms_since(state.published) >= PUBLISH_MS {
            state.published = now;
            self.shared.models.store(Arc::new(state.learner.publish()));
        }
    }

    /// See [`predict::teach`]; what was learned is published at once.
    pub(crate) fn teach(&self, rows: &[Labelled]) {
        let mut state = self.shared.learner.lock();
        predict::teach(&mut state.learner, rows);
        self.refit(&mut state);
        self.shared.models.store(Arc::new(state.learner.publish()));
    }

    /// Has the fits run that are due.
    fn refit(&self, state: &mut State) {
        match &self.wake {
            Some(wake) if state.learner.has_due() => {
                // With no room it has been woken already.
                let _ = wake.try_send(());
            }
            Some(_) => {}
            None => {
                for refit in state.learner.take_refits(usize::MAX) {
                    tell(state.learner.install(refit.run()));
                }
            }
        }
    }

    /// Takes a sample of an endpoint's steps; a change that it shows is published at once.
    pub(crate) fn observe_step(&self, class: &ClassKey, slot: u32, sample: &StepSample, now: Time) {
        let step =
            Step { step_ms: sample.step_ms, streams: sample.streams, kv_tokens: sample.kv_tokens };
        let mut state = self.shared.learner.lock();
        if let Some(shift) = state.learner.observe_step(class, slot, &step) {
            tracing::info!(%class, slot, factor = shift.exp(), "an engine has changed its speed");
            state.published = now;
            self.shared.models.store(Arc::new(state.learner.publish()));
        }
    }

    /// See [`Learner::keep_only`].
    pub(crate) fn keep_only(&self, live: &BTreeSet<u32>) {
        self.shared.learner.lock().learner.keep_only(live);
    }

    /// See [`Learner::save`].
    pub(crate) fn save(
        &self,
        name_of: &dyn Fn(u32) -> Option<String>,
    ) -> Result<Vec<u8>, LoadError> {
        self.shared.learner.lock().learner.save(name_of)
    }

    /// See [`Learner::restore`]; what was restored is published at once.
    pub(crate) fn restore(
        &self,
        saved: &[u8],
        slot_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(), LoadError> {
        let mut state = self.shared.learner.lock();
        state.learner.restore(saved, slot_of)?;
        self.shared.models.store(Arc::new(state.learner.publish()));
        Ok(())
    }

    /// How good every class is.
    pub(crate) fn errors(&self) -> Vec<ClassError> {
        self.shared.learner.lock().learner.errors()
    }
}

impl Shared {
    /// Fits what is due, one after another, until the router is gone.
    fn fit_all(&self, woken: &Receiver<()>) {
        while let Ok(()) = woken.recv() {
            while let Some(refit) = self.next_due() {
                self.fit(refit);
                if matches!(woken.try_recv(), Err(TryRecvError::Disconnected)) {
                    return;
                }
            }
        }
    }

    fn next_due(&self) -> Option<Refit> {
        self.learner.lock().learner.take_refits(1).pop()
    }

    fn fit(&self, refit: Refit) {
        // A fit is somebody else's arithmetic: should it panic, the models there are go on.
        if let Ok(refitted) = catch_unwind(AssertUnwindSafe(|| refit.run())) {
            tell(self.learner.lock().learner.install(refitted));
        } else {
            tracing::warn!("a batch model could not be fitted: it panicked");
        }
    }
}

fn tell(failed: Vec<regress::Error>) {
    for error in failed {
        tracing::debug!(error = &error as &dyn std::error::Error, "a batch model was not fitted");
    }
}
