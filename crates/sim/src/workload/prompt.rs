//! Makes prompts for a trace that records only which blocks are equal: text, or block hashes alone.
//!
//! Text and hashes agree: two prompts have equal leading hashes exactly where their texts start
//! alike, but the hashes are not those of the text.

use std::sync::Arc;

use super::{Arrival, BlockSource, Part, TRACE_BLOCK_TOKENS};
use crate::profile::BLOCK_TOKENS;

/// Bytes of prompt text per token.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens per block of the router's prefix index.
const ROUTER_BLOCK_TOKENS: u32 = 64;

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
/// Equal block ids or pieces give equal text, different ones different text from their first sixteen
/// tokens on; another `salt` gives another text everywhere.
pub fn prompt_text(arrival: &Arrival, salt: u64) -> String {
    let length = arrival.prompt_tokens as usize * BYTES_PER_TOKEN;
    let mut text = Vec::with_capacity(length + TRACE_BLOCK_TOKENS as usize * BYTES_PER_TOKEN);
    let salt = mix(salt);
    let mut write = |content: u64, tokens: u32| {
        let end = text.len() + tokens as usize * BYTES_PER_TOKEN;
        let mut group = 0;
        while text.len() < end {
            for byte in mix(mix(content ^ salt).wrapping_add(group)).to_le_bytes() {
                text.extend_from_slice(HEADS[usize::from(byte >> 4)]);
                text.extend_from_slice(TAILS[usize::from(byte & 15)]);
                text.push(b' ');
            }
            group += 1;
        }
        text.truncate(end);
    };
    let mut left = arrival.prompt_tokens;
    if let BlockSource::Parts(parts) = &arrival.blocks {
        for part in parts.iter() {
            let tokens = part.tokens.min(left);
            write(mix(part.content), tokens);
            left -= tokens;
        }
    }
    for block in 0..left.div_ceil(TRACE_BLOCK_TOKENS) {
        let tokens = TRACE_BLOCK_TOKENS.min(left - block * TRACE_BLOCK_TOKENS);
        write(content_of(&arrival.blocks, block), tokens);
    }
    String::from_utf8(text).unwrap_or_default()
}

/// One hash per 64 prompt tokens, the last, shorter one too; each also covers all before it.
pub fn router_blocks(arrival: &Arrival) -> Arc<[u64]> {
    chain(arrival, arrival.prompt_tokens, ROUTER_BLOCK_TOKENS)
}

/// One hash per full block of sixteen tokens, as engines cache them; each also covers all before it.
///
/// They are the blocks of the prompt, and of the answer too where [`BlockSource::Parts`] tell its
/// text: a later turn that repeats the answer hits them.
pub fn engine_blocks(arrival: &Arrival) -> Arc<[u64]> {
    let prompt = arrival.prompt_tokens;
    let tokens = match &arrival.blocks {
        BlockSource::Parts(parts) => {
            let told = parts.iter().map(|part| u64::from(part.tokens)).sum::<u64>();
            let whole = u64::from(prompt) + u64::from(arrival.output_tokens);
            told.min(whole).try_into().unwrap_or(u32::MAX).max(prompt)
        }
        BlockSource::Shared(_) | BlockSource::Unique(_) => prompt,
    };
    chain(arrival, tokens - tokens % BLOCK_TOKENS, BLOCK_TOKENS)
}

/// The hashes of the first `tokens` tokens in blocks of `block_tokens`, which divides
/// [`TRACE_BLOCK_TOKENS`].
fn chain(arrival: &Arrival, tokens: u32, block_tokens: u32) -> Arc<[u64]> {
    if let BlockSource::Parts(parts) = &arrival.blocks {
        return chain_of_parts(parts, tokens, block_tokens);
    }
    let mut parent = mix(u64::from(block_tokens));
    (0..tokens.div_ceil(block_tokens))
        .map(|block| {
            let start = block * block_tokens;
            let content = content_of(&arrival.blocks, start / TRACE_BLOCK_TOKENS);
            let within = start % TRACE_BLOCK_TOKENS;
            parent = follow(parent, content, within, block_tokens.min(tokens - start));
            parent
        })
        .collect()
}

