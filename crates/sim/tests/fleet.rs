//! A fleet in virtual time: what happens to its engines, how late things are known, and who is told.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use features::Column;
use parking_lot::Mutex;
use router::{Recorded, Recorder};
use schedule::Policy;
use sim::{
    Arrival, BlockSource, Bundled, Change, Chooser, Class, FleetError, Member, Options,
    OracleOptions, Profile, Scenario, Simulated, Timing, Trace, TraceOptions, simulate,
};
use types::{ManualClock, Millis, Role, Slo, Time};

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

fn fleet(count: usize) -> Vec<Member> {
    let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
    let member = |at| {
        let options = Options { seed: at as u64, ..Options::new(&profile) };
        Member::new(format!("h100-{at}"), profile.clone(), options)
    };
    (0..count).map(member).collect()
}

/// The first requests of a recorded trace, at about five a second.
fn trace(requests: usize) -> Trace {
    let whole = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let whole = whole.take(requests);
    let rate = requests as f64 / whole.span().as_secs_f64();
    whole.scaled(5.0 / rate)
}

/// Requests of these classes and prompts, one a second.
fn spaced(requests: impl IntoIterator<Item = (u16, u32)>) -> Trace {
    let arrival = |(at, (class, prompt_tokens)): (u64, (u16, u32))| Arrival {
        at: Duration::from_secs(at),
        prompt_tokens,
        output_tokens: 20,
        blocks: BlockSource::Unique(at),
        session: Some(at as u32 / 2),
        class,
    };
    let arrivals = (0..).zip(requests).map(arrival).collect();
    Trace { name: "spaced".to_owned(), arrivals, clamped: 0 }
}

fn slo() -> Slo {
    Slo { ttft: Millis::new(1_000.0), itl: Millis::new(40.0) }
}

fn by(policy: Policy) -> Chooser {
    let mut options = router::Options::default();
    options.schedule.policy = policy;
    Chooser::Router(options)
}

fn scenario(policy: Policy) -> Scenario {
    Scenario::new(by(policy), vec![Class::only(slo())], "llama-3.1-8b")
}

/// The simulation, and the rows of its router.
fn recorded(fleet: &[Member], trace: &Trace, scenario: &Scenario) -> (Simulated, Vec<Recorded>) {
    let kept = Arc::new(Kept::default());
    let recorder = Some(Arc::clone(&kept) as Arc<dyn Recorder>);
    let scenario = Scenario { recorder, ..scenario.clone() };
    let done = simulate("p", fleet, trace, &scenario).unwrap();
    let rows = std::mem::take(&mut *kept.0.lock());
    (done, rows)
}

fn served(rows: &[Recorded], name: &str) -> Vec<f64> {
    let there = rows.iter().filter(|row| row.endpoint.name() == name);
    there.map(|row| row.decided_at.secs_f64()).collect()
}

#[test]
fn a_slowdown_shows_in_the_rows_from_its_instant_on() {
    let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
    let options = Options { slowdown: 1.5, ..Options::new(&profile) };
    let member = Member::new("a", profile, options);
    let trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let change = Duration::from_mins(5);
    let scenario = Scenario {
        events: vec![(change, Change::Slowdown { member: None, factor: 3.0 })],
        classes: vec![Class::only(Slo::default())],
        ..scenario(Policy::Learned)
    };
    // So little load that slower steps do not become fuller ones.
    let trace = trace.scaled(0.1).slice(Duration::ZERO, Duration::from_mins(10));
    let (_, rows) = recorded(&[member], &trace, &scenario);
    assert_eq!(rows.len(), trace.arrivals.len());
    let change = Time::ZERO.after(change);
    let median = |late: bool| {
        let mut steps: Vec<_> = rows
            .iter()
            .filter(|row| {
                if late {
                    row.decided_at > change
                } else {
                    row.itl.is_some_and(|itl| itl.at < change)
                }
            })
            .filter_map(|row| row.itl)
            .map(|itl| itl.ms)
            .collect();
        steps.sort_unstable_by(f32::total_cmp);
        steps[steps.len() / 2]
    };
    let factor = median(true) / median(false);
    assert!((2.7..3.4).contains(&factor), "{factor}");
}

