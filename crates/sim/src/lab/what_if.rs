//! The cheapest of many fleets that holds the target.
//!
//! A fleet that has at least as many endpoints of every kind as one that holds is taken to hold too, and
//! one that has at most as many as one that fails, to fail. The next fleet to try is the one that settles
//! most others whichever way it goes.

use super::{
    fleet::Fleet,
    pool::{self, Tick},
    report::FleetTried,
    run::{Lab, LabError, Policy},
    spec::{Group, WhatIfSpec},
    wrong::Wrong,
};

/// Fleets that a search may choose from.
const MOST: usize = 4_096;

/// A fleet that may be tried.
#[derive(Clone, Debug)]
struct Candidate {
    fleet: Fleet,
    price: f64,
    /// Endpoints by kind of group; kinds are common to all candidates.
    counts: Vec<usize>,
}

impl Candidate {
    /// Whether it has at least as many endpoints of every kind as `other`.
    fn covers(&self, other: &Self) -> bool {
        self.counts.iter().zip(&other.counts).all(|(own, other)| own >= other)
    }
}

impl Lab {
    /// The fleets of the scenario's `what_if` that it took to find the cheapest which holds the target with
    /// every seed, at load 1, cheapest first.
    pub fn what_if(&self, tick: Tick<'_>) -> Result<Vec<FleetTried>, LabError> {
        let Some(what_if) = &self.spec.what_if else {
            return Err(Wrong::at("", "the scenario has no `what_if`").into());
        };
        let named = what_if.policy.as_deref();
        let chosen = match named {
            Some(name) => self.policies.iter().find(|policy| policy.name == name),
            None => self.policies.first(),
        };
        let Some(policy) = chosen else {
            let reason = "its policy is none of those that run";
            return Err(Wrong::at("what_if.policy", reason).into());
        };
        let candidates = self.candidates(what_if)?;
        let (mut tried, mut done) = (Vec::new(), 0);
        let mut search = Search::new(&candidates);
        while let Some(at) = search.next() {
            let entry = self.try_fleet(&candidates[at], policy)?;
            done += 1;
            tick(done, done + search.left());
            search.settle(at, entry.holds);
            tried.push(entry);
        }
        tried.sort_by(|a, b| a.price_per_hour.total_cmp(&b.price_per_hour));
        Ok(tried)
    }

    fn try_fleet(&self, candidate: &Candidate, policy: &Policy) -> Result<FleetTried, LabError> {
        let seeds = &self.spec.seeds.0;
        let runs = pool::map(self.jobs, seeds.len(), &|_, _| {}, |at| {
            self.play(&candidate.fleet, policy, 1.0, seeds[at])
        })?;
        let attainment = runs.iter().map(|(run, ..)| run.attainment).sum::<f64>();
        Ok(FleetTried {
            fleet: candidate.fleet.words(),
            price_per_hour: candidate.price,
            policy: policy.name.clone(),
            attainment: attainment / runs.len().max(1) as f64,
            holds: runs.iter().all(|(run, ..)| self.holds(run)),
        })
    }

    fn candidates(&self, what_if: &WhatIfSpec) -> Result<Vec<Candidate>, Wrong> {
        let fleets =
            if what_if.counts.is_empty() { what_if.fleets.clone() } else { self.grid(what_if)? };
        let mut kinds: Vec<String> = Vec::new();
        let mut candidates = Vec::new();
        for (at, groups) in fleets.iter().enumerate() {
            let fleet =
                Fleet::from_groups(groups, &self.spec.model, &format!("what_if.fleets[{at}]"))?;
            let mut counts = vec![0; kinds.len()];
            for group in groups {
                let kind =
                    format!("{:?}", Group { count: 0, price_per_hour: None, ..group.clone() });
                let place = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                    kinds.push(kind);
                    counts.push(0);
                    counts.len() - 1
                });
                counts[place] += group.count;
            }
            candidates.push(Candidate { price: fleet.price_per_hour(), fleet, counts });
        }
        for candidate in &mut candidates {
            candidate.counts.resize(kinds.len(), 0);
        }
        Ok(candidates)
    }

    /// Every fleet whose counts are within the ranges.
    fn grid(&self, what_if: &WhatIfSpec) -> Result<Vec<Vec<Group>>, Wrong> {
        let base = self.fleet.groups();
        let mut fleets: Vec<Vec<Group>> = vec![base.clone()];
        for (name, (least, most)) in &what_if.counts {
            let named = |group: &Group| {
                group.name.as_deref() == Some(name) || group.gpu.eq_ignore_ascii_case(name)
            };
            let Some(place) = base.iter().position(named) else {
                let known =
                    base.iter().flat_map(|group| group.name.iter().chain([&group.gpu]).cloned());
                let reason = format!("no group of the fleet is `{name}`");
                return Err(Wrong::unknown("what_if.counts", reason, name, known));
            };
            if fleets.len().saturating_mul(most - least + 1) > MOST {
                let reason = format!("makes more than {MOST} fleets");
                return Err(Wrong::at("what_if.counts", reason));
            }
            let with = |count| {
                move |mut fleet: Vec<Group>| {
                    fleet[place].count = count;
                    fleet
                }
            };
            let all = (*least..=*most).flat_map(|count| fleets.iter().cloned().map(with(count)));
            fleets = all.collect();
        }
        for fleet in &mut fleets {
            fleet.retain(|group| group.count > 0);
        }
        fleets.retain(|fleet| !fleet.is_empty());
        Ok(fleets)
    }
}

