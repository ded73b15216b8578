//! Makes prompts for a trace that records only which blocks are equal: text, or block hashes alone.
//!
//! Text and hashes agree: two prompts have equal leading hashes exactly where their texts start
//! alike, but the hashes are not those of the text.

use std::sync::Arc;

use super::{Arrival, BlockSource, TRACE_BLOCK_TOKENS};
use crate::profile::BLOCK_TOKENS;

/// Bytes of prompt text per token.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens per block of the router's prefix index.
const ROUTER_BLOCK_TOKENS: u32 = 64;
/// Bytes of one word and the space after it.
const WORD_BYTES: usize = 8;

/// First halves of words.
const HEADS: [&[u8; 3]; 16] = [
    b"bar", b"cor", b"del", b"fen", b"gal", b"hum", b"jas", b"kel", b"lin", b"mor", b"nav", b"pol",
    b"rus", b"sal", b"tam", b"ver",
];
/// Second halves of words.
const TAILS: [&[u8; 4]; 16] = [
    b"able", b"ance", b"ders", b"ette", b"ford", b"ging", b"hold", b"ible", b"land", b"ment",
    b"ness", b"oven", b"ring", b"ship", b"tion", b"ward",
];

/// Text of four bytes per prompt token: words and spaces, nothing that JSON escapes.
///
/// Equal block ids give equal text, different ids different text from their first sixteen tokens on;
/// another `salt` gives another text everywhere.
pub fn prompt_text(arrival: &Arrival, salt: u64) -> String {
    let length = arrival.prompt_tokens as usize * BYTES_PER_TOKEN;
    let mut text = Vec::with_capacity(length + TRACE_BLOCK_TOKENS as usize * BYTES_PER_TOKEN);
    let salt = mix(salt);
    for block in 0..arrival.prompt_tokens.div_ceil(TRACE_BLOCK_TOKENS) {
        let content = mix(content_of(&arrival.blocks, block) ^ salt);
        let words = TRACE_BLOCK_TOKENS as usize * BYTES_PER_TOKEN / WORD_BYTES;
        for group in 0..(words / WORD_BYTES) as u64 {
            for byte in mix(content.wrapping_add(group)).to_le_bytes() {
                text.extend_from_slice(HEADS[usize::from(byte >> 4)]);
                text.extend_from_slice(TAILS[usize::from(byte & 15)]);
                text.push(b' ');
            }
        }
    }
    text.truncate(length);
    String::from_utf8(text).unwrap_or_default()
}

/// One hash per 64 prompt tokens, the last, shorter one too; each also covers all before it.
pub fn router_blocks(arrival: &Arrival) -> Arc<[u64]> {
    chain(arrival, ROUTER_BLOCK_TOKENS, true)
}

/// One hash per full block of sixteen prompt tokens, as engines cache them; each also covers all
/// before it.
pub fn engine_blocks(arrival: &Arrival) -> Arc<[u64]> {
    chain(arrival, BLOCK_TOKENS, false)
}

fn chain(arrival: &Arrival, block_tokens: u32, with_last: bool) -> Arc<[u64]> {
    let tokens = arrival.prompt_tokens;
    let count = if with_last { tokens.div_ceil(block_tokens) } else { tokens / block_tokens };
    let mut parent = mix(u64::from(block_tokens));
    (0..count)
        .map(|block| {
            let start = block * block_tokens;
            let length = block_tokens.min(tokens - start);
            let content = content_of(&arrival.blocks, start / TRACE_BLOCK_TOKENS);
            let part = u64::from(start % TRACE_BLOCK_TOKENS) << 32 | u64::from(length);
            parent = mix(parent ^ mix(content.wrapping_add(part)));
            parent
        })
        .collect()
}

/// A number for the content of one trace block: equal for equal content only.
fn content_of(blocks: &BlockSource, block: u32) -> u64 {
    match blocks {
        BlockSource::Shared(ids) => {
            mix(ids.get(block as usize).map_or(u64::MAX, |id| u64::from(*id)))
        }
        BlockSource::Unique(index) => mix(!mix(!index)).wrapping_add(mix(u64::from(block))),
    }
}

/// A bijection that spreads every bit over the word (the finalizer of splitmix64, Steele et al. 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;

    fn shared(prompt_tokens: u32, ids: &[u32]) -> Arrival {
        let blocks = BlockSource::Shared(ids.into());
        Arrival { at: Duration::ZERO, prompt_tokens, output_tokens: 1, blocks }
    }

    fn unique(prompt_tokens: u32, index: u64) -> Arrival {
        Arrival { blocks: BlockSource::Unique(index), ..shared(prompt_tokens, &[]) }
    }

    fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn equal_ids_give_equal_text_and_nothing_more() {
        let (a, b) = (shared(1_200, &[5, 6, 7]), shared(1_100, &[5, 6, 8]));
        let (a, b) = (prompt_text(&a, 1), prompt_text(&b, 1));
        assert_eq!((a.len(), b.len()), (4_800, 4_400));
        let shared_bytes = common(a.as_bytes(), b.as_bytes());
        assert!((4_096..4_096 + 64).contains(&shared_bytes), "{shared_bytes}");
        assert_ne!(prompt_text(&shared(16, &[5]), 1), prompt_text(&shared(16, &[5]), 2));
    }

    #[test]
    fn text_needs_no_escapes() {
        let text = prompt_text(&shared(700, &[0, 9]), 3);
        assert!(text.bytes().all(|b| b == b' ' || b.is_ascii_lowercase()));
    }

    #[test]
    fn prompts_without_identity_share_nothing() {
        let starts: HashSet<String> = (0..2_000).map(|i| prompt_text(&unique(16, i), 0)).collect();
        assert_eq!(starts.len(), 2_000);
        let first: HashSet<u64> = (0..2_000).map(|i| engine_blocks(&unique(16, i))[0]).collect();
        assert_eq!(first.len(), 2_000);
        assert_eq!(router_blocks(&unique(900, 4)), router_blocks(&unique(900, 4)));
    }

    #[test]
    fn hashes_are_equal_where_the_text_is() {
        let (a, b) = (shared(1_200, &[5, 6, 7]), shared(1_100, &[5, 6, 8]));
        assert_eq!(router_blocks(&a).len(), 19);
        assert_eq!(engine_blocks(&a).len(), 75);
        assert_eq!(engine_blocks(&b).len(), 68);
        assert_eq!(common(&router_blocks(&a), &router_blocks(&b)), 16);
        assert_eq!(common(&engine_blocks(&a), &engine_blocks(&b)), 64);
        let every: HashSet<u64> = engine_blocks(&a).iter().copied().collect();
        assert_eq!(every.len(), 75);
    }

    #[test]
    fn a_shorter_prompt_shares_its_full_blocks_only() {
        let (long, short) = (shared(500, &[5]), shared(100, &[5]));
        assert_eq!(router_blocks(&short).len(), 2);
        assert_eq!(common(&router_blocks(&long), &router_blocks(&short)), 1);
        assert_eq!(common(&engine_blocks(&long), &engine_blocks(&short)), 6);
        assert!(prompt_text(&long, 0).starts_with(&prompt_text(&short, 0)));
    }

    #[test]
    fn a_block_depends_on_all_before_it() {
        let (a, b) = (shared(1_024, &[1, 3]), shared(1_024, &[2, 3]));
        assert_eq!(common(&engine_blocks(&a)[32..], &engine_blocks(&b)[32..]), 0);
    }
}
