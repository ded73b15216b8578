//! Engines, workloads and virtual time around the same router.

mod engine;
mod fleet;
mod http;
mod load;
mod profile;
mod report;
mod workload;

pub use engine::{Counts, Engine, Event, EventKind, Gauges, Options, Rejected, Submit};
pub use fleet::{Change, FleetError, Member, Scenario, Simulated, simulate};
pub use http::{ServerOptions, serve};
pub use load::{LoadError, LoadOptions, LoadReport, Progress, Recent, run_load};
pub use profile::{BLOCK_TOKENS, Batch, Costs, Profile, ProfileError};
pub use report::{Collector, Failure, Latencies, PolicyReport, Quantiles, Report, RequestResult};
pub use workload::{
    Arrival, BlockSource, Bundled, TRACE_BLOCK_TOKENS, Trace, TraceError, TraceOptions,
    engine_blocks, prompt_text, router_blocks,
};
