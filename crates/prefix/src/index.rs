//! The approximate index: per endpoint the blocks it was sent last, and per block its holders.
//!
//! Approximate, since it sees our decisions and not the engine's cache: another router's traffic, and
//! what the engine evicts for other reasons, it does not know. Bounded: each endpoint holds at most its
//! capacity in blocks, and the least recently sent block goes first.

use std::{collections::VecDeque, num::NonZeroUsize};

use ahash::AHashMap;
use smallvec::SmallVec;

/// An endpoint that holds a block.
#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: u32,
    /// When the block was sent there last.
    turn: u64,
}

/// Holders of one block, by ascending slot.
type Holders = SmallVec<[Holder; 2]>;

/// What one endpoint was sent, oldest first.
#[derive(Debug)]
struct Sent {
    capacity: NonZeroUsize,
    held: usize,
    /// Blocks with the turn they were sent at. One that was sent again later stands here twice; the
    /// earlier entry is stale.
    queue: VecDeque<(u64, u64)>,
}

/// Parts of the map of holders. A map that grows moves all it holds at once; of many small ones only
/// one grows at a time.
const PARTS: usize = 256;

/// Holders by block, in [`PARTS`] maps.
#[derive(Debug)]
struct ByBlock(Vec<AHashMap<u64, Holders>>);

impl ByBlock {
    fn part(block: u64) -> usize {
        (block % PARTS as u64) as usize
    }

    fn get(&self, block: u64) -> Option<&Holders> {
        self.0[Self::part(block)].get(&block)
    }

    fn part_of(&mut self, block: u64) -> &mut AHashMap<u64, Holders> {
        &mut self.0[Self::part(block)]
    }
}

/// Which blocks each endpoint holds.
#[derive(Debug)]
pub struct Index {
    holders: ByBlock,
    sent: AHashMap<u32, Sent>,
    default_capacity: NonZeroUsize,
    turn: u64,
}

/// Leading blocks of a prompt that an endpoint holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hit {
    /// The endpoint.
    pub slot: u32,
    /// Blocks, counted from the first, without a gap.
    pub blocks: u32,
}

impl Index {
    /// An empty index that holds up to `default_capacity` blocks for an endpoint whose own capacity is
    /// not known.
    pub fn new(default_capacity: NonZeroUsize) -> Self {
        let holders = ByBlock((0..PARTS).map(|_| AHashMap::new()).collect());
        Self { holders, sent: AHashMap::new(), default_capacity, turn: 0 }
    }

    /// Writes the hits of the prompt `blocks` into `hits`, in ascending order of slot; an endpoint
    /// that does not hold the first block is left out.
    pub fn lookup(&self, blocks: &[u64], hits: &mut Vec<Hit>) {
        hits.clear();
        let Some(first) = blocks.first().and_then(|block| self.holders.get(*block)) else { return };
        let mut alive: SmallVec<[u32; 8]> = first.iter().map(|holder| holder.slot).collect();
        for (matched, block) in (1..).zip(&blocks[1..]) {
            let mut rest = self.holders.get(*block).map_or(&[][..], |holders| holders);
            alive.retain(|slot| {
                let at = rest.partition_point(|holder| holder.slot < *slot);
                rest = &rest[at..];
                let holds = rest.first().is_some_and(|holder| holder.slot == *slot);
                if !holds {
                    hits.push(Hit { slot: *slot, blocks: matched });
                }
                holds
            });
            if alive.is_empty() {
                break;
            }
        }
        let all = blocks.len() as u32;
        hits.extend(alive.iter().map(|slot| Hit { slot: *slot, blocks: all }));
        hits.sort_unstable_by_key(|hit| hit.slot);
    }

    /// Notes that the prompt `blocks` was sent to `slot`.
    pub fn insert(&mut self, slot: u32, blocks: &[u64]) {
        self.turn += 1;
        let turn = self.turn;
        let sent = sent_of(&mut self.sent, slot, self.default_capacity);
        // Backwards, so that of one prompt the last block is the first to go.
        for block in blocks.iter().rev() {
            let holders = self.holders.part_of(*block).entry(*block).or_default();
            match holders.binary_search_by_key(&slot, |holder| holder.slot) {
                // A chain does not repeat a block; a caller that does changes nothing.
                Ok(at) if holders[at].turn == turn => continue,
                Ok(at) => holders[at].turn = turn,
                Err(at) => {
                    holders.insert(at, Holder { slot, turn });
                    sent.held += 1;
                }
            }
            sent.queue.push_back((*block, turn));
        }
        sent.shrink(slot, &mut self.holders);
    }

    /// Sets how many blocks `slot` can hold; what no longer fits is forgotten.
    pub fn set_capacity(&mut self, slot: u32, blocks: NonZeroUsize) {
        let sent = sent_of(&mut self.sent, slot, self.default_capacity);
        if sent.capacity != blocks {
            sent.capacity = blocks;
            sent.shrink(slot, &mut self.holders);
        }
    }

