//! Scenarios as a whole: what they refuse, and that equal ones come to equal reports.

use serde_json::{Value, json};

use super::*;
use crate::{fleet::Chooser, oracle::OracleOptions};

fn written() -> Value {
    json!({
        "name": "small",
        "model": "llama-3.1-8b",
        "fleet": [
            {"gpu": "H100", "count": 1, "price_per_hour": 3.6},
            {"gpu": "L40S", "count": 2, "price_per_hour": 0.9, "name": "cheap"},
        ],
        "classes": [
            {"name": "fast", "share": 0.75, "ttft_ms": 500, "itl_ms": 30},
            {"name": "slow", "share": 0.25, "ttft_ms": 5000, "weight": 0.5},
        ],
        "workload": {"generate": {"like": "sharegpt", "rate": 20.0}},
        "seeds": [3, 4],
        "horizon_s": 5.0,
    })
}

fn with(path: &[&str], value: Value) -> Value {
    let mut all = written();
    let mut at = &mut all;
    for key in path {
        at = match key.parse::<usize>() {
            Ok(place) => &mut at[place],
            Err(_) => &mut at[*key],
        };
    }
    *at = value;
    all
}

fn spec(value: Value) -> Spec {
    serde_json::from_value(value).unwrap()
}

fn refused(value: Value) -> Wrong {
    let spec = spec(value);
    match Fleet::of(&spec, None) {
        Ok(fleet) => spec.check(&fleet).unwrap_err(),
        Err(wrong) => wrong,
    }
}

fn lab(value: Value, jobs: usize) -> Lab {
    let spec = spec(value);
    let fleet = Fleet::of(&spec, None).unwrap();
    spec.check(&fleet).unwrap();
    let policy = |name: &str, policy| {
        let schedule = schedule::Options { policy, ..schedule::Options::default() };
        let options = router::Options { schedule, ..router::Options::default() };
        Policy { name: name.to_owned(), about: String::new(), chooser: Chooser::Router(options) }
    };
    let policies = vec![
        policy("random", schedule::Policy::Random),
        policy("learned", schedule::Policy::Learned),
        Policy {
            name: "true-latency".to_owned(),
            about: String::new(),
            chooser: Chooser::Oracle(OracleOptions::TrueLatency),
        },
    ];
    Lab { spec, folder: "".into(), fleet, policies, requests: None, jobs, clock: None }
}

#[test]
fn endpoints_are_numbered_by_their_group_and_cost_what_they_are_there_for() {
    let mut late = written();
    late["fleet"][1]["joins_at_s"] = json!(1_800);
    late["fleet"][1]["startup_s"] = json!(60);
    let fleet = Fleet::of(&spec(late), None).unwrap();
    assert_eq!(fleet.names().collect::<Vec<_>>(), ["h100-sxm-0", "cheap-0", "cheap-1"]);
    assert_eq!(fleet.words(), "1 H100-SXM llama-3.1-8b, 2 L40S llama-3.1-8b");
    assert!((fleet.price_per_hour() - 5.4).abs() < 1e-9);
    let hour = std::time::Duration::from_hours(1);
    assert!((fleet.cost(hour, true) - 4.5).abs() < 1e-9);
    let members = fleet.members(1);
    assert_eq!(members[1].joins_at, std::time::Duration::from_mins(31));
    assert_ne!(members[1].options.seed, members[2].options.seed);
}

#[test]
fn a_value_that_cannot_be_used_is_told_with_its_path() {
    for (value, path) in [
        (with(&["fleet", "0", "gpu"], json!("H1000")), "fleet[0].gpu"),
        (with(&["fleet", "1", "count"], json!(0)), "fleet[1].count"),
        (with(&["fleet", "1", "price_per_hour"], json!(-1)), "fleet[1].price_per_hour"),
        (with(&["model"], json!("llama")), "model"),
        (with(&["classes", "1", "share"], json!(0.3)), "classes[1].share"),
        (with(&["classes", "0", "itl_ms"], json!(0)), "classes[0].itl_ms"),
        (with(&["classes", "1", "name"], json!("fast")), "classes[1].name"),
        (with(&["workload", "generate", "rate"], json!(-1)), "workload.generate.rate"),
        (with(&["horizon_s"], json!(0)), "horizon_s"),
        (with(&["warm_up_s"], json!(5)), "warm_up_s"),
        (with(&["loads"], json!([1, -1])), "loads[1]"),
        (with(&["goodput"], json!({"target": 1.5})), "goodput.target"),
        (with(&["timing"], json!({"scrape_interval_ms": 0})), "timing.scrape_interval_ms"),
        (with(&["events"], json!([{"at_s": 1}])), "events[0]"),
        (
            with(&["events"], json!([{"at_s": 1, "fail": {"endpoint": "cheap-2"}}])),
            "events[0].fail.endpoint",
        ),
        (with(&["fleets"], json!({"a": []})), "fleets"),
        (with(&["what_if"], json!({})), "what_if"),
        (with(&["what_if"], json!({"counts": {"H100": [2, 1]}})), "what_if.counts.H100"),
    ] {
        assert_eq!(refused(value).path, path);
    }
    let wrong = refused(with(&["fleet", "0", "gpu"], json!("H1O0")));
    assert!(wrong.known.iter().any(|known| known == "H100"), "{wrong:?}");
}

