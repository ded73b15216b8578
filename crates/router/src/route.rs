//! One request through every room.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use datalayer::{Demand, EndpointState, Pool, Stream};
use features::{FeatureRow, View};
use parking_lot::RwLock;
use predict::{ClassKey, ForModel, Learner, Priors, Ticket};
use prefix::{BLOCK_BYTES, Hit, Index};
use prometheus::Registry;
use schedule::{Candidate, Decision, Explanation, Rung, Scheduler};
use serde::{Deserialize, Serialize};
use types::{Endpoint, Request, Time};

use crate::{
    flight::{Dispatched, Flight, Shared},
    learning::{Learning, Refits},
    metrics::{Gauges, Metrics, Readings},
    record::{Offered, Recorder},
    refusal::Refusal,
};

/// Blocks held for an endpoint that does not tell its capacity; the peer's default too.
const DEFAULT_BLOCKS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31_249);

/// How requests are routed.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Policy, profile and tuning of the decision.
    pub schedule: schedule::Options,
    /// Tuning of the learner.
    pub learner: predict::Options,
    /// Where batch models are fitted.
    pub refits: Refits,
    /// Start of the random numbers that break ties; equal seeds give equal decisions.
    pub seed: u64,
    /// What the learner starts from; [`predict::Options::priors`] says where they are to be read.
    #[serde(skip)]
    pub priors: Arc<Priors>,
}

/// Why a router cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scheduling options do not fit.
    #[error(transparent)]
    Schedule(#[from] schedule::Error),
    /// The learner's options do not fit.
    #[error(transparent)]
    Learner(#[from] regress::Error),
    /// The thread that fits batch models cannot be started.
    #[error("the thread that fits models cannot be started")]
    Thread(#[source] std::io::Error),
    /// A metric is registered twice.
    #[error("metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
}

/// Where a request goes.
#[derive(Debug)]
#[must_use = "a dropped flight counts as cancelled"]
pub struct Routed {
    /// Where to send it.
    pub endpoint: Arc<EndpointState>,
    /// What decided.
    pub rung: Rung,
    /// The reasons, if the request asked for them.
    pub explanation: Option<Box<Explanation>>,
    /// The request in flight: report tokens and the end to it.
    pub flight: Flight,
}

/// Routes the requests of one pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Router {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Arc<Pool>,
    scheduler: Scheduler,
    prefixes: RwLock<Index>,
    shared: Arc<Shared>,
    registry: Registry,
    seed: u64,
    requests: AtomicU64,
}

impl Router {
    /// A router over `pool` that has learned nothing yet, and knows what its priors tell.
    pub fn new(options: Options, pool: Arc<Pool>) -> Result<Self, Error> {
        let registry = Registry::new();
        let inner = Inner {
            pool,
            scheduler: Scheduler::new(options.schedule)?,
            prefixes: RwLock::new(Index::new(DEFAULT_BLOCKS)),
            shared: Arc::new(Shared {
                learning: Learning::new(
                    Learner::with_priors(&options.learner, options.priors)?,
                    options.refits,
                )
                .map_err(Error::Thread)?,
                metrics: Metrics::register(&registry)?,
                recorder: OnceLock::new(),
            }),
            registry,
            seed: options.seed,
            requests: AtomicU64::new(0),
        };
        let inner = Arc::new(inner);
        Gauges::register(Arc::downgrade(&inner), &inner.registry)?;
        Ok(Self { inner })
    }

    /// Chooses an endpoint for `request` at `now`, and counts it as in flight there. `avoid` holds
    /// slots that this request has tried in vain.
    pub fn route(&self, request: &Request, now: Time, avoid: &[u32]) -> Result<Routed, Refusal> {
        let inner = &*self.inner;
        let routed = inner.candidates(request, now, avoid).and_then(|mut found| {
            let random = inner.random();
            if inner.shared.records_candidates() {
                found.offered =
                    Some(Offered::of(&found.candidates, found.all_failing, now, random));
            }
            let decision = inner
                .scheduler
                .decide(request, &mut found.candidates, found.all_failing, random)
                .ok_or(Refusal::AllFiltered)?;
            Ok(inner.dispatch(request, now, found, decision))
        });
        if let Err(refusal) = routed {
            inner.shared.metrics.refused(refusal);
        }
        routed
    }

    /// Makes `endpoints` the pool.
    pub fn replace_endpoints(&self, endpoints: impl IntoIterator<Item = Endpoint>) {
        let changed = self.inner.pool.replace(endpoints);
        for slot in &changed.removed {
            self.inner.prefixes.write().remove(*slot);
        }
        if !changed.removed.is_empty() {
            let live = self.inner.pool.endpoints().iter().map(|state| state.slot).collect();
            self.inner.shared.learning.keep_only(&live);
        }
    }

    /// Hands every decided request that has ended to `recorder` from now on; the first recorder stays.
    pub fn record_to(&self, recorder: Arc<dyn Recorder>) {
        // A second one is dropped: rows would otherwise be split between two files.
        let _ = self.inner.shared.recorder.set(recorder);
    }

    /// The endpoints.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.inner.pool
    }

    /// Every metric of the process is registered here.
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// All that was learned, to be kept over a restart.
    pub fn save_models(&self) -> Result<Vec<u8>, predict::LoadError> {
        let endpoints = self.inner.pool.endpoints();
        let name_of = |slot: u32| {
            let found = endpoints.iter().find(|endpoint| endpoint.slot == slot)?;
            Some(found.endpoint.id.to_string())
        };
        self.inner.shared.learning.save(&name_of)
    }

    /// Takes over what [`Router::save_models`] gave; on an error nothing has changed. Endpoints that are
    /// not in the pool yet lose what belongs to them alone.
    pub fn restore_models(&self, saved: &[u8]) -> Result<(), predict::LoadError> {
        let endpoints = self.inner.pool.endpoints();
        let slot_of = |name: &str| {
            let found = endpoints.iter().find(|endpoint| endpoint.endpoint.id.as_str() == name)?;
            Some(found.slot)
        };
        self.inner.shared.learning.restore(saved, &slot_of)
    }

    /// Teaches the learner rows that were recorded earlier, by the slots that the endpoints have now. They
    /// are not recorded again. Takes about a tenth of a millisecond a row.
    pub fn teach(&self, rows: &[predict::Labelled]) {
        self.inner.shared.learning.teach(rows);
    }

    /// How good the predictions of every class are.
    pub fn errors(&self) -> Vec<predict::ClassError> {
        self.inner.shared.learning.errors()
    }
}

