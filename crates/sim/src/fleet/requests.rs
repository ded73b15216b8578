//! The requests that have arrived and not ended, by number of their arrival.

use router::Flight;
use types::Time;

/// Marks an arrival that is not in the table.
const NOWHERE: u32 = u32::MAX;

/// One request, as its caller and the router see it.
#[derive(Debug)]
pub(super) struct Live {
    /// Who has it, or had it last.
    pub(super) member: usize,
    /// Class of its caller.
    pub(super) class: u16,
    /// When the router got it.
    pub(super) arrived: Time,
    /// When its first token was back.
    pub(super) first: Option<Time>,
    /// When its last token so far was back.
    pub(super) last: Time,
    /// Tokens so far.
    pub(super) tokens: u32,
    /// Prompt tokens that were cached; known with the first token.
    pub(super) cached: u32,
    /// Whether the engine has it.
    pub(super) is_there: bool,
    /// Whether its caller has all of it.
    pub(super) is_over: bool,
    /// Gaps between its tokens.
    pub(super) gaps_ms: Vec<f32>,
    /// Slots that could not be reached.
    pub(super) tried: Vec<u32>,
    /// Median TTFT and ITL that were predicted, of one whose prediction is kept.
    pub(super) predicted: Option<(f32, f32)>,
    /// The router's side of it; none with an oracle.
    pub(super) flight: Option<Flight>,
}

impl Live {
    /// One that the router got at `arrived`.
    fn new(class: u16, arrived: Time, mut gaps_ms: Vec<f32>) -> Self {
        gaps_ms.clear();
        Self {
            member: 0,
            class,
            arrived,
            first: None,
            last: arrived,
            tokens: 0,
            cached: 0,
            is_there: false,
            is_over: false,
            gaps_ms,
            tried: Vec::new(),
            predicted: None,
            flight: None,
        }
    }

    /// A token was back at `now`.
    pub(super) fn token(&mut self, now: Time) {
        if self.first.is_none() {
            self.first = Some(now);
        } else {
            self.gaps_ms.push(now.ms_since(self.last));
        }
        self.last = now;
        self.tokens += 1;
    }
}

/// All of them. Places are used again, and so is their memory.
#[derive(Debug)]
pub(super) struct Requests {
    /// Place of each arrival of the trace.
    places: Vec<u32>,
    lives: Vec<Live>,
    unused: Vec<u32>,
}

impl Requests {
    /// None of `arrivals`.
    pub(super) fn new(arrivals: usize) -> Self {
        Self { places: vec![NOWHERE; arrivals], lives: Vec::new(), unused: Vec::new() }
    }

    /// Arrival `index`, of `class`, is at the router.
    pub(super) fn insert(&mut self, index: usize, class: u16, now: Time) {
        let place = if let Some(place) = self.unused.pop() {
            let old = &mut self.lives[place as usize];
            *old = Live::new(class, now, std::mem::take(&mut old.gaps_ms));
            place
        } else {
            self.lives.push(Live::new(class, now, Vec::new()));
            self.lives.len() as u32 - 1
        };
        self.places[index] = place;
    }

    /// Arrival `index`, if it is in the table.
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Live> {
        let place = *self.places.get(index)?;
        self.lives.get_mut(place as usize)
    }

    /// Takes arrival `index` out.
    pub(super) fn remove(&mut self, index: usize) {
        let place = std::mem::replace(&mut self.places[index], NOWHERE);
        if let Some(live) = self.lives.get_mut(place as usize) {
            live.flight = None;
            self.unused.push(place);
        }
    }

    /// The arrivals up to `newest` that `member` is working on, in order.
    pub(super) fn on(&self, member: usize, newest: usize) -> Vec<usize> {
        let is_on = |index: &usize| {
            let live = self.lives.get(self.places[*index] as usize);
            live.is_some_and(|live| live.member == member && live.is_there && !live.is_over)
        };
        (0..newest.min(self.places.len())).filter(is_on).collect()
    }
}
