//! Runs every policy at every rate with every seed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use types::Clock;

use super::{
    fleet::Fleet,
    judge::{Setting, judge},
    pool::{self, Tick},
    report::{ClassAbout, LabReport, PolicyAbout, Run},
    spec::{EventSpec, Spec},
    wrong::{Wrong, seconds},
};
use crate::{
    fleet::{Change, Chooser, FleetError, Scenario, Timing, simulate},
    workload::{Make, Trace, TraceError},
};

/// Version of the report's shape.
const VERSION: u32 = 1;

/// A policy of a scenario, ready to run.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name in reports.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Who decides.
    pub chooser: Chooser,
}

/// A scenario that was read and checked, with all it takes to run it.
#[derive(Clone, Debug)]
pub struct Lab {
    /// What its file says.
    pub spec: Spec,
    /// The folder from which relative paths in it count.
    pub folder: PathBuf,
    /// The fleet to run it on.
    pub fleet: Fleet,
    /// Policies to compare.
    pub policies: Vec<Policy>,
    /// At most so many requests of each trace; `None` takes all within the horizon.
    pub requests: Option<usize>,
    /// Simulations at one time.
    pub jobs: usize,
    /// Where real time is read to measure decisions; `None` measures none.
    pub clock: Option<Arc<dyn Clock>>,
}

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Its workload cannot be made.
    #[error("the workload cannot be made")]
    Trace(#[from] TraceError),
    /// A policy cannot be run on its fleet.
    #[error("policy `{policy}` cannot be simulated")]
    Fleet {
        /// Name of the policy.
        policy: String,
        /// Why.
        source: FleetError,
    },
    /// A value of it cannot be used.
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

/// What decisions of one policy took in real time, over all runs; no part of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// Its name.
    pub policy: String,
    /// How many there were.
    pub decisions: u64,
    /// What they took together.
    pub time: Duration,
}

impl Lab {
    /// Every policy at every rate with every seed, and what their decisions took if there is a clock.
    /// Equal scenarios give equal reports, whatever the number of jobs.
    pub fn run(&self, tick: Tick<'_>) -> Result<(LabReport, Vec<Timed>), LabError> {
        let (loads, seeds) = (&self.spec.loads, &self.spec.seeds.0);
        let each = loads.len() * seeds.len();
        let runs = pool::map(self.jobs, self.policies.len() * each, tick, |at| {
            let (load, seed) = (loads[at % each / seeds.len()], seeds[at % seeds.len()]);
            self.play(&self.fleet, &self.policies[at / each], load, seed)
        })?;
        let mut timed = Vec::new();
        if self.clock.is_some() {
            for (policy, runs) in self.policies.iter().zip(runs.chunks(each)) {
                let mut of = Timed { policy: policy.name.clone(), ..Timed::default() };
                for (_, decisions, time) in runs {
                    of.decisions += decisions;
                    of.time += *time;
                }
                timed.push(of);
            }
        }
        let runs = runs.into_iter().map(|(run, ..)| run).collect();
        Ok((LabReport { runs, ..self.about() }, timed))
    }

    /// A report that tells of the scenario and of nothing that came of it.
    pub fn about(&self) -> LabReport {
        let spec = &self.spec;
        let classes = spec.classes().into_iter().map(|class| ClassAbout {
            name: class.name.to_string(),
            ttft_ms: class.slo.ttft.map(types::Millis::get),
            itl_ms: class.slo.itl.map(types::Millis::get),
            weight: class.weight,
        });
        let policies = self.policies.iter().map(|policy| PolicyAbout {
            name: policy.name.clone(),
            about: policy.about.clone(),
            oracle: matches!(policy.chooser, Chooser::Oracle(_)),
        });
        LabReport {
            version: VERSION,
            scenario: spec.name.clone(),
            about: spec.about.clone(),
            fleet: self.fleet.words(),
            workload: spec.workload.about(),
            classes: classes.collect(),
            target: spec.goodput.target,
            caveats: self.caveats(),
            policies: policies.collect(),
            ..LabReport::default()
        }
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats =
            vec!["mixture-of-experts models and speculative decoding are not modelled".to_owned()];
        caveats.extend(self.fleet.caveats());
        if let Some(requests) = self.requests {
            caveats.push(format!("each run was cut to its first {requests} requests"));
        }
        if self.spec.warm_up_s > 0.0 {
            let warm_up_s = self.spec.warm_up_s;
            let cut = if self.requests.is_some() { " (less where a run was cut)" } else { "" };
            caveats
                .push(format!("requests of the first {warm_up_s} s{cut} are served, not judged"));
        }
        if self.spec.classes.is_empty() {
            caveats.push("nothing is promised to callers, so every answer counts".to_owned());
        }
        caveats
    }

