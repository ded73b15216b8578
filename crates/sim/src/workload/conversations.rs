//! Conversations of users who share system prompts, open loop.
//!
//! Requests arrive as the pace says. Each is the next turn of the conversation whose user has waited
//! longest among those who are done with reading and thinking, or else the first turn of a new one. So
//! the rate is exact, and a flash crowd is one of new users.
//!
//! Users of groups of a fixed size all begin anew at time zero, as in a benchmark. Otherwise
//! conversations are under way at time zero, as if they had started before.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
    time::Duration,
};

use super::{
    Arrival, BlockSource, Part,
    arrivals::Pace,
    draw::{Draw, spread},
    generate::Shape,
};

/// Nominal time of an answer, in seconds: to the first token, and per token. It spaces the turns of a
/// conversation, whatever the simulated answer takes.
const NOMINAL: (f64, f64) = (0.5, 0.03);
/// Streams of randomness.
const GAPS: u64 = 0;
const UNDER_WAY: u64 = 1;
const CHANGES: u64 = 2;
const ORDER: u64 = 3;
const GROUP: u64 = 1 << 33;
const CONVERSATION: u64 = 1 << 34;
/// Conversations that are looked at to know how long they are in the mean, numbered downwards.
const LOOKED_AT: u32 = 500;
/// Most conversations that are followed to find those under way at time zero.
const MOST_UNDER_WAY: f64 = 1e6;

/// The arrivals before `horizon`.
pub(super) fn arrivals(shape: &Shape, pace: &Pace, seed: u64, horizon: Duration) -> Vec<Arrival> {
    let times = pace.times(&mut Draw::new(seed, GAPS), horizon);
    let mut crowd = Crowd::new(shape, seed, horizon);
    if shape.users_per_group.is_some() {
        crowd.gather();
    } else {
        crowd.follow(pace.rate);
    }
    times.into_iter().map(|at| crowd.ask(at)).collect()
}

/// One turn: what its prompt is long in all, and what follows.
#[derive(Clone, Copy, Debug)]
struct Turn {
    prompt_tokens: u32,
    output_tokens: u32,
    /// From the arrival of this turn to the earliest of the next, in seconds.
    pause_s: f64,
}

#[derive(Debug)]
struct Conversation {
    session: u32,
    /// How often system prompts had changed when `parts` was made.
    epoch: u32,
    parts: Arc<[Part]>,
    turns: Box<[Turn]>,
    next: usize,
}

/// A place for the conversation of a user.
#[derive(Debug)]
struct User {
    group: u32,
    conversation: Option<Conversation>,
}

#[derive(Debug)]
struct Crowd<'a> {
    shape: &'a Shape,
    seed: u64,
    users: Vec<User>,
    free: Vec<u32>,
    /// Users by the nanosecond from which on they may ask, then in order of entry.
    ready: BinaryHeap<Reverse<(u64, u64, u32)>>,
    entries: u64,
    sessions: u32,
    /// When the system prompts change.
    changes: Vec<Duration>,
    /// Length of the system prompt of each group.
    systems: BTreeMap<u32, u32>,
}

impl<'a> Crowd<'a> {
    fn new(shape: &'a Shape, seed: u64, horizon: Duration) -> Self {
        Self {
            shape,
            seed,
            users: Vec::new(),
            free: Vec::new(),
            ready: BinaryHeap::new(),
            entries: 0,
            sessions: 0,
            changes: changes(shape.change_every_s, seed, horizon),
            systems: BTreeMap::new(),
        }
    }

    /// Seats all users of all groups, in a random order, ready to begin.
    fn gather(&mut self) {
        let groups = self.shape.groups.unwrap_or(1);
        let count = groups * self.shape.users_per_group.unwrap_or_default();
        let mut order = Draw::new(self.seed, ORDER);
        let mut seats: Vec<(u64, u32)> =
            (0..count).map(|user| (order.uniform().to_bits(), user % groups)).collect();
        seats.sort_unstable();
        for (_, group) in seats {
            let user = self.seat(group, None);
            self.enter(user, 0);
        }
    }

    /// Seats the users whose conversations began before time zero and go on after it.
    ///
    /// With `rate` requests per second and conversations of `n` turns in the mean, `rate / n` begin per
    /// second; those of the longest duration before time zero are followed up to there.
    fn follow(&mut self, rate: f64) {
        let looked_at: Vec<Conversation> =
            (0..LOOKED_AT).map(|at| self.begin(u32::MAX - at, 0, 0)).collect();
        let turns: usize = looked_at.iter().map(|c| c.turns.len()).sum();
        let lasts = |c: &Conversation| c.turns.iter().map(|turn| turn.pause_s).sum::<f64>();
        let longest = looked_at.iter().filter(|c| c.turns.len() > 1).map(lasts).fold(0.0, f64::max);
        let begun = rate * f64::from(LOOKED_AT) / turns.max(1) as f64 * longest;
        let mut draw = Draw::new(self.seed, UNDER_WAY);
        for _ in 0..begun.min(MOST_UNDER_WAY) as u32 {
            let mut at = -longest * draw.uniform();
            let (mut conversation, group) = self.newcomer(0);
            while at < 0.0 && conversation.next < conversation.turns.len() {
                at += conversation.turns[conversation.next].pause_s;
                conversation.next += 1;
            }
            if conversation.next < conversation.turns.len() {
                let user = self.seat(group, Some(conversation));
                self.enter(user, nanos(at));
            }
        }
    }

