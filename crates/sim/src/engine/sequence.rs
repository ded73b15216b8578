//! One request inside the engine, and the slab that holds them.

use std::sync::Arc;

use ahash::AHashMap;
use types::Time;

use super::Submit;

/// Mixes ids into the hashes of blocks that no prompt hash covers (64-bit golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// One request on its way through the engine.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) id: u64,
    pub(super) prompt: u32,
    pub(super) output: u32,
    hashes: Arc<[u64]>,
    /// When it enters the waiting queue.
    pub(super) arrival: Time,
    /// Blocks it holds, in order of its tokens.
    pub(super) table: Vec<u32>,
    /// Tokens whose KV stands in its blocks.
    pub(super) computed: u32,
    /// Tokens it emitted.
    pub(super) generated: u32,
    /// Tokens of it in the step that runs now.
    pub(super) scheduled: u32,
    /// Prompt tokens found in the cache at its first admission; `None` before.
    pub(super) cached: Option<u32>,
    pub(super) place: Place,
}

/// Where a sequence is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// In the API server, on its way to the waiting queue.
    Incoming,
    /// In the waiting queue.
    Waiting,
    /// Among the running.
    Running,
}

impl Sequence {
    fn new(submit: Submit, arrival: Time, mut table: Vec<u32>) -> Self {
        table.clear();
        Self {
            id: submit.id,
            prompt: submit.prompt_tokens,
            output: submit.output_tokens,
            hashes: submit.blocks,
            arrival,
            table,
            computed: 0,
            generated: 0,
            scheduled: 0,
            cached: None,
            place: Place::Incoming,
        }
    }

    /// Tokens known so far: what must be computed before the next one can be emitted.
    pub(super) fn tokens(&self) -> u32 {
        self.prompt + self.generated
    }

    /// Hash of full block `index`; a derived one where the caller gave none.
    pub(super) fn hash(&self, index: u32) -> u64 {
        self.hashes.get(index as usize).copied().unwrap_or_else(|| {
            let base = self.hashes.last().copied().unwrap_or_default();
            (base ^ self.id.wrapping_mul(MIX)).rotate_left(17).wrapping_add(u64::from(index) + 1)
                ^ MIX
        })
    }

    /// Whether block `index` carries a hash that the caller gave, which other requests may share.
    pub(super) fn is_shareable(&self, index: u32) -> bool {
        (index as usize) < self.hashes.len()
    }
}

/// Sequences by slot, with a way from id to slot. Slots are reused, and so are block tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Slab {
    slots: Vec<Sequence>,
    unused: Vec<u32>,
    by_id: AHashMap<u64, u32>,
}

impl Slab {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn slot_of(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn insert(&mut self, submit: Submit, arrival: Time) -> u32 {
        let id = submit.id;
        let slot = if let Some(slot) = self.unused.pop() {
            let old = &mut self.slots[slot as usize];
            let table = std::mem::take(&mut old.table);
            *old = Sequence::new(submit, arrival, table);
            slot
        } else {
            self.slots.push(Sequence::new(submit, arrival, Vec::new()));
            self.slots.len() as u32 - 1
        };
        self.by_id.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        let sequence = &mut self.slots[slot as usize];
        sequence.hashes = Arc::default();
        self.by_id.remove(&sequence.id);
        self.unused.push(slot);
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Sequence;

    fn index(&self, slot: u32) -> &Sequence {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    fn index_mut(&mut self, slot: u32) -> &mut Sequence {
        &mut self.slots[slot as usize]
    }
}
