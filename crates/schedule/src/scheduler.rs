//! Walks the ladder: the first rung that can decide, decides.

use std::sync::atomic::{AtomicU64, Ordering};

use predict::Source;
use types::Request;

use crate::{
    candidate::Candidate,
    decision::{Decision, Rung},
    explain::explain,
    misses::{Cost, costs},
    options::{Options, Policy},
    profile::{Error, Profile},
};

/// Oldest scrape that heuristics go by; the peer's default for a stale page is the same.
const STALE_MS: f32 = 2_000.0;

/// Buffers that are used again for each decision.
#[derive(Debug, Default)]
struct Scratch {
    costs: Vec<Cost>,
    scores: Vec<f32>,
}

/// Decides, by one configuration.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    profile: Profile,
    turn: AtomicU64,
}

impl Scheduler {
    /// Builds the plugins that `options` name.
    pub fn new(options: Options) -> Result<Self, Error> {
        let profile = Profile::new(&options.profile)?;
        Ok(Self { options, profile, turn: AtomicU64::new(0) })
    }

    /// Whether predictions are asked for.
    pub fn wants_predictions(&self) -> bool {
        self.options.policy == Policy::Learned
    }

    /// Narrows `candidates` and decides among what is left; `None` if nothing is. `all_failing` says
    /// that no candidate is known to be alive, and then chance decides. `random` is a fresh random
    /// number; equal inputs give equal decisions.
    pub fn decide(
        &self,
        request: &Request,
        candidates: &mut Vec<Candidate>,
        all_failing: bool,
        random: u64,
    ) -> Option<Decision> {
        self.profile.narrow(request, candidates);
        if candidates.is_empty() {
            return None;
        }
        let mut scratch = Scratch::default();
        let (rung, chosen, fell) = if all_failing {
            (Rung::Random, Self::any(candidates, random), Some("every endpoint is failing"))
        } else {
            self.climb(request, candidates, random, &mut scratch)
        };
        let mut decision = Decision { chosen, rung, fell, explanation: None };
        if request.explain {
            let explanation = explain(&decision, candidates, &scratch.costs, &scratch.scores);
            decision.explanation = Some(Box::new(explanation));
        }
        Some(decision)
    }

    /// Tells the scorers where `request` went.
    pub fn dispatched(&self, request: &Request, chosen: &Candidate) {
        self.profile.dispatched(request, chosen);
    }

    fn climb(
        &self,
        request: &Request,
        candidates: &[Candidate],
        random: u64,
        scratch: &mut Scratch,
    ) -> (Rung, usize, Option<&'static str>) {
        let mut fell = None;
        match self.options.policy {
            Policy::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                return (Rung::RoundRobin, (turn % candidates.len() as u64) as usize, None);
            }
            Policy::Random => return (Rung::Random, Self::any(candidates, random), None),
            Policy::LeastRequests => {
                return (Rung::LeastRequests, Self::least(candidates, random), None);
            }
            Policy::Learned => {
                let known =
                    costs(&self.options.learned, request.slo, candidates, &mut scratch.costs);
                let doubt = candidates.iter().find_map(|c| c.prediction?.trust.doubt());
                if known
                    && doubt.is_none()
                    && let Some(chosen) = cheapest(&scratch.costs, random)
                {
                    let is_prior =
                        |c: &Candidate| c.prediction.is_some_and(|p| p.source == Source::Prior);
                    return if is_prior(&candidates[chosen]) {
                        (Rung::Prior, chosen, Some("a class is known by its prior only"))
                    } else {
                        (Rung::Learned, chosen, None)
                    };
                }
                fell = Some(doubt.filter(|_| known).unwrap_or("too few labels to predict from"));
            }
            Policy::Heuristic => {}
        }
        let fresh =
            |candidate: &Candidate| candidate.snapshot_age_ms.is_some_and(|age| age <= STALE_MS);
        if !candidates.iter().any(fresh) {
            let chosen = Self::least(candidates, random);
            return (Rung::LeastRequests, chosen, Some("no fresh metrics to score by"));
        }
        self.profile.score(request, candidates, &mut scratch.scores);
        let chosen = self.profile.pick(&scratch.scores, random).unwrap_or(0);
        (Rung::Heuristic, chosen, fell)
    }

    fn any(candidates: &[Candidate], random: u64) -> usize {
        (random % candidates.len() as u64) as usize
    }

    /// Fewest requests in flight; among equals, one at random.
    fn least(candidates: &[Candidate], random: u64) -> usize {
        let fewest = candidates.iter().map(Candidate::in_flight).min().unwrap_or(0);
        let equals = || {
            let has_fewest = |(at, c): (usize, &Candidate)| (c.in_flight() == fewest).then_some(at);
            candidates.iter().enumerate().filter_map(has_fewest)
        };
        let wanted = (random % equals().count().max(1) as u64) as usize;
        equals().nth(wanted).unwrap_or(0)
    }
}

/// Costs that differ by less than this are equal, and chance decides between them.
const SAME_COST: f32 = 1e-6;

fn cheapest(costs: &[Cost], random: u64) -> Option<usize> {
    let least = costs.iter().map(|cost| cost.total).min_by(f32::total_cmp)?;
    let is_least = |cost: &Cost| cost.total <= least + SAME_COST;
    let equals = costs.iter().filter(|cost| is_least(cost)).count().max(1) as u64;
    let wanted = (random % equals) as usize;
    let places = costs.iter().enumerate().filter(|(_, cost)| is_least(cost));
    places.map(|(at, _)| at).nth(wanted)
}