/// The candidates of one request.
struct Found {
    candidates: Vec<Candidate>,
    all_failing: bool,
    /// What of them is to be recorded.
    offered: Option<Offered>,
}

impl Inner {
    /// Every endpoint that may serve `request`, with all that is known of it.
    fn candidates(&self, request: &Request, now: Time, avoid: &[u32]) -> Result<Found, Refusal> {
        let endpoints = self.pool.endpoints();
        if endpoints.is_empty() {
            return Err(Refusal::NoEndpoints);
        }
        let in_subset = |endpoint: &EndpointState| {
            request.subset.as_ref().is_none_or(|subset| {
                subset.iter().any(|entry| entry.matches(&endpoint.endpoint.address))
            })
        };
        if !endpoints.iter().any(|endpoint| in_subset(endpoint)) {
            return Err(Refusal::NoneInSubset);
        }
        let may_serve =
            |endpoint: &EndpointState| in_subset(endpoint) && !avoid.contains(&endpoint.slot);
        let is_alive = |endpoint: &EndpointState| may_serve(endpoint) && endpoint.is_available(now);
        let all_failing = !endpoints.iter().any(|endpoint| is_alive(endpoint));
        let eligible = endpoints
            .iter()
            .filter(|endpoint| if all_failing { may_serve(endpoint) } else { is_alive(endpoint) });
        let models = self.shared.learning.models().of(&request.model);
        let mut hits = Vec::new();
        self.prefixes.read().lookup(&request.blocks, &mut hits);
        let estimate = Estimate::of(request, &models);
        let mut found =
            Found { candidates: Vec::with_capacity(endpoints.len()), all_failing, offered: None };
        for endpoint in eligible {
            found.candidates.push(estimate.candidate(endpoint, &hits, now));
        }
        if self.scheduler.wants_predictions() || self.shared.records_candidates() {
            predict_all(&mut found, &models, now);
        }
        Ok(found)
    }

    /// Sends `request` on its way to the chosen candidate.
    fn dispatch(&self, request: &Request, now: Time, found: Found, decision: Decision) -> Routed {
        let chosen = &found.candidates[decision.chosen];
        let slot = chosen.endpoint.slot;
        let models = self.shared.learning.models().of(&request.model);
        self.scheduler.dispatched(request, chosen);
        self.remember_prefix(request, chosen, models.bytes_per_token());
        self.shared.metrics.decided(decision.rung, decision.fell);
        let row = FeatureRow::extract(View {
            demand: &chosen.demand,
            snapshot: &chosen.snapshot,
            load: &chosen.load,
            now,
        });
        let ticket = Ticket {
            class: ClassKey {
                model: Arc::clone(&request.model),
                accelerator: chosen.endpoint.accelerator.clone(),
                role: chosen.endpoint.role,
            },
            slot,
            scope: request.scope.clone(),
            row,
            prediction: chosen.prediction,
            // Made under every policy: what another policy decided is judged all the same.
            forecasts: models
                .forecasts(&chosen.endpoint.accelerator, chosen.endpoint.role, slot, &row)
                .map(Box::new),
        };
        let mut demand = chosen.demand;
        if !request.stream {
            // Its first token will not be seen: from when it is expected, it counts as decoding.
            let predicted = chosen.prediction.or_else(|| {
                models.predict(&chosen.endpoint.accelerator, chosen.endpoint.role, slot, &row)
            });
            demand.assumed_ttft_ms = predicted.map(|prediction| prediction.ttft.p50());
            demand.assumed_itl_ms = predicted.map(|prediction| prediction.itl.p50());
        }
        let stream = Stream::dispatch(Arc::clone(&chosen.endpoint), demand, now);
        let considered = found
            .offered
            .map(|offered| Arc::new(offered.settle(request, chosen, decision.propensity, now)));
        let dispatched = Dispatched {
            at: now,
            prompt_bytes: request.prompt_bytes,
            rung: decision.rung,
            considered,
            ticket,
        };
        Routed {
            endpoint: Arc::clone(&chosen.endpoint),
            rung: decision.rung,
            explanation: decision.explanation,
            flight: Flight::new(
                Arc::clone(&self.shared),
                Arc::clone(&self.pool),
                stream,
                dispatched,
            ),
        }
    }

