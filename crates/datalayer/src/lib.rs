//! How each endpoint is: what its metrics page said last, and what we ourselves have in flight there.
//!
//! Reads scrapes and the fronts' reports; knows nothing of policies. What an engine does not tell is
//! unknown, never zero.

mod budget;
mod demand;
mod inflight;
mod page;
mod pool;
mod scrape;
mod snapshot;

pub use budget::{Bin, Budgets};
pub use demand::Demand;
pub use inflight::{Load, StepSample, Stream};
pub use page::{Engine, MAX_LABEL_BYTES, MAX_PAGE_BYTES, Page, PageError, read_page};
pub use pool::{Changed, EndpointState, Pool};
pub use scrape::{Options, Scheme, ScrapeStats, Scraper};
pub use snapshot::Snapshot;