#[test]
fn a_number_of_seeds_counts_and_a_list_names_them() {
    assert_eq!(spec(with(&["seeds"], json!(3))).seeds, Seeds(vec![1, 2, 3]));
    assert_eq!(spec(written()).seeds, Seeds(vec![3, 4]));
    for wrong in [json!(0), json!(-1), json!([]), json!("x")] {
        assert!(serde_json::from_value::<Spec>(with(&["seeds"], wrong)).is_err());
    }
}

#[test]
fn the_number_of_jobs_changes_nothing_in_a_report() {
    let report = |jobs| lab(with(&["loads"], json!([1, 2])), jobs).run(&|_, _| {}).unwrap().0;
    let (one, three) = (report(1), report(3));
    assert_eq!(one.runs.len(), 3 * 2 * 2);
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&three).unwrap());
    let first: Vec<_> = one.runs.iter().take(4).map(|run| (&*run.policy, run.seed)).collect();
    assert_eq!(first, [("random", 3), ("random", 4), ("random", 3), ("random", 4)]);
    assert!(one.runs[2].offered_rps > 1.5 * one.runs[0].offered_rps);
}

#[test]
fn a_run_tells_of_every_class_and_of_what_it_cost() {
    let (report, timed) = lab(written(), 2).run(&|_, _| {}).unwrap();
    assert!(timed.is_empty());
    let run = &report.runs[2];
    assert_eq!(run.policy, "learned");
    let (fast, slow) = (&run.by_class["fast"], &run.by_class["slow"]);
    assert_eq!(fast.requests + slow.requests, run.requests);
    assert!(fast.requests > slow.requests);
    assert!((0.5..=1.0).contains(&run.attainment), "{}", run.attainment);
    // Five seconds of 5.4 per hour.
    assert!((run.cost / 0.0075 - 1.0).abs() < 0.05, "{}", run.cost);
    assert!(run.cost_per_met_mtoken.is_some());
    assert!(run.utilization.keys().eq(["H100-SXM", "L40S"]));
    assert!(run.ttft_cdf.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1));
    assert!(run.hot_spot_ratio >= 1.0);
    let oracle = &report.runs[4];
    assert!(report.policies[2].oracle && oracle.attainment >= report.runs[0].attainment);
}

#[test]
fn requests_of_the_warm_up_are_not_judged() {
    let whole = lab(written(), 1).run(&|_, _| {}).unwrap().0;
    let warm = lab(with(&["warm_up_s"], json!(2.5)), 1).run(&|_, _| {}).unwrap().0;
    let (whole, warm) = (whole.runs[0].requests, warm.runs[0].requests);
    assert!(warm > whole / 3 && warm < whole * 2 / 3, "{warm} of {whole}");
}

#[test]
fn the_largest_rate_that_holds_is_bracketed() {
    let mut lab = lab(with(&["goodput"], json!({"target": 0.9, "within": 0.1})), 2);
    lab.policies.remove(0);
    let found = lab.goodput(&|_, _| {}).unwrap();
    assert_eq!(found.len(), 2);
    for goodput in &found {
        assert_eq!(goodput.by_seed.len(), 2);
        let (low, high) = goodput.interval_rps;
        assert!(low <= goodput.rate_rps && goodput.rate_rps <= high);
        assert!(goodput.rate_rps > 20.0, "{goodput:?}");
        for (seed, rate) in [3, 4].iter().zip(&goodput.by_seed) {
            let of_seed = goodput.tried.iter().filter(|(tried, ..)| tried == seed);
            assert!(
                of_seed.clone().any(|(_, tried, a)| tried.total_cmp(rate).is_eq() && *a >= 0.9)
            );
            assert!(of_seed.clone().any(|(_, tried, a)| tried > rate && *a < 0.9));
        }
    }
}

#[test]
fn the_cheapest_fleet_that_holds_is_found_without_trying_all() {
    let what_if = json!({"counts": {"H100": [0, 3], "cheap": [0, 3]}});
    let mut lab = lab(with(&["what_if"], what_if), 2);
    lab.policies.remove(0);
    let tried = lab.what_if(&|_, _| {}).unwrap();
    assert!(tried.len() < 15, "{}", tried.len());
    assert!(tried.is_sorted_by(|a, b| a.price_per_hour <= b.price_per_hour));
    let cheapest = tried.iter().find(|fleet| fleet.holds).unwrap();
    assert_eq!(cheapest.policy, "learned");
    assert!(cheapest.price_per_hour <= 3.6, "{cheapest:?}");
}
