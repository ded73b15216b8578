//! Which prompt prefix is warm where: an approximate index fed by our own decisions.
//!
//! A prompt becomes a chain of hashes, one per block of [`BLOCK_BYTES`] bytes, each over its block and
//! everything before it. The index remembers, per endpoint, the blocks it was sent last; a hit is the
//! number of leading blocks that an endpoint holds without a gap.

mod chain;
mod index;

pub use chain::{BLOCK_BYTES, BYTES_PER_TOKEN, Chain};
pub use index::{Hit, Index};