    /// The chosen endpoint will hold the prompt; how much it can hold, its page tells.
    fn remember_prefix(&self, request: &Request, chosen: &Candidate, bytes_per_token: f32) {
        if request.blocks.is_empty() {
            return;
        }
        let slot = chosen.endpoint.slot;
        let capacity = chosen.snapshot.kv_capacity_tokens().and_then(|tokens| {
            let bytes = tokens as f64 * f64::from(bytes_per_token);
            NonZeroUsize::new((bytes / BLOCK_BYTES as f64) as usize)
        });
        let mut prefixes = self.prefixes.write();
        if let Some(capacity) = capacity {
            prefixes.set_capacity(slot, capacity);
        }
        prefixes.insert(slot, &request.blocks);
    }

    /// A fresh random number, by the finaliser of splitmix64 over a counter.
    fn random(&self) -> u64 {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut z =
            self.seed.wrapping_add(turn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What a request will ask, as far as its text and the past tell.
struct Estimate {
    demand: Demand,
    bytes_per_token: f32,
}

impl Estimate {
    fn of(request: &Request, models: &ForModel) -> Self {
        let bytes_per_token = models.bytes_per_token();
        let by_size = || (request.prompt_bytes as f32 / bytes_per_token).ceil() as u32;
        let prompt_tokens = request.prompt_tokens.unwrap_or_else(by_size).max(1);
        let output = models.expected_output(request.scope.as_deref(), request.max_tokens);
        let demand = Demand {
            prompt_tokens,
            cached_tokens: 0,
            output_tokens: output.mean,
            output_spread: output.spread,
            max_output_tokens: request.max_tokens,
            slo: request.slo,
            weight: request.weight,
            assumed_ttft_ms: None,
            assumed_itl_ms: None,
        };
        let bytes_per_token = request.prompt_bytes as f32 / prompt_tokens as f32;
        Self { demand, bytes_per_token: bytes_per_token.max(0.1) }
    }

    fn candidate(&self, endpoint: &Arc<EndpointState>, hits: &[Hit], now: Time) -> Candidate {
        let hit = hits.binary_search_by_key(&endpoint.slot, |hit| hit.slot);
        let hit_blocks = hit.map_or(0, |at| hits[at].blocks);
        let hit_bytes = hit_blocks as f32 * BLOCK_BYTES as f32;
        let cached = (hit_bytes / self.bytes_per_token) as u32;
        let snapshot = endpoint.snapshot();
        Candidate {
            endpoint: Arc::clone(endpoint),
            snapshot,
            snapshot_age_ms: snapshot.age_ms(now),
            load: endpoint.load(now),
            demand: Demand { cached_tokens: cached.min(self.demand.prompt_tokens), ..self.demand },
            hit_blocks,
            prediction: None,
        }
    }
}

fn predict_all(found: &mut Found, models: &ForModel, now: Time) {
    for candidate in &mut found.candidates {
        let row = FeatureRow::extract(View {
            demand: &candidate.demand,
            snapshot: &candidate.snapshot,
            load: &candidate.load,
            now,
        });
        let endpoint = &candidate.endpoint;
        candidate.prediction =
            models.predict(&endpoint.accelerator, endpoint.role, endpoint.slot, &row);
    }
}

impl Readings for Inner {
    fn endpoints(&self) -> usize {
        self.pool.endpoints().len()
    }

    fn in_flight(&self) -> u64 {
        self.pool.endpoints().iter().map(|endpoint| u64::from(endpoint.in_flight())).sum()
    }

    fn prefix_blocks(&self) -> usize {
        self.prefixes.read().len()
    }

    fn errors(&self) -> Vec<predict::ClassError> {
        self.shared.learning.errors()
    }
}
