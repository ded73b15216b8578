//! The policy laboratory: one fleet and workload, many policies, rates and seeds.

mod check;
mod fleet;
mod goodput;
mod judge;
mod pool;
mod report;
mod run;
mod spec;
mod what_if;
mod written;
mod wrong;

pub use fleet::Fleet;
pub use pool::Tick;
pub use report::{ClassAbout, ClassRun, FleetTried, Goodput, LabReport, PolicyAbout, Run};
pub use run::{Lab, LabError, Policy, Timed};
pub use spec::{
    ClassSpec, EventSpec, GoodputSpec, Group, Judge, RoleSpec, SlowSpec, Spec, TargetSpec,
    TimingSpec, WhatIfSpec,
};
pub use written::{Named, OracleSpec, PolicySpec, Seeds};
pub use wrong::Wrong;

#[cfg(test)]
mod tests;