    /// The request that arrives at `at`.
    fn ask(&mut self, at: Duration) -> Arrival {
        let epoch = self.changes.partition_point(|change| *change <= at) as u32;
        let now = at.as_nanos() as u64;
        let waited = match self.ready.peek() {
            Some(Reverse((ready, ..))) if *ready <= now => self.ready.pop(),
            _ => None,
        };
        let user = if let Some(Reverse((_, _, user))) = waited {
            user
        } else {
            let (conversation, group) = self.newcomer(epoch);
            self.seat(group, Some(conversation))
        };
        let seat = &mut self.users[user as usize];
        let (group, conversation) = (seat.group, seat.conversation.take());
        let mut conversation = conversation.unwrap_or_else(|| {
            let session = self.next_session();
            self.begin(session, group, epoch)
        });
        if conversation.epoch != epoch {
            conversation.parts = self.renewed(&conversation.parts, group, epoch);
            conversation.epoch = epoch;
        }
        let turn = conversation.turns[conversation.next];
        let arrival = Arrival {
            at,
            prompt_tokens: turn.prompt_tokens,
            output_tokens: turn.output_tokens,
            blocks: BlockSource::Parts(Arc::clone(&conversation.parts)),
            session: (conversation.turns.len() > 1).then_some(conversation.session),
            class: 0,
        };
        conversation.next += 1;
        let goes_on = conversation.next < conversation.turns.len();
        if goes_on {
            self.users[user as usize].conversation = Some(conversation);
        }
        if goes_on || self.shape.users_per_group.is_some() {
            self.enter(user, now + nanos(turn.pause_s));
        } else {
            self.free.push(user);
        }
        arrival
    }

    fn seat(&mut self, group: u32, conversation: Option<Conversation>) -> u32 {
        let user = User { group, conversation };
        if let Some(free) = self.free.pop() {
            self.users[free as usize] = user;
            return free;
        }
        self.users.push(user);
        self.users.len() as u32 - 1
    }

    fn enter(&mut self, user: u32, ready: u64) {
        self.ready.push(Reverse((ready, self.entries, user)));
        self.entries += 1;
    }

    fn next_session(&mut self) -> u32 {
        self.sessions += 1;
        self.sessions - 1
    }

    /// A conversation of somebody of a random group, and that group.
    fn newcomer(&mut self, epoch: u32) -> (Conversation, u32) {
        let session = self.next_session();
        let spin = spread(self.seed ^ spread(u64::from(session)));
        let groups = u64::from(self.shape.groups.unwrap_or(1));
        let group = ((u128::from(spin) * u128::from(groups)) >> 64) as u32;
        (self.begin(session, group, epoch), group)
    }

    /// Draws a whole conversation; its number alone decides what is drawn.
    fn begin(&mut self, session: u32, group: u32, epoch: u32) -> Conversation {
        let shape = self.shape;
        let mut draw = Draw::new(self.seed, CONVERSATION + u64::from(session));
        let own = u64::from(session) << 16;
        let system = if shape.groups.is_some() {
            self.system_of(group, epoch)
        } else {
            // A conversation has at most 65,535 pieces of its own, and this is the last.
            Part { content: own | 0xffff, tokens: shape.system.draw(&mut draw) }
        };
        let tokens = system.tokens.min(shape.max_context.saturating_sub(2));
        let mut parts = vec![Part { tokens, ..system }];
        let mut turns = Vec::new();
        let (mut context, most) = (tokens, shape.turns.draw(&mut draw).clamp(1, 0xffff));
        for turn in 0..most {
            let (prompt, output) = (shape.prompt.draw(&mut draw), shape.output.draw(&mut draw));
            let think_s = shape.think_s * draw.exponential();
            let (mut prompt, mut output) = (prompt.max(1), output.max(1));
            let left = shape.max_context.saturating_sub(context);
            if prompt.saturating_add(output) > left {
                if turn > 0 {
                    break;
                }
                output = output.min(left.saturating_sub(1)).max(1);
                prompt = prompt.min(left - output).max(1);
            }
            parts.push(Part { content: own | u64::from(turn), tokens: prompt + output });
            let pause_s = NOMINAL.0 + NOMINAL.1 * f64::from(output) + think_s;
            let prompt_tokens = context + prompt;
            turns.push(Turn { prompt_tokens, output_tokens: output, pause_s });
            context = prompt_tokens + output;
        }
        if tokens == 0 {
            parts.remove(0);
        }
        Conversation { session, epoch, parts: parts.into(), turns: turns.into(), next: 0 }
    }

    /// The system prompt of a group, whose length outlives its changes.
    fn system_of(&mut self, group: u32, epoch: u32) -> Part {
        let (shape, seed) = (self.shape, self.seed);
        let tokens = *self
            .systems
            .entry(group)
            .or_insert_with(|| shape.system.draw(&mut Draw::new(seed, GROUP + u64::from(group))));
        Part { content: 1 << 63 | u64::from(epoch) << 32 | u64::from(group), tokens }
    }

    /// The same pieces after another change of the system prompts.
    fn renewed(&mut self, parts: &[Part], group: u32, epoch: u32) -> Arc<[Part]> {
        let mut parts = parts.to_vec();
        if let Some(system) = parts.first_mut().filter(|part| part.content >> 63 == 1) {
            system.content = self.system_of(group, epoch).content;
        }
        parts.into()
    }
}

/// When the system prompts change: gaps between half and one and a half times `every_s`.
fn changes(every_s: f64, seed: u64, horizon: Duration) -> Vec<Duration> {
    let mut draw = Draw::new(seed, CHANGES);
    let mut changes = Vec::new();
    let mut at = 0.0;
    while every_s > 0.0 && changes.len() < 100_000 {
        at += every_s * (0.5 + draw.uniform());
        let change = Duration::from_nanos(nanos(at));
        if change >= horizon {
            break;
        }
        changes.push(change);
    }
    changes
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests;