    /// Forgets `slot`.
    pub fn remove(&mut self, slot: u32) {
        let sent = self.sent.remove(&slot);
        for (block, turn) in sent.into_iter().flat_map(|sent| sent.queue) {
            forget(&mut self.holders, block, Holder { slot, turn });
        }
    }

    /// Distinct blocks held by any endpoint.
    pub fn len(&self) -> usize {
        self.holders.0.iter().map(|part| part.len()).sum()
    }

    /// Whether no endpoint holds a block.
    pub fn is_empty(&self) -> bool {
        self.holders.0.iter().all(|part| part.is_empty())
    }
}

fn sent_of(sent: &mut AHashMap<u32, Sent>, slot: u32, capacity: NonZeroUsize) -> &mut Sent {
    sent.entry(slot).or_insert_with(|| Sent { capacity, held: 0, queue: VecDeque::new() })
}

impl Sent {
    /// Forgets the oldest blocks beyond the capacity, and stale entries beyond as many again.
    fn shrink(&mut self, slot: u32, holders: &mut ByBlock) {
        while self.held > self.capacity.get()
            && let Some((block, turn)) = self.queue.pop_front()
        {
            self.held -= usize::from(forget(holders, block, Holder { slot, turn }));
        }
        if self.queue.len() > 2 * self.capacity.get() + 64 {
            self.queue.retain(|(block, turn)| holds(holders, *block, Holder { slot, turn: *turn }));
        }
    }
}

/// Whether `holder` holds `block` since just that turn.
fn holds(holders: &ByBlock, block: u64, holder: Holder) -> bool {
    holders.get(block).is_some_and(|all| {
        let found = all.binary_search_by_key(&holder.slot, |held| held.slot);
        found.is_ok_and(|at| all[at].turn == holder.turn)
    })
}

/// Takes `block` from `holder`, unless it was sent there again since; whether it was taken.
fn forget(holders: &mut ByBlock, block: u64, holder: Holder) -> bool {
    let part = holders.part_of(block);
    let Some(all) = part.get_mut(&block) else { return false };
    let found = all.binary_search_by_key(&holder.slot, |held| held.slot);
    let Ok(at) = found else { return false };
    if all[at].turn != holder.turn {
        return false;
    }
    all.remove(at);
    if all.is_empty() {
        part.remove(&block);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn index(capacity: usize) -> Index {
        Index::new(NonZeroUsize::new(capacity).unwrap())
    }

    fn hits(index: &Index, blocks: &[u64]) -> Vec<(u32, u32)> {
        let mut hits = Vec::new();
        index.lookup(blocks, &mut hits);
        hits.iter().map(|hit| (hit.slot, hit.blocks)).collect()
    }

    #[test]
    fn a_hit_ends_at_the_first_gap() {
        let mut index = index(10);
        index.insert(7, &[1, 2, 3]);
        index.insert(9, &[1, 5, 3]);
        assert_eq!(hits(&index, &[1, 2, 3, 4]), [(7, 3), (9, 1)]);
        assert_eq!(hits(&index, &[2, 3]), [(7, 2)]);
        assert_eq!(hits(&index, &[]), []);
    }

    #[test]
    fn of_a_prompt_that_is_too_long_the_end_is_forgotten() {
        let mut index = index(2);
        index.insert(0, &[1, 2, 3]);
        assert_eq!(hits(&index, &[1, 2, 3]), [(0, 2)]);
    }

    #[test]
    fn a_removed_endpoint_leaves_nothing() {
        let mut index = index(10);
        index.insert(0, &[1, 2]);
        index.insert(1, &[1]);
        index.remove(0);
        assert_eq!(hits(&index, &[1, 2]), [(1, 1)]);
        index.remove(1);
        assert!(index.is_empty());
    }

    /// Blocks of a prompt, no two alike.
    fn prompt() -> impl Strategy<Value = Vec<u64>> {
        prop::sample::subsequence((0_u64..12).collect::<Vec<_>>(), 1..6).prop_shuffle()
    }

    proptest! {
        /// Against a plain list per endpoint, newest first.
        #[test]
        fn it_agrees_with_a_naive_map(
            sent in prop::collection::vec((0_u32..4, prompt()), 0..40),
            asked in prop::collection::vec(0_u64..12, 1..6),
            capacity in 1_usize..12,
        ) {
            let mut index = index(capacity);
            let mut naive = BTreeMap::<u32, VecDeque<u64>>::new();
            for (slot, blocks) in &sent {
                index.insert(*slot, blocks);
                let list = naive.entry(*slot).or_default();
                for block in blocks.iter().rev() {
                    list.retain(|held| held != block);
                    list.push_front(*block);
                    list.truncate(capacity);
                }
            }
            let expected: Vec<_> = naive
                .iter()
                .map(|(slot, held)| (*slot, asked.iter().take_while(|b| held.contains(b)).count() as u32))
                .filter(|(_, blocks)| *blocks > 0)
                .collect();
            prop_assert_eq!(hits(&index, &asked), expected);
        }
    }
}
