//! What the samples of a page come to.

use super::{
    Engine, Page,
    sample::{Label, Sample},
    series::Series,
};
use crate::Snapshot;

/// Data-parallel ranks that are told apart on one page.
const RANKS: usize = 128;

/// The samples so far.
#[derive(Default)]
pub(super) struct Tally {
    running: Sum,
    waiting: Sum,
    waiting_for_blocks: Sum,
    waiting_for_kv: Sum,
    kv: Utilization,
    kv_before: Utilization,
    kv_used_blocks: Sum,
    block_tokens: Agreed,
    blocks: Sum,
    preemptions: Sum,
    awake: u32,
    asleep: u32,
}

impl Tally {
    /// Counts `sample` of `series`.
    pub(super) fn add(&mut self, series: Series, sample: &Sample<'_>) {
        match series {
            Series::Running => self.running.add(sample),
            Series::Waiting => self.waiting.add(sample),
            Series::WaitingForBlocks => self.waiting_for_blocks.add(sample),
            Series::WaitingForKv => self.waiting_for_kv.add(sample),
            Series::KvUtilization => self.kv.add(sample.value),
            Series::KvUtilizationBefore => self.kv_before.add(sample.value),
            Series::BlockTokens => self.block_tokens.add(Some(sample.value)),
            Series::Blocks => self.blocks.add(sample),
            Series::Preemptions => self.preemptions.add(sample),
            Series::CacheInfo => self.add_cache_info(sample),
            Series::Sleep => self.add_sleep(sample),
            Series::TritonRequests => match sample.label(Label::RequestType) {
                Some(b"scheduled") => self.running.add(sample),
                Some(b"waiting") => self.waiting.add(sample),
                _ => {}
            },
            Series::TritonBlocks => match sample.label(Label::BlockType) {
                Some(b"fraction") => self.kv.add(sample.value),
                Some(b"used") => self.kv_used_blocks.add(sample),
                Some(b"max") => self.blocks.add(sample),
                Some(b"tokens_per") => self.block_tokens.add(Some(sample.value)),
                _ => {}
            },
        }
    }

    /// vLLM and SGLang put block size and count in labels. vLLM's `block_size` is not the one in use
    /// on hybrid models; where the newer label stands, even as `None`, it alone counts.
    fn add_cache_info(&mut self, sample: &Sample<'_>) {
        let tokens = [Label::BlockSizeInUse, Label::BlockSize, Label::PageSize];
        let label = tokens.into_iter().find(|label| sample.label(*label).is_some());
        self.block_tokens.add(label.and_then(|label| sample.number(label)));
        let blocks = sample.number(Label::GpuBlocks).or_else(|| sample.number(Label::Pages));
        self.blocks.add_value(sample, blocks.unwrap_or(f64::NAN));
    }

    fn add_sleep(&mut self, sample: &Sample<'_>) {
        if sample.label(Label::SleepState) == Some(b"awake") {
            let count = if sample.value == 0.0 { &mut self.asleep } else { &mut self.awake };
            *count += 1;
        }
    }

    /// The sum of it all.
    pub(super) fn page(&self, engine: Engine) -> Page {
        let asleep = self.asleep > 0 && self.awake == 0;
        let kv = if self.kv.present { &self.kv } else { &self.kv_before };
        let snapshot = Snapshot {
            scraped_at: None,
            running: self.running.count(),
            waiting: self.waiting(),
            kv_utilization: kv.get().or_else(|| self.kv_of_blocks().filter(|_| !kv.present)),
            kv_block_tokens: self.block_tokens.count(),
            // Blocks of an engine that sleeps are not there to be used.
            kv_blocks: self.blocks.count().filter(|_| self.asleep == 0),
            preemptions: self.preemptions.count(),
        };
        let snapshot = if asleep { Snapshot::default() } else { snapshot };
        Page { engine, snapshot, kv_suspect: kv.suspect, asleep }
    }

    fn waiting(&self) -> Option<u32> {
        let more = [&self.waiting_for_blocks, &self.waiting_for_kv].map(Sum::count);
        Some(self.waiting.count()?.saturating_add(more.into_iter().flatten().sum()))
    }

    /// Used over all blocks: what Triton told before it told the fraction.
    fn kv_of_blocks(&self) -> Option<f32> {
        let (used, all) = (self.kv_used_blocks.count()?, self.blocks.count()?);
        (all > 0 && used <= all).then(|| used as f32 / all as f32)
    }
}

/// A count over the series of a page.
///
/// SGLang's `tp_rank` series are copies, and a series with a priority is part of the one without:
/// with either label, each `dp_rank` counts once. All other series add up.
struct Sum {
    plain: f64,
    ranks: [f32; RANKS],
    ranks_used: usize,
    seen: bool,
    broken: bool,
}

impl Default for Sum {
    fn default() -> Self {
        let (ranks_used, seen, broken) = (0, false, false);
        Self { plain: 0.0, ranks: [0.0; RANKS], ranks_used, seen, broken }
    }
}

impl Sum {
    fn add(&mut self, sample: &Sample<'_>) {
        self.add_value(sample, sample.value);
    }

    /// Counts `value` under the labels of `sample`; one that is no count leaves the sum unknown.
    fn add_value(&mut self, sample: &Sample<'_>, value: f64) {
        if sample.label(Label::Priority).is_some_and(|priority| !priority.is_empty()) {
            return;
        }
        if !(value.is_finite() && value >= 0.0) {
            self.broken = true;
            return;
        }
        self.seen = true;
        if sample.label(Label::TpRank).is_none() {
            self.plain += value;
            return;
        }
        let rank = sample.number(Label::DpRank).unwrap_or(0.0) as usize;
        match self.ranks.get_mut(rank) {
            Some(largest) => {
                *largest = largest.max(value as f32);
                self.ranks_used = self.ranks_used.max(rank + 1);
            }
            None => self.broken = true,
        }
    }

    fn count(&self) -> Option<u32> {
        let ranks = self.ranks[..self.ranks_used].iter().copied().map(f64::from);
        let total = (self.plain + ranks.sum::<f64>()).round();
        let told = self.seen && !self.broken && total <= f64::from(u32::MAX);
        told.then_some(total as u32)
    }
}

/// The largest share in use on a page.
#[derive(Default)]
struct Utilization {
    present: bool,
    suspect: bool,
    largest: Option<f32>,
}

impl Utilization {
    fn add(&mut self, value: f64) {
        self.present = true;
        let value = value as f32;
        if value > 1.0 {
            self.suspect = true;
        } else if value >= 0.0 {
            self.largest = Some(self.largest.map_or(value, |largest| largest.max(value)));
        }
    }

    fn get(&self) -> Option<f32> {
        self.largest.filter(|_| !self.suspect)
    }
}

/// A number on which all engines of a page must agree.
#[derive(Default)]
struct Agreed {
    value: Option<u32>,
    differs: bool,
}

impl Agreed {
    /// Takes one engine's `value`; unknown counts as unlike any other.
    fn add(&mut self, value: Option<f64>) {
        let value = value.filter(|value| (1.0..=1e9).contains(value)).map(|value| value as u32);
        self.differs |= value.is_none() || self.value.is_some_and(|known| Some(known) != value);
        self.value = value;
    }

    fn count(&self) -> Option<u32> {
        self.value.filter(|_| !self.differs)
    }
}
