//! The endpoints of one pool with all we know of each: an immutable list, swapped when it changes.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use types::{Accelerator, Endpoint, EndpointId, Role, Time};

use crate::{
    Snapshot,
    inflight::{InFlight, Load},
};

/// One endpoint and what is known of it.
#[derive(Debug)]
pub struct EndpointState {
    /// Who and where it is.
    pub endpoint: Endpoint,
    /// Number of this endpoint, never used again after it is gone.
    pub slot: u32,
    /// Its accelerator class.
    pub accelerator: Accelerator,
    /// Phases it serves.
    pub role: Role,
    /// `host:port`, as headers and metadata carry it.
    pub address: String,
    snapshot: ArcSwap<Snapshot>,
    in_flight: Mutex<InFlight>,
    failures: AtomicU32,
    failed_at: AtomicU64,
}

/// Longest time that an endpoint is left alone after failures.
const MAX_BACKOFF_MS: f32 = 30_000.0;

impl EndpointState {
    fn new(endpoint: Endpoint, slot: u32) -> Self {
        Self {
            slot,
            accelerator: endpoint.accelerator(),
            role: endpoint.role(),
            address: endpoint.address.to_string(),
            endpoint,
            snapshot: ArcSwap::default(),
            in_flight: Mutex::default(),
            failures: AtomicU32::new(0),
            failed_at: AtomicU64::new(0),
        }
    }

    /// What its page said last.
    pub fn snapshot(&self) -> Snapshot {
        **self.snapshot.load()
    }

    /// Replaces what its page said last.
    pub fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
    }

    /// What we have in flight there, at `now`.
    pub fn load(&self, now: Time) -> Load {
        self.in_flight.lock().load(now)
    }

    /// Requests that we sent and that have not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.lock().requests()
    }

    /// A request has failed there at `now`.
    pub fn failed(&self, now: Time) {
        self.failed_at.store(now.nanos(), Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has been served there.
    pub fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it may be tried at `now`: after failures in a row it is left alone for 1, 2, 4, … up to
    /// 30 seconds.
    pub fn is_available(&self, now: Time) -> bool {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures == 0 {
            return true;
        }
        let backoff_ms =
            (1_000.0 * 2.0_f32.powf((failures.min(16) - 1) as f32)).min(MAX_BACKOFF_MS);
        now.ms_since(Time::from_nanos(self.failed_at.load(Ordering::Relaxed))) >= backoff_ms
    }

    /// Changes the accounting.
    pub(crate) fn account<R>(&self, change: impl FnOnce(&mut InFlight) -> R) -> R {
        change(&mut self.in_flight.lock())
    }
}

/// The endpoints that serve one base model.
#[derive(Debug, Default)]
pub struct Pool {
    endpoints: ArcSwap<Vec<Arc<EndpointState>>>,
    slots: AtomicU32,
    change: Mutex<()>,
}

/// What a change of the pool added and removed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changed {
    /// Endpoints that were not there before, or have moved to another address.
    pub added: Vec<EndpointId>,
    /// Slots of endpoints that are gone.
    pub removed: Vec<u32>,
}

impl Pool {
    /// A pool of `endpoints`.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let pool = Self::default();
        pool.replace(endpoints);
        pool
    }

    /// The present list, immutable.
    pub fn endpoints(&self) -> Arc<Vec<Arc<EndpointState>>> {
        self.endpoints.load_full()
    }

    /// Makes `endpoints` the list. One that stays, with its address and labels, keeps its state;
    /// requests in flight on one that is gone end on their own.
    pub fn replace(&self, endpoints: impl IntoIterator<Item = Endpoint>) -> Changed {
        let _one_at_a_time = self.change.lock();
        let old = self.endpoints.load_full();
        let mut changed = Changed::default();
        let kept: std::collections::HashMap<_, _> =
            old.iter().map(|state| (&state.endpoint.id, state)).collect();
        let new: Vec<_> = endpoints
            .into_iter()
            .map(|endpoint| match kept.get(&endpoint.id) {
                Some(state) if state.endpoint == endpoint => Arc::clone(state),
                _ => {
                    changed.added.push(endpoint.id.clone());
                    let slot = self.slots.fetch_add(1, Ordering::Relaxed);
                    Arc::new(EndpointState::new(endpoint, slot))
                }
            })
            .collect();
        let present: std::collections::HashSet<_> = new.iter().map(|state| state.slot).collect();
        changed.removed =
            old.iter().map(|state| state.slot).filter(|slot| !present.contains(slot)).collect();
        self.endpoints.store(Arc::new(new));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, address: &str) -> Endpoint {
        Endpoint {
            id: EndpointId::new("default", name),
            address: address.parse().unwrap(),
            labels: [].into(),
        }
    }

    #[test]
    fn an_endpoint_that_stays_keeps_its_state_and_one_that_moves_starts_anew() {
        let pool = Pool::new([endpoint("a", "10.0.0.1:1"), endpoint("b", "10.0.0.2:1")]);
        pool.endpoints()[0].publish(Snapshot { running: Some(3), ..Snapshot::default() });
        let changed = pool.replace([endpoint("a", "10.0.0.1:1"), endpoint("b", "10.0.0.3:1")]);
        let endpoints = pool.endpoints();
        assert_eq!(endpoints[0].snapshot().running, Some(3));
        assert_eq!(changed.added, [EndpointId::new("default", "b")]);
        assert_eq!(changed.removed, [1]);
        assert_eq!(endpoints[1].slot, 2);
    }
}