/// Which candidates may still be the cheapest that holds.
#[derive(Debug)]
struct Search<'a> {
    candidates: &'a [Candidate],
    open: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(candidates: &'a [Candidate]) -> Self {
        Self { candidates, open: vec![true; candidates.len()] }
    }

    fn left(&self) -> usize {
        self.open.iter().filter(|open| **open).count()
    }

    /// Candidates that need no trial once `at` was tried.
    fn settled(&self, at: usize, holds: bool) -> impl Iterator<Item = usize> {
        let tried = &self.candidates[at];
        (0..self.candidates.len()).filter(move |other| {
            let other_one = &self.candidates[*other];
            let gone = if holds { other_one.price >= tried.price } else { tried.covers(other_one) };
            self.open[*other] && (*other == at || gone)
        })
    }

    /// The candidate to try: the one that settles most whichever way it goes, the cheaper of equal ones.
    fn next(&self) -> Option<usize> {
        let value = |at: usize| {
            let worst = self.settled(at, true).count().min(self.settled(at, false).count());
            (worst, -self.candidates[at].price)
        };
        let open = (0..self.candidates.len()).filter(|at| self.open[*at]);
        open.map(|at| (value(at), at))
            .max_by(|((a, x), _), ((b, y), _)| a.cmp(b).then(x.total_cmp(y)))
            .map(|(_, at)| at)
    }

    fn settle(&mut self, at: usize, holds: bool) {
        let gone: Vec<_> = self.settled(at, holds).collect();
        for at in gone {
            self.open[at] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    fn grid(prices: [f64; 2], most: usize) -> Vec<Candidate> {
        let group = |gpu: &str, count| -> Group {
            serde_json::from_value(serde_json::json!({"gpu": gpu, "count": count})).unwrap()
        };
        let fleet = Fleet::from_groups(&[group("H100", 1)], "llama-3.1-8b", "fleet").unwrap();
        let all = (0..=most).flat_map(|a| (0..=most).map(move |b| (a, b)));
        let candidate = |(a, b)| Candidate {
            fleet: fleet.clone(),
            price: prices[0] * a as f64 + prices[1] * b as f64,
            counts: vec![a, b],
        };
        all.map(candidate).collect()
    }

    #[test]
    fn the_cheapest_is_that_of_trying_all() {
        let mut draw = StdRng::seed_from_u64(7);
        for _ in 0..200 {
            let prices = [draw.random_range(0.5..4.0), draw.random_range(0.5..4.0)];
            let speeds = [draw.random_range(0.5..4.0), draw.random_range(0.5..4.0)];
            let needed = draw.random_range(1.0..40.0);
            let candidates = grid(prices, 7);
            let holds = |at: usize| {
                let counts = &candidates[at].counts;
                speeds[0] * counts[0] as f64 + speeds[1] * counts[1] as f64 >= needed
            };
            let (mut best, mut trials) = (f64::INFINITY, 0);
            let mut search = Search::new(&candidates);
            while let Some(at) = search.next() {
                trials += 1;
                if holds(at) {
                    best = best.min(candidates[at].price);
                }
                search.settle(at, holds(at));
            }
            let all = (0..candidates.len()).filter(|at| holds(*at));
            let expected = all.map(|at| candidates[at].price).fold(f64::INFINITY, f64::min);
            assert!(best.to_bits() == expected.to_bits(), "{best}, not {expected}");
            assert!(trials <= 24, "{trials} of {}", candidates.len());
        }
    }
}
