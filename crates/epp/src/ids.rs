//! Identities for requests that come without one.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Gives identities in the form of a version 4 UUID, no two alike.
#[derive(Default)]
pub(crate) struct Ids {
    /// Keyed by the operating system's randomness, so that two processes differ.
    random: RandomState,
    count: AtomicU64,
}

impl Ids {
    /// The next identity.
    pub(crate) fn next(&self) -> Arc<str> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let high = self.random.hash_one((count, false));
        let low = self.random.hash_one((count, true));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff,
        )
        .into()
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_the_form_of_a_uuid_and_differ() {
        let ids = Ids::default();
        let (first, second) = (ids.next(), ids.next());
        assert_ne!(first, second);
        let lengths: Vec<_> = first.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(first.as_bytes()[14], b'4');
    }
}