#[test]
fn a_slowdown_of_one_member_leaves_the_others_alone() {
    let slow = Change::Slowdown { member: Some(1), factor: 4.0 };
    let scenario =
        Scenario { events: vec![(Duration::ZERO, slow)], ..scenario(Policy::RoundRobin) };
    let done = simulate("p", &fleet(2), &spaced([(0, 2_000); 20]), &scenario).unwrap();
    let [quick, slowed] = &*done.detail.members else { panic!("two members") };
    assert_eq!((quick.requests, slowed.requests), (10, 10));
    let factor = slowed.busy.as_secs_f64() / quick.busy.as_secs_f64();
    assert!((3.6..4.4).contains(&factor), "{factor}");
}

#[test]
fn no_request_is_lost_when_an_engine_dies() {
    let (dies, recovers) = (Duration::from_secs(20), Duration::from_secs(70));
    let scenario = Scenario {
        events: vec![(dies, Change::Fail { member: 0 }), (recovers, Change::Recover { member: 0 })],
        ..scenario(Policy::RoundRobin)
    };
    let trace = trace(600);
    let (done, rows) = recorded(&fleet(3), &trace, &scenario);
    assert_eq!(done.report.requests, 600);
    assert_eq!(done.detail.all.requests, 600);
    // Only what it was working on is lost; what came after was tried elsewhere.
    let failed: u64 = done.report.errors.values().sum();
    assert!((1..30).contains(&failed), "{:?}", done.report.errors);
    assert!(done.report.errors.contains_key("truncated"), "{:?}", done.report.errors);
    assert!(done.decisions > 600, "{}", done.decisions);
    let broken = rows.iter().filter(|row| row.end == "endpoint-failed").count();
    assert_eq!(broken as u64, failed + (done.decisions - 600));
    // The router soon leaves it alone, but for a try now and then, and takes it again when it is back.
    let there = served(&rows, "h100-0");
    let tries = there.iter().filter(|at| (20.0..70.0).contains(*at)).count();
    assert!((3..20).contains(&tries), "{tries}");
    assert!(there.iter().filter(|at| **at > 75.0).count() > 30);
}

#[test]
fn a_recovered_engine_has_an_empty_cache() {
    let cached = |events| {
        let mut trace = spaced([(0, 4_096); 3]);
        for arrival in &mut trace.arrivals {
            arrival.blocks = BlockSource::Unique(7);
        }
        let scenario = Scenario { events, ..scenario(Policy::RoundRobin) };
        simulate("p", &fleet(1), &trace, &scenario).unwrap().detail.cached_tokens
    };
    assert_eq!(cached(vec![]), 2 * 4_080);
    let (dies, recovers) = (Duration::from_millis(900), Duration::from_millis(950));
    let lost = vec![(dies, Change::Fail { member: 0 }), (recovers, Change::Recover { member: 0 })];
    assert_eq!(cached(lost), 4_080);
}

#[test]
fn with_no_engine_left_every_request_fails_and_the_run_ends() {
    let fail = (Duration::from_millis(500), Change::Fail { member: 0 });
    let scenario = Scenario { events: vec![fail], ..scenario(Policy::LeastRequests) };
    let done = simulate("p", &fleet(1), &spaced([(0, 100); 5]), &scenario).unwrap();
    assert_eq!(done.report.errors, [("connect".to_owned(), 4)].into());
    assert_eq!((done.detail.all.requests, done.detail.all.met), (5, 1));
}

#[test]
fn a_member_gets_requests_only_when_it_has_started() {
    let mut members = fleet(2);
    members[1].joins_at = Duration::from_secs(30);
    let (_, rows) = recorded(&members, &trace(300), &scenario(Policy::RoundRobin));
    let late = served(&rows, "h100-1");
    assert!(late.iter().all(|at| *at >= 30.0));
    let early = served(&rows, "h100-0").iter().filter(|at| **at >= 30.0).count();
    assert!(late.len().abs_diff(early) <= 1, "{} {early}", late.len());
}

