//! Arrivals to come, what of their prompts is cached where, and which of them start alike.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{Placed, World};
use crate::{profile::BLOCK_TOKENS, workload::engine_blocks};

/// One arrival that is not placed yet.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Its index in the trace.
    pub index: usize,
    blocks: Arc<[u64]>,
    prompt_tokens: u32,
    /// Tokens of its prompt cached on each member, and not only planned to be.
    hits: Vec<u32>,
    /// Earlier arrivals that were to come when it was first seen, and tokens in common; most first.
    kin: Vec<(usize, u32)>,
    /// Members by what it costs there, cheapest first, as of the last time it was tried on all.
    pub order: Vec<usize>,
    /// Where the plan has it.
    pub member: Option<usize>,
}

/// A request that is placed and has no token yet.
#[derive(Debug)]
pub(super) struct Recent {
    /// Where.
    pub member: usize,
    /// Tokens of its prompt that are cached when its turn comes.
    pub hit: u32,
    blocks: Arc<[u64]>,
}

/// What an oracle remembers between decisions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Arrivals within the window, in order.
    pub ahead: VecDeque<Ahead>,
    /// By index of arrival.
    pub recent: BTreeMap<u64, Recent>,
    /// The arrival that was tried last.
    pub cursor: usize,
    /// The first arrival never seen.
    pub unseen: usize,
}

impl Ahead {
    /// Tokens cached on `member` when its turn comes; `is_there` tells whether an earlier arrival to
    /// come is to be on that member.
    pub(super) fn hit(&self, member: usize, is_there: impl Fn(usize) -> bool) -> u32 {
        let cached = self.hits[member];
        let more = self.kin.iter().take_while(|(_, tokens)| *tokens > cached);
        more.copied().find(|(index, _)| is_there(*index)).map_or(cached, |(_, tokens)| tokens)
    }

    /// The member with the most of its prompt in the cache, if any has some.
    pub(super) fn warmest(&self) -> Option<usize> {
        let (tokens, member) =
            self.hits.iter().enumerate().map(|(member, hit)| (*hit, member)).max()?;
        (tokens > 0).then_some(member)
    }

    /// Tokens in common with `blocks`, of which the last of the prompt is always computed.
    fn common(&self, blocks: &[u64]) -> u32 {
        let most = (self.prompt_tokens.saturating_sub(1) / BLOCK_TOKENS) as usize;
        let own = &self.blocks[..self.blocks.len().min(most)];
        common_blocks(own, blocks) * BLOCK_TOKENS
    }

    /// Looks up again what is cached of its prompt.
    pub(super) fn refresh(&mut self, world: &World<'_>, recent: &BTreeMap<u64, Recent>) {
        for (member, hit) in self.hits.iter_mut().enumerate() {
            *hit = if world.alive[member] {
                world.engines[member].cached_tokens(self.prompt_tokens, &self.blocks)
            } else {
                0
            };
        }
        for request in recent.values() {
            let tokens = self.common(&request.blocks);
            let hit = &mut self.hits[request.member];
            *hit = tokens.max(*hit);
        }
    }
}

impl Memory {
    /// Drops requests that have their first token, or never will, and what was decided of the one that
    /// is to be placed now: it may have come back from a member that failed.
    pub(super) fn forget(&mut self, world: &World<'_>) {
        self.recent.retain(|id, request| {
            let is_there =
                |placed: &Placed| placed.first.is_none() && placed.member == request.member;
            *id != world.index as u64 && world.placed.get(id).is_some_and(is_there)
        });
        while self.ahead.front().is_some_and(|ahead| ahead.index < world.index) {
            self.ahead.pop_front();
        }
    }

    /// Takes in arrival `index`, unless it is there.
    pub(super) fn add(&mut self, world: &World<'_>, index: usize) {
        self.unseen = self.unseen.max(index + 1);
        let Err(at) = self.position(index) else { return };
        let Some(arrival) = world.arrivals.get(index) else { return };
        let mut new = Ahead {
            index,
            blocks: engine_blocks(arrival),
            prompt_tokens: arrival.prompt_tokens,
            hits: vec![0; world.engines.len()],
            kin: Vec::new(),
            order: Vec::new(),
            member: None,
        };
        new.refresh(world, &self.recent);
        let earlier = self.ahead.iter().take(at);
        let alike = earlier.map(|other| (other.index, new.common(&other.blocks)));
        new.kin = alike.filter(|(_, tokens)| *tokens > 0).collect();
        new.kin.sort_by_key(|(index, tokens)| (std::cmp::Reverse(*tokens), *index));
        self.ahead.insert(at, new);
    }

    /// Where arrival `index` stands in [`Self::ahead`], or would.
    pub(super) fn position(&self, index: usize) -> Result<usize, usize> {
        self.ahead.binary_search_by_key(&index, |ahead| ahead.index)
    }

    /// Arrival `index` goes to `member`.
    pub(super) fn place(&mut self, index: usize, member: usize) {
        let Ok(at) = self.position(index) else { return };
        let Some(placed) = self.ahead.remove(at) else { return };
        for other in self.ahead.iter_mut().skip(at) {
            if let Some((_, tokens)) = other.kin.iter().find(|(kin, _)| *kin == index) {
                other.hits[member] = other.hits[member].max(*tokens);
            }
        }
        let hit = placed.hit(member, |_| false);
        self.recent.insert(index as u64, Recent { member, hit, blocks: placed.blocks });
    }
}

/// Leading blocks in common. A hash covers all before it, so equal ones stand at the front.
fn common_blocks(one: &[u64], other: &[u64]) -> u32 {
    let (mut equal, mut differ) = (0, one.len().min(other.len()));
    if differ == 0 || one[0] != other[0] {
        return 0;
    }
    while equal < differ {
        let middle = usize::midpoint(equal, differ);
        if one[middle] == other[middle] {
            equal = middle + 1;
        } else {
            differ = middle;
        }
    }
    equal as u32
}
