//! The KV cache: blocks, the prefix cache over them, and the queue of free ones.
//!
//! A free block keeps its content, and stays a hit, until it is handed out again. The queue is a
//! doubly linked list through the blocks, so every operation is O(1).

use std::collections::hash_map::Entry;

use ahash::AHashMap;

/// End of the list.
const NONE: u32 = u32::MAX;

/// One block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Hash of its content and all before it, if it is full and registered.
    hash: Option<u64>,
    /// Sequences that hold it; it is in the free queue exactly when there is none.
    holders: u32,
    previous: u32,
    next: u32,
}

/// All KV blocks of one engine.
#[derive(Debug)]
pub(super) struct Blocks {
    all: Vec<Block>,
    by_hash: AHashMap<u64, u32>,
    /// Free block that is handed out next: the one freed longest ago.
    head: u32,
    tail: u32,
    free: u32,
    releases: u64,
}

impl Blocks {
    /// `count` empty, free blocks.
    pub(super) fn new(count: u32) -> Self {
        let link = |id| Block {
            hash: None,
            holders: 0,
            previous: if id == 0 { NONE } else { id - 1 },
            next: if id + 1 == count { NONE } else { id + 1 },
        };
        let (head, tail) = if count == 0 { (NONE, NONE) } else { (0, count - 1) };
        Self {
            all: (0..count).map(link).collect(),
            by_hash: AHashMap::new(),
            head,
            tail,
            free: count,
            releases: 0,
        }
    }

    /// How many there are.
    pub(super) fn total(&self) -> u32 {
        self.all.len() as u32
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
        self.by_hash.get(&hash).copied()
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

    /// Hands out the block freed longest ago, without its content; `None` if none is free.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let id = (self.head != NONE).then_some(self.head)?;
        self.unlink(id);
        let block = &mut self.all[id as usize];
        block.holders = 1;
        if let Some(hash) = block.hash.take() {
            self.by_hash.remove(&hash);
        }
        Some(id)
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
        let block = &mut self.all[id as usize];
        if block.hash.is_some() {
            return false;
        }
        let Entry::Vacant(entry) = self.by_hash.entry(hash) else { return false };
        entry.insert(id);
        block.hash = Some(hash);
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
                        prop_assert_eq!(blocks.allocate(), id);
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
