//! Logs of simulations, replayed and held against simulations of the target.

use std::{fs, sync::Arc};

use parking_lot::Mutex;
use router::{Recorded, Recorder};
use schedule::{Options, Policy};
use sim::{Bundled, Class, Member, Profile, Scenario, Trace, TraceOptions, simulate};

use super::*;
use crate::rows::Sessions;

const MODEL: &str = "llama-3.1-8b";
/// How many times as slow requests arrive as in the trace: a decision changes little for later ones.
const QUIET: u32 = 15;

/// Keeps rows with their candidates as lines.
#[derive(Debug, Default)]
struct Kept(Mutex<(Vec<u8>, Sessions)>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        let (lines, sessions) = &mut *self.0.lock();
        rows::write_whole(lines, row, 0.0, sessions).unwrap();
    }

    fn wants_candidates(&self) -> bool {
        true
    }
}

fn options(policy: Policy) -> Options {
    Options { policy, ..Options::default() }
}

/// What `policy` attains on two fast and two slow engines under light load, and its log.
fn simulated(policy: Policy, requests: usize) -> (f64, Log) {
    let gpus = ["H100-SXM", "H100-SXM", "L40S", "L40S"];
    let fleet = gpus.iter().zip(0..).map(|(gpu, at): (_, u64)| {
        let profile = Profile::named(gpu, MODEL).unwrap();
        let options = sim::Options { seed: at, ..sim::Options::new(&profile) };
        Member::new(format!("e{at}"), profile, options)
    });
    let mut trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    trace.arrivals.truncate(requests);
    for arrival in &mut trace.arrivals {
        arrival.at *= QUIET;
    }
    let slo = Slo { ttft: Millis::new(400.0), itl: Millis::new(22.0) };
    let router = router::Options { schedule: options(policy), ..router::Options::default() };
    let kept = Arc::new(Kept::default());
    let scenario = Scenario {
        recorder: Some(Arc::clone(&kept) as Arc<dyn Recorder>),
        ..Scenario::new(Chooser::Router(router), vec![Class::only(slo)], MODEL)
    };
    let simulated = simulate("test", &fleet.collect::<Vec<_>>(), &trace, &scenario).unwrap().report;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    fs::write(&file, &kept.0.lock().0).unwrap();
    let rows = read_logged(&file).unwrap();
    (simulated.attainment, Log { source: "test".to_owned(), rows, slo: Slo::default() })
}

fn targets(policies: &[Policy]) -> Vec<(String, Options)> {
    policies.iter().map(|policy| (format!("{policy:?}"), options(*policy))).collect()
}

#[test]
fn a_random_log_tells_what_other_policies_attain() {
    let (attained, log) = simulated(Policy::Random, 1_500);
    let policies = [Policy::LeastRequests, Policy::Learned, Policy::Random];
    let report = replay(&log, targets(&policies), 1).unwrap();
    assert!((report.logged.value - attained).abs() < 0.01, "{attained}: {report:?}");
    assert!((report.model_of_logged.value - attained).abs() < 0.03, "{attained}: {report:?}");
    for (policy, found) in policies.into_iter().zip(&report.policies) {
        let (truth, _) = simulated(policy, 1_500);
        let Estimates { direct, inverse_propensity, doubly_robust, .. } = &found.estimates;
        for estimate in [direct, &inverse_propensity.unwrap(), &doubly_robust.unwrap()] {
            assert!((estimate.value - truth).abs() < 0.06, "{policy:?} {truth}: {found:?}");
        }
        assert!(doubly_robust.unwrap().low < doubly_robust.unwrap().high);
    }
    let [least, learned, random] = &report.policies[..] else { panic!() };
    assert!(learned.estimates.doubly_robust.unwrap().low > least.estimates.direct.value);
    assert!((random.estimates.mean_weight - 1.0).abs() < 0.05, "{random:?}");
    assert!((random.estimates.agreement - 0.25).abs() < 0.02, "{random:?}");
}

#[test]
fn a_log_without_chance_supports_itself_and_says_so_of_others() {
    let (attained, log) = simulated(Policy::RoundRobin, 1_500);
    let report = replay(&log, targets(&[Policy::RoundRobin, Policy::Learned]), 1).unwrap();
    let [own, learned] = &report.policies[..] else { panic!() };
    assert!((own.estimates.agreement - 1.0).abs() < 1e-9, "{own:?}");
    assert!((own.estimates.doubly_robust.unwrap().value - attained).abs() < 0.01, "{own:?}");
    assert!(learned.estimates.too_little_support.is_some(), "{learned:?}");
    assert_eq!(learned.estimates.doubly_robust, None);
    assert!(table::text(&report).contains("Learned: too little support: the log could have made"));
}

#[test]
fn what_is_rebuilt_is_decided_as_it_was() {
    let (_, log) = simulated(Policy::Learned, 1_500);
    let report = replay(&log, targets(&[Policy::Learned]), 1).unwrap();
    assert!(report.policies[0].estimates.agreement > 0.99, "{report:?}");
}