#[test]
fn gauges_are_as_old_as_interval_and_delay_make_them() {
    let ages = |timing| {
        let scenario = Scenario { timing, ..scenario(Policy::RoundRobin) };
        let (_, rows) = recorded(&fleet(2), &trace(300), &scenario);
        let later = rows.iter().filter(|row| row.decided_at.secs_f64() > 1.0);
        let ages = later.map(|row| row.row.get(Column::SnapshotAge));
        ages.fold((f32::MAX, 0.0_f32), |(least, most), age| (least.min(age), most.max(age)))
    };
    let (least, most) = ages(Timing::default());
    assert!((0.0..5.0).contains(&least) && (45.0..50.0).contains(&most), "{least} {most}");
    let (scrape_every, scrape_delay) = (Duration::from_millis(200), Duration::from_millis(300));
    let (least, most) = ages(Timing { scrape_every, scrape_delay, ..Timing::default() });
    assert!((300.0..310.0).contains(&least) && (490.0..500.0).contains(&most), "{least} {most}");
}

#[test]
fn the_network_is_paid_once_each_way() {
    let run = |network| {
        let timing = Timing { network, ..Timing::default() };
        let scenario = Scenario { timing, ..scenario(Policy::RoundRobin) };
        let (done, rows) = recorded(&fleet(1), &spaced([(0, 500)]), &scenario);
        let (ttft, e2e) = (done.report.ttft_ms.p50.unwrap(), done.report.e2e_ms.p50.unwrap());
        (ttft, e2e, rows[0].ttft.unwrap().ms, rows[0].itl.unwrap().ms)
    };
    let near = run(Duration::ZERO);
    let far = run(Duration::from_millis(15));
    assert!((far.0 - near.0 - 30.0).abs() < 0.05, "{far:?} {near:?}");
    assert!((far.1 - near.1 - 30.0).abs() < 0.2, "{far:?} {near:?}");
    assert!((far.2 - near.2 - 30.0).abs() < 1e-3, "{far:?} {near:?}");
    assert!((far.3 - near.3).abs() < 1e-4, "{far:?} {near:?}");
}

#[test]
fn late_labels_change_when_the_router_learns_and_nothing_else() {
    let run = |policy, label_delay| {
        let timing = Timing { label_delay, ..Timing::default() };
        let scenario = Scenario { timing, ..scenario(policy) };
        let (done, rows) = recorded(&fleet(2), &trace(200), &scenario);
        let seen: Vec<_> = rows.iter().map(|row| (row.decided_at, row.ttft, row.itl)).collect();
        (done.report, seen, done.detail.rungs)
    };
    let second = Duration::from_secs(1);
    let (at_once, late) = (run(Policy::Random, Duration::ZERO), run(Policy::Random, second));
    assert_eq!(at_once, late);
    assert_eq!(at_once.1.len(), 200);
    let heuristic =
        |rungs: &BTreeMap<&str, u64>| rungs.get("heuristic").copied().unwrap_or_default();
    let (at_once, late) = (run(Policy::Learned, Duration::ZERO), run(Policy::Learned, 10 * second));
    // Without labels there is nothing to predict from for longer.
    let (at_once, late) = (heuristic(&at_once.2), heuristic(&late.2));
    assert!(late > at_once + 30, "{late} {at_once}");
}

