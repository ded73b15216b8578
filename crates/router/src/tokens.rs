//! When the tokens of one answer came, and the mean gap between them at some numbers of them.

use types::Time;

/// Gaps at which a mean is first taken; it is taken again at each doubling.
const FIRST_MARK: u32 = 64;
/// A gap so many times as long as the others of its stream is a stall.
const STALL: f32 = 5.0;

/// The tokens of one answer, as far as they have come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    first: Option<Time>,
    last: Time,
    count: u32,
    longest_gap_ms: f32,
    next_mark: u32,
    /// Gaps and their mean at the last mark, until the stream has gone on well past it.
    held: Option<(u32, f32)>,
}

impl Tokens {
    /// Those of an answer that was asked for at `asked`.
    pub(crate) fn new(asked: Time) -> Self {
        Self {
            first: None,
            last: asked,
            count: 0,
            longest_gap_ms: 0.0,
            next_mark: FIRST_MARK,
            held: None,
        }
    }

    /// `count` tokens came at `now`. Gives the mean gap at a mark once the stream is a quarter past it:
    /// so what is known of it at its end is not the same again.
    pub(crate) fn push(&mut self, count: u32, now: Time) -> Option<f32> {
        let Some(first) = self.first else {
            self.first = Some(now);
            self.last = now;
            self.count = count;
            return None;
        };
        self.longest_gap_ms = self.longest_gap_ms.max(now.ms_since(self.last));
        self.last = now;
        self.count = self.count.saturating_add(count);
        let gaps = self.count.saturating_sub(1);
        let due = self.held.take_if(|(at, _)| gaps >= *at + *at / 4);
        if gaps >= self.next_mark {
            self.held = Some((gaps, now.ms_since(first) / gaps as f32));
            while self.next_mark <= gaps {
                self.next_mark = self.next_mark.saturating_mul(2);
            }
        }
        due.map(|(_, mean_ms)| mean_ms)
    }

    /// When the first one came.
    pub(crate) fn first(&self) -> Option<Time> {
        self.first
    }

    /// When the last one came; before the first, when the answer was asked for.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// How many have come.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether one gap was far longer than the others.
    pub(crate) fn stalled(&self) -> bool {
        let gaps = self.count.saturating_sub(1);
        let Some(first) = self.first.filter(|_| gaps > 1) else { return false };
        let others_ms = (self.last.ms_since(first) - self.longest_gap_ms) / (gaps - 1) as f32;
        self.longest_gap_ms > STALL * others_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// The means given of a stream of `tokens` tokens, 10 ms apart until the hundredth and 20 ms after,
    /// with the number of tokens at which each was given.
    fn given(tokens: u64) -> Vec<(u64, f32)> {
        let mut seen = Tokens::new(at(0));
        let when = |i: u64| at(50 + 10 * i + 10 * i.saturating_sub(100));
        (0..tokens).filter_map(|i| Some((i + 1, seen.push(1, when(i))?))).collect()
    }

    #[test]
    fn a_long_stream_tells_its_mean_at_64_gaps_and_at_each_doubling() {
        let given = given(600);
        let at: Vec<_> = given.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [81, 161, 321]);
        let means = [10.0, (1_280.0 + 280.0) / 128.0, (2_560.0 + 1_560.0) / 256.0];
        for ((_, mean), expected) in given.iter().zip(means) {
            assert!((mean - expected).abs() < 0.01, "{mean} {expected}");
        }
    }

    #[test]
    fn a_stream_that_ends_soon_after_a_mark_tells_nothing_early() {
        assert!(given(64).is_empty() && given(80).is_empty());
        assert_eq!(given(160).len(), 1);
    }

    #[test]
    fn tokens_that_come_in_bulk_pass_several_marks_at_once() {
        let mut seen = Tokens::new(at(0));
        assert_eq!(seen.push(1, at(10)), None);
        assert_eq!(seen.push(300, at(3_010)), None);
        assert_eq!(seen.push(80, at(3_810)), Some(10.0));
        assert_eq!(seen.push(10_000, at(200_000)), None);
        assert_eq!(seen.push(u32::MAX, at(300_000)).map(f32::round), Some(19.0));
    }

    #[test]
    fn one_long_gap_among_short_ones_is_a_stall() {
        let stream = |gap: u64| {
            let mut seen = Tokens::new(at(0));
            let mut now = 5;
            for i in 0..20 {
                now += if i == 10 { gap } else { 10 };
                seen.push(1, at(now));
            }
            seen.stalled()
        };
        assert!(!stream(10) && !stream(45) && stream(60));
        assert!(!Tokens::new(at(0)).stalled());
    }
}
