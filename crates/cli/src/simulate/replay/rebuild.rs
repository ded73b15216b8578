//! Makes the request and the candidates of a logged decision again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anyhow::Context as _;
use datalayer::{Bin, Budgets, Demand, EndpointState, Load, Pool, Snapshot};
use features::{Column, FeatureRow, WIDTH};
use types::{Endpoint, EndpointId, Request, Slo, Time};

use crate::rows::{Candidate, Decision, Logged, Predicted};

/// Instant of the first decision, in seconds: longer after the start of the clock than a scrape can be old.
const START_S: f64 = 120.0;
/// Age of a scrape from which it was none, in milliseconds.
const NEVER_MS: f32 = 60_000.0;
/// Bytes of prompt per token: of no consequence, since tokens are told.
const BYTES_PER_TOKEN: u32 = 4;

/// Name, accelerator class and role.
type Identity = (String, String, String);

/// The endpoints of a log, and when it starts.
#[derive(Debug)]
pub(super) struct Rebuilder {
    states: HashMap<Identity, Arc<EndpointState>>,
    start_ms: f64,
}

fn identity(candidate: &Candidate) -> Identity {
    let Candidate { endpoint, accelerator, role, .. } = candidate;
    (endpoint.clone(), accelerator.clone(), role.clone())
}

impl Rebuilder {
    /// Knows every endpoint that is a candidate in `rows`.
    pub(super) fn of(rows: &[Logged]) -> anyhow::Result<Self> {
        let decisions = rows.iter().filter_map(|row| row.decision.as_ref());
        let mut identities = Vec::new();
        let mut seen = HashSet::new();
        for candidate in decisions.flat_map(|decision| &decision.candidates) {
            let identity = identity(candidate);
            if seen.insert(identity.clone()) {
                identities.push(identity);
            }
        }
        let endpoints = identities.iter().enumerate().map(endpoint);
        let pool = Pool::new(endpoints.collect::<anyhow::Result<Vec<_>>>()?);
        let states = identities.into_iter().zip(pool.endpoints().iter().cloned()).collect();
        let start_ms = rows.iter().map(|row| row.decided_at_ms).fold(f64::INFINITY, f64::min);
        Ok(Self { states, start_ms })
    }

    /// The request of `row`, with `slo` for what it was promised.
    pub(super) fn request(row: &Logged, decision: &Decision, slo: Slo) -> Request {
        let prompt = decision.candidates[decision.chosen].features[Column::Prompt as usize] as u32;
        Request {
            id: "replayed".into(),
            model: row.model.as_str().into(),
            stream: decision.stream,
            prompt_bytes: prompt.saturating_mul(BYTES_PER_TOKEN),
            prompt_tokens: Some(prompt),
            max_tokens: None,
            blocks: vec![0; decision.blocks as usize].into(),
            slo,
            scope: None,
            session: decision.session.map(|number| number.to_string().into()),
            weight: decision.weight,
            subset: None,
            explain: false,
        }
    }

    /// The candidates of `row`, in their order.
    pub(super) fn candidates(
        &self,
        row: &Logged,
        decision: &Decision,
        slo: Slo,
    ) -> anyhow::Result<Vec<schedule::Candidate>> {
        let now = Time::from_secs_f64(START_S + (row.decided_at_ms - self.start_ms) / 1e3);
        let one = |candidate: &Candidate| {
            let state = self.states.get(&identity(candidate)).context("an endpoint is missing")?;
            candidate_of(candidate, Arc::clone(state), (slo, decision.weight), now)
        };
        decision.candidates.iter().map(one).collect()
    }
}

/// An endpoint by that identity; nothing is sent to its address.
fn endpoint((at, (name, accelerator, role)): (usize, &Identity)) -> anyhow::Result<Endpoint> {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let address = format!("replayed-{at}:80").parse().context("an endpoint has no address")?;
    let labels = [("llm-d.ai/accelerator", accelerator), ("llm-d.ai/role", role)];
    Ok(Endpoint {
        id: EndpointId::new(namespace, name),
        address,
        labels: labels.map(|(key, value)| (key.to_owned(), value.clone())).into(),
    })
}

fn candidate_of(
    logged: &Candidate,
    endpoint: Arc<EndpointState>,
    promised: (Slo, f32),
    now: Time,
) -> anyhow::Result<schedule::Candidate> {
    let values: [f32; WIDTH] =
        logged.features.as_slice().try_into().context("a candidate has too few features")?;
    let row = FeatureRow::from(values);
    let age = Some(row.get(Column::SnapshotAge)).filter(|age| *age < NEVER_MS);
    let count = |column: Column| row.get(column) as u32;
    let scraped_at = age.map(|age| Time::from_secs_f64(now.secs_f64() - f64::from(age) / 1e3));
    let snapshot = Snapshot {
        scraped_at,
        running: Some(count(Column::Running)),
        waiting: Some(count(Column::Waiting)),
        kv_utilization: Some(row.get(Column::KvUtilization)),
        kv_block_tokens: logged.kv.map(|(tokens, _)| tokens),
        kv_blocks: logged.kv.map(|(_, blocks)| blocks),
        ..Snapshot::default()
    };
    let prompt_tokens = count(Column::Prompt);
    let demand = Demand {
        prompt_tokens,
        cached_tokens: prompt_tokens.saturating_sub(count(Column::Uncached)),
        output_tokens: row.get(Column::Output),
        slo: promised.0,
        weight: promised.1,
        ..Demand::default()
    };
    Ok(schedule::Candidate {
        endpoint,
        snapshot,
        snapshot_age_ms: age,
        load: load_of(&row, logged),
        demand,
        hit_blocks: logged.hit_blocks,
        prediction: logged.prediction.as_ref().map(Predicted::prediction),
    })
}

/// What was in flight, as far as features and bins tell: all that a decision looks at.
fn load_of(row: &FeatureRow, logged: &Candidate) -> Load {
    let known = |column: Column| Some(row.get(column)).filter(|value| *value > 0.0);
    let bin = |bin: &(f32, f32, f32, f32, f32)| {
        let (streams, spent, per_itl_ms, per_stall_ms, weight) = *bin;
        Bin { streams, weight, spent, per_itl_ms, per_stall_ms }
    };
    Load {
        prefilling: row.get(Column::AheadRequests) as u32,
        prefill_tokens: row.get(Column::AheadTokens),
        prefill_pairs: f64::from(row.get(Column::AheadPairs)) * 1e6,
        prefill_context_tokens: row.get(Column::AheadContext) as u64,
        decoding: row.get(Column::Decoding) as u32,
        decode_tokens: row.get(Column::DecodeTokens) as u64,
        remaining_tokens: row.get(Column::Remaining),
        oldest_wait_ms: row.get(Column::OldestWait),
        step_ms: known(Column::Step),
        since_token_ms: Some(row.get(Column::SinceToken)).filter(|ms| *ms < NEVER_MS),
        prefill_ms_per_token: known(Column::PrefillPerToken).map(|us| us / 1e3),
        arriving_tokens_per_s: row.get(Column::ArrivingTokens),
        arriving_per_s: row.get(Column::ArrivingRequests),
        budgets: Budgets::of_bins(logged.bins.iter().map(bin), logged.unbound),
    }
}