#[test]
fn classes_are_judged_each_by_its_own_objective() {
    let class = |name: &str, ttft, tenant: Option<&str>| Class {
        name: name.into(),
        slo: Slo { ttft: Millis::new(ttft), itl: None },
        weight: 2.0,
        tenant: tenant.map(Into::into),
    };
    let classes = vec![class("loose", 10_000.0, None), class("tight", 1.0, Some("t"))];
    let scenario = Scenario { classes, ..scenario(Policy::RoundRobin) };
    let trace = spaced((0..30).map(|at| (u16::from(at % 3 == 0), 1_000)));
    let done = simulate("p", &fleet(1), &trace, &scenario).unwrap();
    let detail = &done.detail;
    let counts: Vec<_> =
        detail.classes.iter().map(|class| (&*class.name, class.requests, class.met)).collect();
    assert_eq!(counts, [("loose", 20, 20), ("tight", 10, 0)]);
    assert_eq!((detail.all.requests, detail.all.met), (30, 20));
    assert!((done.report.attainment - 2.0 / 3.0).abs() < 1e-9);
    let ratio = |at: usize| detail.classes[at].worst_tenth_ratio.unwrap();
    assert!((ratio(1) / ratio(0) - 10_000.0).abs() < 500.0, "{} {}", ratio(0), ratio(1));
    assert!((detail.all.worst_tenth_ratio.unwrap() / ratio(1) - 1.0).abs() < 0.1);
    assert_eq!(detail.met_output_tokens, 20 * 20);
}

#[test]
fn the_warm_up_is_served_and_not_judged() {
    let warm_up = Duration::from_secs(10);
    let scenario = Scenario { warm_up, ..scenario(Policy::RoundRobin) };
    let done = simulate("p", &fleet(1), &spaced([(0, 500); 30]), &scenario).unwrap();
    assert_eq!((done.report.requests, done.detail.all.requests), (20, 20));
    assert_eq!(done.detail.members[0].requests, 30);
    assert_eq!(done.detail.prompt_tokens, 20 * 500);
    assert!((done.report.offered_rps - 20.0 / 19.0).abs() < 1e-9);
}

#[test]
fn members_account_for_all_that_was_computed() {
    let scenario = scenario(Policy::Heuristic);
    let trace = trace(200);
    let done = simulate("p", &fleet(3), &trace, &scenario).unwrap();
    let computed: u64 = done.detail.members.iter().map(|member| member.tokens).sum();
    let asked = trace.arrivals.iter().map(|a| u64::from(a.prompt_tokens + a.output_tokens));
    assert_eq!(computed, asked.sum::<u64>() - done.detail.cached_tokens);
    let busy: Duration = done.detail.members.iter().map(|member| member.busy).sum();
    assert!(busy > Duration::from_secs(5) && busy < 3 * done.detail.end, "{busy:?}");
    assert_eq!(done.detail.span, trace.span());
    assert!(done.detail.end > trace.span());
}

#[test]
fn predictions_are_kept_beside_what_came() {
    let done = simulate("p", &fleet(2), &trace(400), &scenario(Policy::Learned)).unwrap();
    let kept = &done.detail.predicted;
    assert!(kept.len() > 200, "{}", kept.len());
    let near = |(predicted, seen): (f32, f32)| (0.5..2.0).contains(&(predicted / seen));
    let good = kept.iter().filter(|of| near(of.ttft_ms)).count();
    assert!(good * 10 > kept.len() * 7, "{good} of {}", kept.len());
    let none = simulate("p", &fleet(2), &trace(50), &scenario(Policy::RoundRobin)).unwrap();
    assert!(none.detail.predicted.is_empty());
}

#[test]
fn an_oracle_places_every_request_and_never_where_nobody_lives() {
    let mut members = fleet(3);
    members[2].joins_at = Duration::from_secs(40);
    let events = vec![(Duration::from_secs(10), Change::Fail { member: 1 })];
    let timing = Timing { network: Duration::from_millis(2), ..Timing::default() };
    let oracle = Chooser::Oracle(OracleOptions::TrueLatency);
    let scenario = Scenario { policy: oracle, events, timing, ..scenario(Policy::Learned) };
    let done = simulate("oracle", &members, &trace(300), &scenario).unwrap();
    assert_eq!(done.report.requests, 300);
    assert!(done.errors.is_empty() && done.detail.rungs.is_empty());
    let failed: u64 = done.report.errors.values().sum();
    assert!(failed < 20, "{:?}", done.report.errors);
    assert!(done.detail.members.iter().all(|member| member.requests > 0));
}

