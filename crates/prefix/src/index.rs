//! The approximate index: per endpoint the blocks it was sent last, and per block its holders.
//!
//! Approximate, since it sees our decisions and not the engine's cache: another router's traffic, and
//! what the engine evicts for other reasons, it does not know. Bounded: each endpoint holds at most its
//! capacity in blocks, and the least recently sent block goes first.

use std::num::NonZeroUsize;

use ahash::AHashMap;
use lru::LruCache;
use smallvec::SmallVec;

/// Endpoints by slot, ascending.
type Slots = SmallVec<[u32; 4]>;

/// Which blocks each endpoint holds.
#[derive(Debug)]
pub struct Index {
    holders: AHashMap<u64, Slots>,
    sent: AHashMap<u32, LruCache<u64, ()>>,
    default_capacity: NonZeroUsize,
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
        Self { holders: AHashMap::new(), sent: AHashMap::new(), default_capacity }
    }

    /// Writes the hits of the prompt `blocks` into `hits`, in ascending order of slot; an endpoint
    /// that does not hold the first block is left out.
    pub fn lookup(&self, blocks: &[u64], hits: &mut Vec<Hit>) {
        hits.clear();
        let Some(first) = blocks.first().and_then(|block| self.holders.get(block)) else { return };
        let mut alive: Slots = first.clone();
        for (matched, block) in (1..).zip(&blocks[1..]) {
            let holders = self.holders.get(block).map_or(&[][..], |slots| slots);
            let mut rest = holders;
            alive.retain(|slot| {
                let at = rest.partition_point(|holder| holder < slot);
                rest = &rest[at..];
                let holds = rest.first() == Some(slot);
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
        let capacity = self.default_capacity;
        let sent = self.sent.entry(slot).or_insert_with(|| LruCache::new(capacity));
        // Backwards, so that of one prompt the last block is the first to go.
        for block in blocks.iter().rev() {
            match sent.push(*block, ()) {
                None => add(&mut self.holders, *block, slot),
                Some((evicted, ())) if evicted != *block => {
                    remove(&mut self.holders, evicted, slot);
                    add(&mut self.holders, *block, slot);
                }
                Some(_) => {}
            }
        }
    }

    /// Sets how many blocks `slot` can hold; what no longer fits is forgotten.
    pub fn set_capacity(&mut self, slot: u32, blocks: NonZeroUsize) {
        let default = self.default_capacity;
        let sent = self.sent.entry(slot).or_insert_with(|| LruCache::new(default));
        if sent.cap() == blocks {
            return;
        }
        while sent.len() > blocks.get() {
            if let Some((block, ())) = sent.pop_lru() {
                remove(&mut self.holders, block, slot);
            }
        }
        sent.resize(blocks);
    }

    /// Forgets `slot`.
    pub fn remove(&mut self, slot: u32) {
        for (block, ()) in self.sent.remove(&slot).into_iter().flatten() {
            remove(&mut self.holders, block, slot);
        }
    }

    /// Distinct blocks held by any endpoint.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether no endpoint holds a block.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

fn add(holders: &mut AHashMap<u64, Slots>, block: u64, slot: u32) {
    let slots = holders.entry(block).or_default();
    if let Err(at) = slots.binary_search(&slot) {
        slots.insert(at, slot);
    }
}

fn remove(holders: &mut AHashMap<u64, Slots>, block: u64, slot: u32) {
    if let Some(slots) = holders.get_mut(&block) {
        if let Ok(at) = slots.binary_search(&slot) {
            slots.remove(at);
        }
        if slots.is_empty() {
            holders.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

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

    proptest! {
        /// Against a plain list per endpoint, newest first.
        #[test]
        fn it_agrees_with_a_naive_map(
            sent in prop::collection::vec((0_u32..4, prop::collection::vec(0_u64..12, 1..6)), 0..40),
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
