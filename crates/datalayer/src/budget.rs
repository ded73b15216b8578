//! How much room the streams of an endpoint have left under their ITL objectives, in a few bins.
//!
//! A decision must know what one more request takes from every stream of every candidate. Instead of
//! the streams themselves it reads these bins: streams with like room, summed.

use types::Millis;

use crate::demand::Demand;

/// Bins, by room left.
const BINS: usize = 16;
/// Room (as a share of the objective) at the lower edge of the second bin, and the ratio of
/// neighbouring edges: the bins span 0.35 to 4 times the objective.
const FIRST: f32 = 0.35;
const RATIO: f32 = 1.19;

/// Streams with like room left, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Streams.
    pub streams: f32,
    /// Sum of what a miss of each weighs.
    pub weight: f32,
    /// Sum over streams of the share of its whole time budget that is spent: `T / (N·s)` for decode
    /// time so far `T`, expected gaps `N` and objective `s`.
    pub spent: f32,
    /// Sum of `R / (N·s)`, per millisecond: what each millisecond of ITL from now on adds to the
    /// share spent, for `R` remaining gaps.
    pub per_itl_ms: f32,
    /// Sum of `1 / (N·s)`, per millisecond: what a single stall of a millisecond adds.
    pub per_stall_ms: f32,
}

/// The bins of one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets {
    bins: [Bin; BINS],
    /// Streams without an ITL objective.
    pub unbound: f32,
}

impl Budgets {
    /// Counts a stream that asked for `demand`, has decoded for `spent_ms`, has given `tokens` and is
    /// expected to give `remaining` more.
    pub fn add(&mut self, demand: &Demand, spent_ms: f32, tokens: f32, remaining: f32) {
        let Some(objective) = demand.slo.itl.map(Millis::get).filter(|ms| *ms > 0.0) else {
            self.unbound += 1.0;
            return;
        };
        let gaps = (tokens + remaining - 1.0).max(1.0);
        let remaining = remaining.clamp(1.0, gaps);
        let budget = gaps * objective;
        let room = ((budget - spent_ms) / remaining / objective).max(0.0);
        let bin = &mut self.bins[Self::bin_of(room)];
        bin.streams += 1.0;
        bin.weight += demand.weight;
        bin.spent += spent_ms / budget;
        bin.per_itl_ms += remaining / budget;
        bin.per_stall_ms += 1.0 / budget;
    }

    fn bin_of(room: f32) -> usize {
        if room < FIRST {
            return 0;
        }
        (((room / FIRST).ln() / RATIO.ln()) as usize + 1).min(BINS - 1)
    }

    /// Bins that were read off before, at most as many as there are; further ones are dropped.
    pub fn of_bins(bins: impl IntoIterator<Item = Bin>, unbound: f32) -> Self {
        let mut budgets = Self { unbound, ..Self::default() };
        for (place, bin) in budgets.bins.iter_mut().zip(bins) {
            *place = bin;
        }
        budgets
    }

    /// The bins that hold a stream.
    pub fn bins(&self) -> impl Iterator<Item = &Bin> {
        self.bins.iter().filter(|bin| bin.streams > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use types::Slo;

    use super::*;

    fn promised(itl_ms: f32) -> Demand {
        let slo = Slo { ttft: None, itl: Millis::new(itl_ms) };
        Demand { slo, weight: 2.0, ..Demand::default() }
    }

    #[test]
    fn streams_with_like_room_share_a_bin_and_unlike_ones_do_not() {
        let demand = promised(50.0);
        let mut budgets = Budgets::default();
        budgets.add(&demand, 0.0, 0.0, 100.0);
        budgets.add(&demand, 0.0, 0.0, 200.0);
        budgets.add(&demand, 4_900.0, 50.0, 51.0);
        budgets.add(&Demand::default(), 0.0, 0.0, 100.0);
        let streams: Vec<_> = budgets.bins().map(|bin| (bin.streams, bin.weight)).collect();
        assert_eq!(streams, [(1.0, 2.0), (2.0, 4.0)]);
        assert!((budgets.unbound - 1.0).abs() < f32::EPSILON);
    }

    #[test]
    fn a_stream_at_its_limit_is_in_the_lowest_bin() {
        let mut budgets = Budgets::default();
        budgets.add(&promised(10.0), 10_000.0, 10.0, 5.0);
        assert!(budgets.bins().next().unwrap().spent > 1.0);
    }
}