#[test]
fn equal_seeds_give_equal_bytes_on_every_thread() {
    let events = vec![
        (Duration::from_secs(5), Change::Slowdown { member: Some(0), factor: 2.0 }),
        (Duration::from_secs(10), Change::Fail { member: 1 }),
        (Duration::from_secs(20), Change::Recover { member: 1 }),
    ];
    let timing = Timing {
        scrape_delay: Duration::from_millis(20),
        network: Duration::from_millis(1),
        label_delay: Duration::from_millis(100),
        ..Timing::default()
    };
    for policy in [by(Policy::Learned), Chooser::Oracle(OracleOptions::TrueLatency)] {
        let events = events.clone();
        let scenario = Scenario { policy, events, timing, ..scenario(Policy::Learned) };
        let run = || {
            let done = simulate("p", &fleet(3), &trace(300), &scenario).unwrap();
            format!("{done:?}")
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(run);
            (run(), other.join().unwrap())
        });
        assert!(first == second, "{:?}", scenario.policy);
    }
}

/// Without one, what nobody asks for is not worked out: latencies are not learned where nothing is
/// predicted, and prefixes are not told where nothing goes by them.
#[test]
fn a_recorder_changes_nothing() {
    let policies = [Policy::Random, Policy::RoundRobin, Policy::LeastRequests, Policy::Heuristic];
    let whole = Trace::bundled(Bundled::MooncakeConversation, &TraceOptions::default()).unwrap();
    let trace = whole.take(300).scaled(2.0);
    for policy in policies {
        let scenario = scenario(policy);
        let alone = simulate("p", &fleet(4), &trace, &scenario).unwrap();
        let (watched, rows) = recorded(&fleet(4), &trace, &scenario);
        assert_eq!(rows.len(), 300);
        assert!(format!("{alone:?}") == format!("{watched:?}"), "{policy:?}");
    }
}

#[test]
fn decisions_are_timed_only_where_a_clock_is_given() {
    let trace = spaced([(0, 100); 3]);
    let timed =
        Scenario { clock: Some(Arc::new(ManualClock::default())), ..scenario(Policy::RoundRobin) };
    let done = simulate("p", &fleet(1), &trace, &timed).unwrap();
    assert_eq!((done.decisions, done.decision_time), (3, Some(Duration::ZERO)));
    let untimed = simulate("p", &fleet(1), &trace, &scenario(Policy::RoundRobin)).unwrap();
    assert_eq!(untimed.decision_time, None);
}

#[test]
fn a_member_for_prefill_alone_gets_nothing_to_decode() {
    let mut members = fleet(2);
    members[0].role = Role::Prefill;
    let done = simulate("p", &members, &spaced([(0, 100); 4]), &scenario(Policy::RoundRobin));
    let served: Vec<_> = done.unwrap().detail.members.iter().map(|m| m.requests).collect();
    assert_eq!(served, [0, 4]);
}

#[test]
fn what_is_not_there_is_named() {
    let trace = spaced([(0, 100), (3, 100)]);
    let error = simulate("p", &fleet(1), &trace, &scenario(Policy::Random)).unwrap_err();
    assert!(matches!(error, FleetError::Class { arrival: 1, class: 3, classes: 1 }), "{error}");
    let trace = spaced([(0, 100)]);
    let events = vec![(Duration::ZERO, Change::Fail { member: 4 })];
    let wrong = Scenario { events, ..scenario(Policy::Random) };
    let error = simulate("p", &fleet(2), &trace, &wrong).unwrap_err();
    assert!(matches!(error, FleetError::Event { member: 4, members: 2 }), "{error}");
    let none = Scenario { classes: Vec::new(), ..scenario(Policy::Random) };
    let error = simulate("p", &fleet(2), &trace, &none).unwrap_err();
    assert!(matches!(error, FleetError::NoClasses), "{error}");
}