    /// One run of `policy` on `fleet` at `load` times the rate: what came of it, decisions, and their time.
    pub(super) fn play(
        &self,
        fleet: &Fleet,
        policy: &Policy,
        load: f64,
        seed: u64,
    ) -> Result<(Run, u64, Duration), LabError> {
        let trace = self.trace(load, seed)?;
        let spec = &self.spec;
        let chooser = match &policy.chooser {
            Chooser::Router(options) => {
                Chooser::Router(router::Options { seed, ..options.clone() })
            }
            Chooser::Oracle(options) => Chooser::Oracle(*options),
        };
        let warm_up = self.warm_up(&trace);
        let scenario = Scenario {
            timing: timing(spec),
            events: spec.events.iter().filter_map(|event| change(event, fleet)).collect(),
            warm_up,
            clock: self.clock.clone(),
            ..Scenario::new(chooser, spec.classes(), &spec.model)
        };
        let simulated = simulate(&policy.name, &fleet.members(seed), &trace, &scenario)
            .map_err(|source| LabError::Fleet { policy: policy.name.clone(), source })?;
        let (decisions, time) = (simulated.decisions, simulated.decision_time.unwrap_or_default());
        let setting = Setting { policy: &policy.name, seed, fleet, warm_up };
        Ok((judge(&setting, simulated), decisions, time))
    }

    /// The warm-up of a run; where the trace was cut short it is too, in proportion.
    fn warm_up(&self, trace: &Trace) -> Duration {
        let whole = seconds(self.spec.warm_up_s);
        if self.requests.is_none_or(|requests| trace.arrivals.len() < requests) {
            return whole;
        }
        whole.min(trace.span().mul_f64(self.spec.warm_up_s / self.spec.horizon_s))
    }

    /// The requests of a run.
    pub fn trace(&self, load: f64, seed: u64) -> Result<Trace, TraceError> {
        let shares = self.spec.shares();
        let trace = self.spec.workload.trace(&Make {
            speed: load,
            seed,
            horizon: seconds(self.spec.horizon_s),
            shares: &shares,
            folder: &self.folder,
        })?;
        Ok(match self.requests {
            Some(requests) => trace.take(requests),
            None => trace,
        })
    }

    /// Requests per second that the workload offers at load 1.
    pub fn nominal_rate(&self) -> Result<f64, TraceError> {
        self.spec.workload.nominal_rate(&self.folder)
    }
}

fn timing(spec: &Spec) -> Timing {
    let ms = |value: f64| seconds(value / 1e3);
    Timing {
        scrape_every: ms(spec.timing.scrape_interval_ms),
        scrape_delay: ms(spec.timing.scrape_delay_ms),
        network: ms(spec.timing.network_ms),
        label_delay: ms(spec.timing.label_delay_ms),
    }
}

/// The change that `event` is, if its endpoint is one of `fleet`.
fn change(event: &EventSpec, fleet: &Fleet) -> Option<(Duration, Change)> {
    let member = |name: &str| fleet.names().position(|known| known == name);
    let change = if let Some(slow) = &event.slow {
        let member = match &slow.endpoint {
            Some(name) => Some(member(name)?),
            None => None,
        };
        Change::Slowdown { member, factor: slow.factor }
    } else if let Some(target) = &event.fail {
        Change::Fail { member: member(&target.endpoint)? }
    } else {
        Change::Recover { member: member(&event.recover.as_ref()?.endpoint)? }
    };
    Some((seconds(event.at_s), change))
}
