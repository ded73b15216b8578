//! Recorded decisions that are replayed under other policies.

use std::{fs, path::Path};

use serde_json::Value;

use crate::program::{Server, field, run};

/// Has a gateway with this policy over two engines record `requests` requests, with candidates, to `file`.
fn record(file: &Path, policy: &str, requests: usize) {
    let engine = |gpu| {
        let engine = Server::start(["engine", "--gpu", gpu, "--port", "0", "--time-scale", "100"]);
        let address = field(&engine.line_with("engine is listening"), "address");
        (engine, address)
    };
    let engines = [engine("H100"), engine("L40S")];
    let entry = |(at, (_, address)): (usize, &(Server, String))| {
        let (host, port) = address.rsplit_once(':').unwrap();
        format!("{{name: e{at}, address: {host}, port: \"{port}\"}}")
    };
    let entries: Vec<_> = engines.iter().enumerate().map(entry).collect();
    let config = file.with_extension("yaml");
    let text = format!(
        "endpoints: {{static: [{}]}}\nschedule: {{policy: {policy}}}\n",
        entries.join(", ")
    );
    fs::write(&config, text).unwrap();
    let (config, file) = (config.to_str().unwrap(), file.to_str().unwrap());
    let args = ["serve", "--config", config, "--listen", "127.0.0.1:0", "--record", file];
    let gateway = Server::start(args.into_iter().chain(["--record-candidates"]));
    let address = field(&gateway.line_with("gateway is listening"), "address");
    let (target, requests) = (format!("http://{address}"), requests.to_string());
    let args = ["load", "--target", &target, "--model", "llama-3.1-8b", "--time-scale", "100"];
    let limits = ["--requests", &requests, "--max-prompt-tokens", "1000"];
    let done = run(args.into_iter().chain(limits));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(gateway.terminate().success());
}

#[test]
fn a_log_with_chance_in_it_is_replayed_and_one_without_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, report) = (folder.path().join("rows.jsonl"), folder.path().join("report.json"));
    let (rows, report) = (rows.as_path(), report.to_str().unwrap());
    record(rows, "random", 300);
    let replay = ["simulate", "replay", rows.to_str().unwrap(), "--policy", "least-requests"];
    let nothing_promised = run(replay);
    assert_eq!(nothing_promised.code, Some(1));
    let words = "300: nothing was promised (see --ttft-ms and --itl-ms)";
    assert!(nothing_promised.stderr.contains(words), "{}", nothing_promised.stderr);

    let more = ["--policy", "slackline", "--ttft-ms", "1000", "--json", report];
    let done = run(replay.into_iter().chain(more));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("decided by random"), "{}", done.stdout);
    assert!(done.stdout.lines().all(|line| line.chars().count() <= 110), "{}", done.stdout);
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["judged"], 300, "{report}");
    for policy in report["policies"].as_array().unwrap() {
        let agreement = policy["agreement"].as_f64().unwrap();
        assert!((0.3..0.7).contains(&agreement), "{policy}");
        assert!(policy["doubly_robust"]["value"].as_f64() > Some(0.5), "{policy}");
    }

    record(&folder.path().join("turns.jsonl"), "round-robin", 100);
    let turns = folder.path().join("turns.jsonl");
    let args = ["simulate", "replay", turns.to_str().unwrap(), "--policy", "slackline"];
    let done = run(args.into_iter().chain(["--ttft-ms", "1000"]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("slackline: too little support: "), "{}", done.stdout);
}

#[test]
fn rows_without_candidates_and_policies_that_cannot_be_replayed_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    let row = format!(
        "{{\"schema\":{},\"decided_at_ms\":1.0,\"model\":\"m\",\"endpoint\":\"a/b\",\
         \"end\":\"complete\",\"rung\":\"random\"}}\n",
        features::SCHEMA_VERSION
    );
    fs::write(&file, row).unwrap();
    for (policy, words) in [
        ("least-requests", "no row holds candidates: record with --record-candidates"),
        ("clairvoyant", "policy `clairvoyant` knows what no log holds"),
        ("no-such-policy", "no policy is called `no-such-policy`"),
    ] {
        let done = run(["simulate", "replay", file.to_str().unwrap(), "--policy", policy]);
        assert_eq!(done.code, Some(1), "{policy}");
        assert!(done.stderr.contains(words), "{policy}: {}", done.stderr);
    }
}