/// As [`chain`]. A block that several pieces meet in is hashed piece by piece. Text past the last piece
/// is one more piece, alike in all prompts.
fn chain_of_parts(parts: &[Part], tokens: u32, block_tokens: u32) -> Arc<[u64]> {
    let mut rest = parts.iter();
    let (mut content, mut within, mut end) = (0, 0, 0);
    let mut parent = mix(u64::from(block_tokens));
    (0..tokens.div_ceil(block_tokens))
        .map(|block| {
            let mut left = block_tokens.min(tokens - block * block_tokens);
            while left > 0 {
                while within == end {
                    let part = rest.next();
                    let part =
                        part.map_or((u64::MAX, u32::MAX), |part| (part.content, part.tokens));
                    (content, within, end) = (mix(part.0), 0, part.1);
                }
                let length = left.min(end - within);
                let piece = content.wrapping_add(u64::from(within) << 32 | u64::from(length));
                parent = fold(parent ^ piece);
                within += length;
                left -= length;
            }
            parent
        })
        .collect()
}

/// The hash that covers `parent` and then `length` tokens of `content` from its token `within` on.
fn follow(parent: u64, content: u64, within: u32, length: u32) -> u64 {
    mix(parent ^ mix(content.wrapping_add(u64::from(within) << 32 | u64::from(length))))
}

/// Spreads a word whose parts are spread already: both halves of a wide product, as wyhash folds them.
/// It runs for every block of every prompt, so it is the cheapest that will do.
fn fold(value: u64) -> u64 {
    let wide = u128::from(value) * 0x9e37_79b9_7f4a_7c15;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// A number for the content of one trace block: equal for equal content only.
fn content_of(blocks: &BlockSource, block: u32) -> u64 {
    match blocks {
        BlockSource::Shared(ids) => {
            mix(ids.get(block as usize).map_or(u64::MAX, |id| u64::from(*id)))
        }
        BlockSource::Unique(index) => mix(!mix(!index)).wrapping_add(mix(u64::from(block))),
        // Only text past the last piece is asked for.
        BlockSource::Parts(_) => mix(!u64::from(block)),
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
        let (session, class) = (None, 0);
        Arrival { at: Duration::ZERO, prompt_tokens, output_tokens: 1, blocks, session, class }
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

    fn of_parts(prompt_tokens: u32, output_tokens: u32, parts: &[(u64, u32)]) -> Arrival {
        let parts =
            parts.iter().map(|(content, tokens)| Part { content: *content, tokens: *tokens });
        let blocks = BlockSource::Parts(parts.collect());
        Arrival { output_tokens, blocks, ..shared(prompt_tokens, &[]) }
    }

    #[test]
    fn equal_pieces_give_equal_text_and_hashes_up_to_where_they_part() {
        let a = of_parts(500, 1, &[(1, 200), (2, 300)]);
        let b = of_parts(400, 1, &[(1, 200), (2, 90), (3, 110)]);
        let (text_a, text_b) = (prompt_text(&a, 1), prompt_text(&b, 1));
        assert_eq!((text_a.len(), text_b.len()), (2_000, 1_600));
        let alike = common(text_a.as_bytes(), text_b.as_bytes());
        assert!((1_160..1_160 + 64).contains(&alike), "{alike}");
        assert_eq!(common(&engine_blocks(&a), &engine_blocks(&b)), 290 / 16);
        assert_eq!(common(&router_blocks(&a), &router_blocks(&b)), 290 / 64);
    }

    #[test]
    fn one_text_cut_into_other_pieces_is_another_text() {
        let (a, b) = (of_parts(64, 1, &[(1, 64)]), of_parts(64, 1, &[(1, 32), (1, 32)]));
        assert_eq!(common(&engine_blocks(&a), &engine_blocks(&b)), 2);
        assert_ne!(prompt_text(&a, 0), prompt_text(&b, 0));
    }

    #[test]
    fn engines_cache_the_answer_where_its_text_is_told_and_no_further() {
        let parts = &[(1, 100), (2, 1_000)];
        assert_eq!(engine_blocks(&of_parts(90, 38, parts)).len(), 8);
        assert_eq!(engine_blocks(&of_parts(90, 2_000, parts)).len(), 1_100 / 16);
        assert_eq!(engine_blocks(&of_parts(90, 38, &[(1, 90)])).len(), 5);
        assert_eq!(router_blocks(&of_parts(90, 38, parts)).len(), 2);
        assert_eq!(engine_blocks(&of_parts(90, 38, &[(1, 20)])).len(), 5);
        assert_eq!(prompt_text(&of_parts(90, 38, &[(1, 20)]), 0).len(), 360);
    }

    #[test]
    fn a_million_blocks_of_pieces_are_all_different() {
        let mut seen = HashSet::new();
        for prompt in 0..1_000 {
            let parts =
                &[(1_u64 << 63 | prompt, 37), (prompt << 16, 8_011), (prompt << 16 | 1, 8_000)];
            seen.extend(engine_blocks(&of_parts(16_000, 1, parts)).iter().copied());
        }
        assert_eq!(seen.len(), 1_000_000);
    }
}
