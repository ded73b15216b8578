//! When each engine's next step ends, and which one is first: a tournament over the engines.

use types::Time;

/// No step is due.
pub(super) const NEVER: Time = Time::from_nanos(u64::MAX);

/// The next instant of each engine. Of several at one instant the first engine wins.
#[derive(Debug)]
pub(super) struct Agenda {
    /// Instants by engine, filled up with [`NEVER`] to a power of two.
    times: Vec<Time>,
    /// Winner of each match; node 1 is the final, and the matches of the first round are in the second
    /// half.
    winners: Vec<u32>,
}

impl Agenda {
    /// One of `engines` engines with nothing due.
    pub(super) fn new(engines: usize) -> Self {
        let leaves = engines.next_power_of_two().max(2);
        let mut agenda = Self { times: vec![NEVER; leaves], winners: vec![0; leaves] };
        for node in (1..leaves).rev() {
            agenda.winners[node] = agenda.entrant(2 * node);
        }
        agenda
    }

    /// The first engine and its instant.
    pub(super) fn first(&self) -> (Time, usize) {
        let winner = self.winners[1] as usize;
        (self.times[winner], winner)
    }

    /// Sets the next instant of `engine`.
    pub(super) fn set(&mut self, engine: usize, time: Option<Time>) {
        let time = time.unwrap_or(NEVER);
        if self.times[engine] == time {
            return;
        }
        self.times[engine] = time;
        let mut node = usize::midpoint(self.times.len(), engine);
        while node > 0 {
            let (left, right) = (self.entrant(2 * node), self.entrant(2 * node + 1));
            let is_right = self.times[right as usize] < self.times[left as usize];
            self.winners[node] = if is_right { right } else { left };
            node /= 2;
        }
    }

    /// Who comes out of `node`: an engine of the first round, or the winner of a match.
    fn entrant(&self, node: usize) -> u32 {
        let leaves = self.times.len();
        if node >= leaves { (node - leaves) as u32 } else { self.winners[node] }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_least_of_a_plain_list(
            engines in 1_usize..20,
            sets in proptest::collection::vec((0_usize..20, proptest::option::of(0_u64..50)), 0..100),
        ) {
            let mut agenda = Agenda::new(engines);
            let mut plain = vec![NEVER; engines];
            for (engine, at) in sets {
                let engine = engine % engines;
                let time = at.map(Time::from_nanos);
                agenda.set(engine, time);
                plain[engine] = time.unwrap_or(NEVER);
                let least = plain.iter().enumerate().min_by_key(|(_, time)| **time);
                prop_assert_eq!(agenda.first(), least.map(|(at, time)| (*time, at)).unwrap());
            }
        }
    }
}
