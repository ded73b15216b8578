//! Walks the ladder: the first rung that can decide, decides.

use std::sync::atomic::{AtomicU64, Ordering};

use predict::Source;
use types::Request;

use crate::{
    candidate::Candidate,
    decision::{Choice, Decision, Rung},
    draw,
    error::Error,
    explain::explain,
    misses::{Cost, costs},
    options::{Options, Policy},
    profile::Profile,
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
        options.learned.check()?;
        let profile = Profile::new(&options.profile)?;
        Ok(Self { options, profile, turn: AtomicU64::new(0) })
    }

    /// Whether predictions are asked for: by the policy, or by a plugin that it uses.
    pub fn wants_predictions(&self) -> bool {
        self.profile.filters_want_predictions()
            || match self.options.policy {
                Policy::Learned => true,
                Policy::Heuristic => self.profile.scorers_want_predictions(),
                Policy::LeastRequests | Policy::RoundRobin | Policy::Random => false,
            }
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
        self.profile.narrow(request, candidates, random);
        if candidates.is_empty() {
            return None;
        }
        let mut scratch = Scratch::default();
        let (rung, choice, fell) = if all_failing {
            (Rung::Random, Self::any(candidates, random), Some("every endpoint is failing"))
        } else {
            self.climb(request, candidates, random, &mut scratch)
        };
        let propensity = choice.propensity.filter(|_| !self.profile.narrows_by_chance());
        let mut decision =
            Decision { chosen: choice.at, rung, fell, propensity, explanation: None };
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
    ) -> (Rung, Choice, Option<&'static str>) {
        let mut fell = None;
        match self.options.policy {
            Policy::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                let at = (turn % candidates.len() as u64) as usize;
                return (Rung::RoundRobin, Choice::one_of(at, 1), None);
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
                    && let Some(choice) =
                        cheapest(&scratch.costs, self.options.learned.explore, random)
                {
                    let is_prior =
                        |c: &Candidate| c.prediction.is_some_and(|p| p.source == Source::Prior);
                    return if is_prior(&candidates[choice.at]) {
                        (Rung::Prior, choice, Some("a class is known by its prior only"))
                    } else {
                        (Rung::Learned, choice, None)
                    };
                }
                fell = Some(doubt.filter(|_| known).unwrap_or("too few labels to predict from"));
            }
            Policy::Heuristic => {}
        }
        let fresh =
            |candidate: &Candidate| candidate.snapshot_age_ms.is_some_and(|age| age <= STALE_MS);
        if self.profile.wants_metrics() && !candidates.iter().any(fresh) {
            let choice = Self::least(candidates, random);
            return (Rung::LeastRequests, choice, Some("no fresh metrics to score by"));
        }
        self.profile.score(request, candidates, &mut scratch.scores);
        let at = self.profile.pick(&scratch.scores, random).unwrap_or(0);
        let propensity = self.profile.propensity(&scratch.scores, at);
        (Rung::Heuristic, Choice { at, propensity }, fell)
    }

    fn any(candidates: &[Candidate], random: u64) -> Choice {
        let at = (random % candidates.len() as u64) as usize;
        Choice::one_of(at, candidates.len())
    }

    /// Fewest requests in flight; among equals, one at random.
    fn least(candidates: &[Candidate], random: u64) -> Choice {
        let fewest = candidates.iter().map(Candidate::in_flight).min().unwrap_or(0);
        let equals = || {
            let has_fewest = |(at, c): (usize, &Candidate)| (c.in_flight() == fewest).then_some(at);
            candidates.iter().enumerate().filter_map(has_fewest)
        };
        let count = equals().count();
        let wanted = (random % count.max(1) as u64) as usize;
        Choice::one_of(equals().nth(wanted).unwrap_or(0), count)
    }
}

/// Costs that differ by less than this are equal, and chance decides between them.
const SAME_COST: f32 = 1e-6;
/// Most expected misses that exploring may add.
const EXPLORED_COST: f32 = 0.02;

/// The least cost; with the chance `explore`, any that costs little more. A choice by exploration may be the
/// best one too, and its propensity says so.
fn cheapest(costs: &[Cost], explore: f32, random: u64) -> Option<Choice> {
    let least = costs.iter().map(|cost| cost.total).min_by(f32::total_cmp)?;
    let within = |room: f32| {
        let places = costs.iter().enumerate().filter(move |(_, cost)| cost.total <= least + room);
        places.map(|(at, _)| at)
    };
    let explores = explore > 0.0 && draw::unit(draw::another(random, 0)) < f64::from(explore);
    let room = if explores { EXPLORED_COST } else { SAME_COST };
    let count = within(room).count().max(1);
    let at = within(room).nth((random % count as u64) as usize)?;
    if explore <= 0.0 {
        return Some(Choice::one_of(at, count));
    }
    let best = within(SAME_COST).count() as f32;
    let greedy = if within(SAME_COST).any(|other| other == at) { 1.0 / best } else { 0.0 };
    let any = 1.0 / within(EXPLORED_COST).count().max(1) as f32;
    Some(Choice { at, propensity: Some((1.0 - explore) * greedy + explore * any) })
}
