//! Engines, workloads and virtual time around the same router.

mod class;
mod engine;
mod fleet;
mod http;
mod lab;
mod load;
mod oracle;
mod profile;
mod report;
mod validate;
mod workload;

pub use class::Class;
pub use engine::{Counts, Engine, Event, EventKind, Gauges, Options, Rejected, Submit};
pub use fleet::{
    Change, Chooser, ClassDetail, Detail, FleetError, Member, MemberDetail, Predicted, Scenario,
    Simulated, Timing, simulate,
};
pub use http::{ServerOptions, serve};
pub use lab::{
    ClassAbout, ClassRun, ClassSpec, EventSpec, Fleet, FleetTried, Goodput, GoodputSpec, Group,
    Judge, Lab, LabError, LabReport, Named, OracleSpec, Policy, PolicyAbout, PolicySpec, RoleSpec,
    Run, Seeds, SlowSpec, Spec, TargetSpec, Tick, Timed, TimingSpec, WhatIfSpec, Wrong,
};
pub use load::{LoadError, LoadOptions, LoadReport, Progress, Recent, run_load};
pub use oracle::OracleOptions;
pub use profile::{BLOCK_TOKENS, Batch, Costs, Profile, ProfileError};
pub use report::{Collector, Failure, Latencies, PolicyReport, Quantiles, Report, RequestResult};
pub use validate::{
    FidelityErrors, FidelityGroup, FidelityPoint, Sample, SkippedRows, ValidateError, Validation,
    validate,
};
pub use workload::{
    Arrival, Arrivals, BlockSource, Bundled, Generate, Law, Length, Like, Make, Part, Replay,
    Servegen, TRACE_BLOCK_TOKENS, Trace, TraceError, TraceOptions, Workload, engine_blocks,
    prompt_text, router_blocks,
};
