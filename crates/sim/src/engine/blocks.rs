//! The KV cache: blocks, the prefix cache over them, and the queue of free ones.
//!
//! A free block keeps its content, and stays a hit, until it is handed out again. The queue is a
//! doubly linked list through the blocks, so every operation is O(1). Blocks that were never handed
//! out stand before all others in the queue and take no memory: a large fleet is mostly empty.

use super::table::Table;

/// End of the list.
const NONE: u32 = u32::MAX;

/// One block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Hash of its content and all before it, if it can be found by it.
    hash: u64,
    is_cached: bool,
    /// Sequences that hold it; it is in the free queue exactly when there is none.
    holders: u32,
    previous: u32,
    next: u32,
}

/// All KV blocks of one engine.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Those that were handed out at least once, by id.
    all: Vec<Block>,
    total: u32,
    by_hash: Table,
    /// Of those that were handed out, the one freed longest ago.
    head: u32,
    tail: u32,
    free: u32,
    releases: u64,
}

impl Blocks {
    /// `count` empty, free blocks.
    pub(super) fn new(count: u32) -> Self {
        Self {
            all: Vec::new(),
            total: count,
            by_hash: Table::new(),
            head: NONE,
            tail: NONE,
            free: count,
            releases: 0,
        }
    }

    /// How many there are.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// How many nobody holds.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Counts blocks that became free, ever.
    pub(super) fn releases(&self) -> u64 {
        self.releases
    }

    /// The block with this content, if there is one.
    pub(super) fn lookup(&self, hash: u64) -> Option<u32> {
        self.by_hash.get(hash, |id| self.all[id as usize].hash == hash)
    }

    /// Whether nobody holds block `id`.
    pub(super) fn is_free(&self, id: u32) -> bool {
        self.all[id as usize].holders == 0
    }

    /// One more holder of block `id`.
    pub(super) fn hold(&mut self, id: u32) {
        if self.is_free(id) {
            self.unlink(id);
        }
        self.all[id as usize].holders += 1;
    }

    /// Hands out up to `count` blocks, those freed longest ago first, without their content; appends them
    /// to `into`.
    pub(super) fn allocate(&mut self, count: u32, into: &mut Vec<u32>) {
        let fresh = self.all.len() as u32..self.total.min(self.all.len() as u32 + count);
        self.free -= fresh.len() as u32;
        let used = count - fresh.len() as u32;
        for id in fresh {
            self.all.push(Block {
                hash: 0,
                is_cached: false,
                holders: 1,
                previous: NONE,
                next: NONE,
            });
            into.push(id);
        }
        if used > 0 {
            self.take_oldest(used, into);
        }
    }

    /// The same of blocks that were handed out before.
    fn take_oldest(&mut self, count: u32, into: &mut Vec<u32>) {
        let first = into.len();
        for _ in 0..count.min(self.free) {
            into.push(self.head);
            self.head = self.all[self.head as usize].next;
        }
        match self.all.get_mut(self.head as usize) {
            Some(block) => block.previous = NONE,
            None => self.tail = NONE,
        }
        let taken = &into[first..];
        self.free -= taken.len() as u32;
        let cached = taken.iter().map(|id| &self.all[*id as usize]).filter(|b| b.is_cached);
        self.by_hash.warm(cached.map(|block| block.hash));
        for id in taken {
            let block = &mut self.all[*id as usize];
            block.holders = 1;
            if std::mem::take(&mut block.is_cached) {
                self.by_hash.remove(block.hash, *id);
            }
        }
    }

    /// Prepares for looking up or registering `hashes`.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        self.by_hash.warm(hashes);
    }

    /// One holder of block `id` less; the last one puts it at the end of the free queue.
    pub(super) fn release(&mut self, id: u32) {
        let tail = self.tail;
        let block = &mut self.all[id as usize];
        block.holders -= 1;
        if block.holders > 0 {
            return;
        }
        block.previous = tail;
        block.next = NONE;
        match self.all.get_mut(tail as usize) {
            Some(last) => last.next = id,
            None => self.head = id,
        }
        self.tail = id;
        self.free += 1;
        self.releases += 1;
    }

    /// Makes the content of block `id` findable. Of two blocks with equal content the first stays.
    /// Whether it was new.
    pub(super) fn register(&mut self, id: u32, hash: u64) -> bool {
        if self.all[id as usize].is_cached || self.lookup(hash).is_some() {
            return false;
        }
        self.by_hash.insert(hash, id);
        let block = &mut self.all[id as usize];
        block.hash = hash;
        block.is_cached = true;
        true
    }

    /// Takes block `id` out of the free queue.
    fn unlink(&mut self, id: u32) {
        let Block { previous, next, .. } = self.all[id as usize];
        match self.all.get_mut(previous as usize) {
            Some(block) => block.next = next,
            None => self.head = next,
        }
        match self.all.get_mut(next as usize) {
            Some(block) => block.previous = previous,
            None => self.tail = previous,
        }
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    /// The same cache, plainly: a queue that is searched, and a list of contents.
    struct Naive {
        queue: VecDeque<u32>,
        holders: HashMap<u32, u32>,
        content: HashMap<u32, u64>,
    }

    impl Naive {
        fn lookup(&self, hash: u64) -> Option<u32> {
            self.content.iter().find(|(_, h)| **h == hash).map(|(id, _)| *id)
        }
    }

    proptest! {
        #[test]
        fn blocks_behave_as_a_searched_queue(
            count in 1_u32..8,
            steps in proptest::collection::vec((0_u8..3, 0_u64..6, 0_usize..8), 0..200),
        ) {
            let mut blocks = Blocks::new(count);
            let mut naive = Naive {
                queue: (0..count).collect(),
                holders: HashMap::new(),
                content: HashMap::new(),
            };
            let mut held = Vec::new();
            for (action, hash, pick) in steps {
                match action {
                    0 => {
                        let id = naive.queue.pop_front();
                        let mut given = Vec::new();
                        blocks.allocate(1, &mut given);
                        prop_assert_eq!(given.pop(), id);
                        let Some(id) = id else { continue };
                        naive.content.remove(&id);
                        if naive.lookup(hash).is_none() {
                            naive.content.insert(id, hash);
                        }
                        blocks.register(id, hash);
                        naive.holders.insert(id, 1);
                        held.push(id);
                    }
                    1 => {
                        let found = naive.lookup(hash);
                        prop_assert_eq!(blocks.lookup(hash), found);
                        let Some(id) = found else { continue };
                        blocks.hold(id);
                        naive.queue.retain(|free| *free != id);
                        *naive.holders.entry(id).or_default() += 1;
                        held.push(id);
                    }
                    _ if held.is_empty() => {}
                    _ => {
                        let id = held.remove(pick % held.len());
                        blocks.release(id);
                        let holders = naive.holders.get_mut(&id).unwrap();
                        *holders -= 1;
                        if *holders == 0 {
                            naive.queue.push_back(id);
                        }
                    }
                }
                prop_assert_eq!(blocks.free() as usize, naive.queue.len());
            }
        }
    }
}
