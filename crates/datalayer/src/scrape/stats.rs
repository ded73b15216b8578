//! Counts of scrapes, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many scrapes there were, over all endpoints.
#[derive(Debug, Default)]
pub struct ScrapeStats {
    ok: AtomicU64,
    failed: AtomicU64,
}

impl ScrapeStats {
    /// Scrapes that brought a page, be it one without data.
    pub fn ok(&self) -> u64 {
        self.ok.load(Ordering::Relaxed)
    }

    /// Scrapes that did not.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, ok: bool) {
        let counter = if ok { &self.ok } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
