//! From hashes of content to blocks: open addressing over one word per entry, so that a block that is
//! cached, found or evicted costs one access to memory.

/// A place without an entry.
const EMPTY: u64 = u64::MAX;
/// Odd, and without structure: spreads hashes that were poorly made (64-bit golden ratio).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Places at first; always a power of two.
const LEAST: usize = 16;

/// Blocks by hash. An entry holds half of the spread hash and the block; the caller compares whole hashes.
#[derive(Clone, Debug)]
pub(super) struct Table {
    places: Vec<u64>,
    entries: usize,
}

fn entry(hash: u64, id: u32) -> u64 {
    (hash.wrapping_mul(SPREAD) & !u64::from(u32::MAX)) | u64::from(id)
}

fn id_of(entry: u64) -> u32 {
    entry as u32
}

impl Table {
    pub(super) fn new() -> Self {
        Self { places: vec![EMPTY; LEAST], entries: 0 }
    }

    /// Where `entry` should be.
    fn home(&self, entry: u64) -> usize {
        (entry >> 32) as usize & (self.places.len() - 1)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// The block of `hash`; `has` says whether a block has that hash.
    pub(super) fn get(&self, hash: u64, has: impl Fn(u32) -> bool) -> Option<u32> {
        let wanted = entry(hash, 0);
        let mut place = self.home(wanted);
        loop {
            let found = self.places[place];
            if found == EMPTY {
                return None;
            }
            if found >> 32 == wanted >> 32 && has(id_of(found)) {
                return Some(id_of(found));
            }
            place = self.after(place);
        }
    }

    /// Reads where the entries of `hashes` should be, all at once, so that what follows does not wait for
    /// memory one by one.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let place = |hash| self.places[self.home(entry(hash, 0))];
        std::hint::black_box(hashes.map(place).fold(0, |sum, found| sum ^ found));
    }

    /// Adds block `id` under `hash`, which no block has.
    pub(super) fn insert(&mut self, hash: u64, id: u32) {
        if (self.entries + 1) * 2 > self.places.len() {
            self.grow();
        }
        self.entries += 1;
        self.put(entry(hash, id));
    }

    fn put(&mut self, entry: u64) {
        let mut place = self.home(entry);
        while self.places[place] != EMPTY {
            place = self.after(place);
        }
        self.places[place] = entry;
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.places.len() * 2];
        for entry in std::mem::replace(&mut self.places, larger) {
            if entry != EMPTY {
                self.put(entry);
            }
        }
    }

    /// Takes out block `id`, which is there under `hash`.
    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        let wanted = entry(hash, id);
        let mut hole = self.home(wanted);
        while self.places[hole] != wanted {
            if self.places[hole] == EMPTY {
                debug_assert!(false, "a block is taken out that is not there");
                return;
            }
            hole = self.after(hole);
        }
        self.entries -= 1;
        // Those behind it move up, as far as none moves before its home.
        let mut place = hole;
        loop {
            place = self.after(place);
            let entry = self.places[place];
            if entry == EMPTY {
                break;
            }
            let mask = self.places.len() - 1;
            let from_home = place.wrapping_sub(self.home(entry)) & mask;
            if from_home >= (place.wrapping_sub(hole) & mask) {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_map(
            calls in proptest::collection::vec((any::<bool>(), 0_u64..60), 0..400),
            spread in prop_oneof![Just(1_u64), Just(1 << 40), Just(SPREAD)],
        ) {
            let mut table = Table::new();
            let mut plain = HashMap::<u64, u32>::new();
            for (id, (insert, hash)) in (0..).zip(calls) {
                let hash = hash.wrapping_mul(spread);
                match (insert, plain.get(&hash).copied()) {
                    (true, None) => {
                        table.insert(hash, id);
                        plain.insert(hash, id);
                    }
                    (false, Some(old)) => {
                        table.remove(hash, old);
                        plain.remove(&hash);
                    }
                    _ => {}
                }
                for number in 0..60_u64 {
                    let hash = number.wrapping_mul(spread);
                    let wanted = plain.get(&hash).copied();
                    prop_assert_eq!(table.get(hash, |id| Some(id) == wanted), wanted);
                }
            }
        }
    }
}
