//! Sends the requests of a session where its first one went: that endpoint scores 1, the others 0 (llm-d's
//! `session-affinity-scorer` with session ids). A session moves when its endpoint is no candidate any more.
//!
//! The sessions remembered are bounded by number, those used last, and not by time as there.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;
use serde::Deserialize;
use types::{Request, read_options};

use crate::candidate::{Candidate, Kind, Scorer};

pub(super) const KIND: Kind<dyn Scorer> = Kind {
    name: "session-affinity",
    build: |options| {
        let options: Options = read_options(KIND.name, options)?;
        Ok(Box::new(SessionAffinity { bound: Mutex::new(LruCache::new(options.max_sessions)) }))
    },
};

/// Tuning of the scorer.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Options {
    /// Sessions remembered.
    max_sessions: NonZeroUsize,
}

impl Default for Options {
    fn default() -> Self {
        const SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(65_535);
        Self { max_sessions: SESSIONS }
    }
}

#[derive(Debug)]
struct SessionAffinity {
    /// Slot of the endpoint of each session.
    bound: Mutex<LruCache<Arc<str>, u32>>,
}

impl Scorer for SessionAffinity {
    fn score(&self, request: &Request, candidates: &[Candidate], scores: &mut [f32]) {
        scores.fill(0.0);
        let Some(session) = &request.session else { return };
        let mut bound = self.bound.lock();
        let Some(slot) = bound.peek(session).copied() else { return };
        match candidates.iter().position(|candidate| candidate.endpoint.slot == slot) {
            Some(at) => scores[at] = 1.0,
            // Forgotten, so that wherever this request goes, the session goes.
            None => drop(bound.pop(session)),
        }
    }

    fn dispatched(&self, request: &Request, chosen: &Candidate) {
        if let Some(session) = &request.session {
            let slot = chosen.endpoint.slot;
            self.bound.lock().get_or_insert(Arc::clone(session), || slot);
        }
    }

    fn wants_metrics(&self) -> bool {
        false
    }
}
