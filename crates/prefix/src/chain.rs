//! Rolls the bytes of a prompt into a chain of block hashes while they pass.

use std::sync::Arc;

use twox_hash::XxHash3_64;

/// Bytes of prompt text per block: 64 tokens of [`BYTES_PER_TOKEN`] bytes.
pub const BLOCK_BYTES: usize = 256;

/// Bytes of text that stand for a token where nothing better is known; a token id counts as one
/// token of four bytes.
pub const BYTES_PER_TOKEN: u32 = 4;

/// A rolling hash chain: `h_i = xxh3(block_i, seed = h_{i-1})`, with `h_{-1} = 0`. The last, shorter
/// block counts too, so that equal short prompts match.
///
/// What stands before the whole prompt may be known only after it was rolled, so it is mixed into
/// every block at the end: [`Chain::before`] puts one chain before another, [`Chain::finish_for`]
/// adds the model and the salt.
#[derive(Debug)]
pub struct Chain {
    parent: u64,
    pending: Vec<u8>,
    blocks: Vec<u64>,
    bytes: u64,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// An empty chain.
    pub fn new() -> Self {
        let pending = Vec::with_capacity(BLOCK_BYTES);
        Self { parent: 0, pending, blocks: Vec::new(), bytes: 0 }
    }

    /// Appends prompt bytes. How they are cut into calls makes no difference.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if !self.pending.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.pending.len()));
            self.pending.extend_from_slice(head);
            bytes = rest;
            if self.pending.len() < BLOCK_BYTES {
                return;
            }
            self.parent = XxHash3_64::oneshot_with_seed(self.parent, &self.pending);
            self.blocks.push(self.parent);
            self.pending.clear();
        }
        let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
        for block in blocks.by_ref() {
            self.parent = XxHash3_64::oneshot_with_seed(self.parent, block);
            self.blocks.push(self.parent);
        }
        self.pending.extend_from_slice(blocks.remainder());
    }

    /// Appends `bytes` bytes that stand for `content`, of which only a digest is kept: for what is not
    /// text and whose length says nothing about its tokens. Equal contents append equal bytes.
    pub fn push_digest(&mut self, content: &[u8], bytes: usize) {
        let digest = XxHash3_64::oneshot(content).to_le_bytes();
        for start in (0..bytes).step_by(digest.len()) {
            self.push(&digest[..digest.len().min(bytes - start)]);
        }
    }

    /// This chain with `next` behind it: the blocks of both, those of `next` made to depend on all of
    /// this chain. An empty chain before another changes nothing.
    #[must_use]
    pub fn before(mut self, mut next: Self) -> Self {
        self.close();
        next.close();
        if self.blocks.is_empty() {
            return next;
        }
        let seed = self.parent;
        self.blocks.extend(next.blocks.iter().map(|block| mix(*block, seed)));
        self.parent = mix(next.parent, seed);
        self.bytes += next.bytes;
        self
    }

    /// The hashes of all blocks and the number of bytes they cover, for a prompt to `model`; `salt`
    /// separates callers that must not share a cache.
    pub fn finish_for(mut self, model: &str, salt: &str) -> (Arc<[u64]>, u64) {
        self.close();
        let seed = XxHash3_64::oneshot(salt.as_bytes());
        let seed = XxHash3_64::oneshot_with_seed(seed, model.as_bytes());
        (self.blocks.iter().map(|block| mix(*block, seed)).collect(), self.bytes)
    }

    /// Ends the last block.
    fn close(&mut self) {
        if !self.pending.is_empty() {
            self.parent = XxHash3_64::oneshot_with_seed(self.parent, &self.pending);
            self.blocks.push(self.parent);
            self.pending.clear();
        }
    }
}

/// `block` as it is after what `seed` stands for.
fn mix(block: u64, seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, &block.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(pieces: &[&[u8]]) -> Chain {
        let mut chain = Chain::new();
        for piece in pieces {
            chain.push(piece);
        }
        chain
    }

    fn chain(pieces: &[&[u8]]) -> (Arc<[u64]>, u64) {
        roll(pieces).finish_for("m", "")
    }

    #[test]
    fn cuts_make_no_difference() {
        let text: Vec<u8> = (0..1_000_u32).map(|i| (i % 251) as u8).collect();
        let whole = chain(&[&text]);
        for cut in [1, 255, 256, 257, 999] {
            assert_eq!(chain(&[&text[..cut], &text[cut..]]), whole);
        }
        assert_eq!(whole.0.len(), 4);
        assert_eq!(whole.1, 1_000);
    }

    #[test]
    fn a_change_in_one_block_changes_it_and_all_after_it() {
        let mut text = vec![b'a'; 1_024];
        let before = chain(&[&text]).0;
        text[300] = b'b';
        let after = chain(&[&text]).0;
        assert_eq!(before[0], after[0]);
        assert!(before[1..].iter().zip(&after[1..]).all(|(a, b)| a != b));
    }

    #[test]
    fn models_and_salts_do_not_share_blocks() {
        let of = |model, salt| roll(&[b"hello"]).finish_for(model, salt).0;
        assert_eq!(of("a", "s"), of("a", "s"));
        assert_ne!(of("a", ""), of("b", ""));
        assert_ne!(of("a", ""), of("a", "s"));
        assert_ne!(of("a", "b"), of("b", "a"));
    }

    #[test]
    fn blocks_behind_another_chain_depend_on_all_of_it() {
        let joined = |head: &[u8]| roll(&[head]).before(roll(&[&[b'x'; 600]])).finish_for("m", "");
        let (blocks, bytes) = joined(&[b'a'; 300]);
        assert_eq!((blocks.len(), bytes), (2 + 3, 900));
        let mut other = [b'a'; 300];
        other[299] = b'b';
        let (changed, _) = joined(&other);
        assert_eq!(blocks[0], changed[0]);
        assert!(blocks[1..].iter().zip(&changed[1..]).all(|(a, b)| a != b));
        assert_eq!(joined(b""), chain(&[&[b'x'; 600]]));
    }

    #[test]
    fn a_digest_covers_the_bytes_it_is_given() {
        let of = |content: &[u8], bytes| {
            let mut chain = Chain::new();
            chain.push_digest(content, bytes);
            chain.finish_for("m", "")
        };
        assert_eq!(of(b"image", 1_001).1, 1_001);
        assert_eq!(of(b"image", 1_001), of(b"image", 1_001));
        assert_ne!(of(b"image", 1_001).0, of(b"other", 1_001).0);
    }
}
