//! Samples packed into one value: sled costs per key, and ten times less for thirty samples a key.
//!
//! A chunk is its number of samples (`u32`), then each with its length (`u32`) before it, sealed.

use crate::seal::{SEAL_BYTES, seal, unseal};

/// A chunk is closed before it grows past this.
pub(crate) const CHUNK_BYTES: usize = 7 << 10;
/// Largest sample; one over [`CHUNK_BYTES`] has a chunk for itself.
pub(crate) const MAX_SAMPLE_BYTES: usize = 64 << 10;
const WORD: usize = size_of::<u32>();

/// A chunk that is being filled.
#[derive(Debug)]
pub(crate) struct Chunk {
    count: u32,
    payload: Vec<u8>,
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Self { count: 0, payload: vec![0; WORD] }
    }

    /// Samples in it.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Whether a sample of `bytes` belongs into the next chunk.
    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        self.count > 0 && SEAL_BYTES + self.payload.len() + WORD + bytes > CHUNK_BYTES
    }

    /// Adds `sample`, of at most [`MAX_SAMPLE_BYTES`].
    pub(crate) fn push(&mut self, sample: &[u8]) {
        self.count += 1;
        self.payload.extend((sample.len() as u32).to_be_bytes());
        self.payload.extend(sample);
    }

    /// The value to store.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.payload[..WORD].copy_from_slice(&self.count.to_be_bytes());
        seal(&self.payload)
    }
}

/// Samples in the chunk `value`; one if it is damaged.
pub(crate) fn count(value: &[u8]) -> u64 {
    let count = unseal(value).and_then(word).map_or(1, |(count, _)| count);
    u64::from(count)
}

/// The samples of the chunk `value`; none if it is damaged.
pub(crate) fn unpack(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (count, mut rest) = word(unseal(value)?)?;
    let mut samples = Vec::new();
    for _ in 0..count {
        let (bytes, after) = word(rest)?;
        let (sample, after) = after.split_at_checked(bytes as usize)?;
        samples.push(sample.to_vec());
        rest = after;
    }
    Some(samples)
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<WORD>()?;
    Some((u32::from_be_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_out_as_they_went_in() {
        let samples = vec![b"one".to_vec(), Vec::new(), vec![7; 300]];
        let mut chunk = Chunk::new();
        for sample in &samples {
            chunk.push(sample);
        }
        let value = chunk.finish();
        assert_eq!(count(&value), 3);
        assert_eq!(unpack(&value), Some(samples));
    }

    #[test]
    fn a_damaged_chunk_gives_nothing_and_counts_as_one() {
        let mut chunk = Chunk::new();
        chunk.push(b"sample");
        let mut value = chunk.finish();
        value[10] ^= 1;
        assert_eq!(unpack(&value), None);
        assert_eq!(count(&value), 1);
    }

    #[test]
    fn a_chunk_takes_one_sample_of_any_size() {
        let mut chunk = Chunk::new();
        assert!(!chunk.is_full_for(MAX_SAMPLE_BYTES));
        chunk.push(&[0; CHUNK_BYTES]);
        assert!(chunk.is_full_for(0));
    }
}
