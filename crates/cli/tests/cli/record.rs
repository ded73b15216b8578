//! Rows that a front records.

use std::{fs, path::Path};

use serde_json::Value;

use crate::program::{Server, field, get, run};

/// An engine and a gateway in front of it that records to `file`.
fn servers(file: &Path) -> (Server, Server, String) {
    servers_with(file, &[])
}

/// The same with more flags for the gateway.
fn servers_with(file: &Path, flags: &[&str]) -> (Server, Server, String) {
    let args = ["engine", "--gpu", "H100", "--port", "0", "--time-scale", "100"];
    let engine = Server::start(args);
    let address = field(&engine.line_with("engine is listening"), "address");
    let (host, port) = address.rsplit_once(':').unwrap();
    let config = file.with_extension("yaml");
    let entry = format!("{{name: one, address: {host}, port: \"{port}\"}}");
    fs::write(&config, format!("endpoints: {{static: [{entry}]}}\n")).unwrap();
    let args = [
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--record",
        file.to_str().unwrap(),
    ];
    let gateway = Server::start(args.into_iter().chain(flags.iter().copied()));
    let address = field(&gateway.line_with("gateway is listening"), "address");
    (engine, gateway, address)
}

fn load(address: &str) {
    let target = format!("http://{address}");
    let args = ["load", "--target", &target, "--model", "llama-3.1-8b", "--time-scale", "100"];
    let limits = ["--requests", "20", "--max-prompt-tokens", "1000"];
    let done = run(args.into_iter().chain(limits));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

#[test]
fn every_request_is_a_row_that_evaluate_reads_and_holds_no_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    for round in 1..=2 {
        let (_engine, gateway, address) = servers(&file);
        load(&address);
        assert!(get(&address, "/metrics").contains("slackline_cli_recorded_rows_total"));
        let stopped = gateway.terminate();
        assert!(stopped.success());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 20 * round);
    }
    let text = fs::read_to_string(&file).unwrap();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&row["schema"], &row["end"]),
            (&features::SCHEMA_VERSION.into(), &"complete".into())
        );
        assert_eq!(
            (&row["endpoint"], &row["model"]),
            (&"default/one".into(), &"llama-3.1-8b".into())
        );
        assert!(row["ttft_known_at_ms"].as_f64() > row["decided_at_ms"].as_f64(), "{row}");
        assert_eq!(row["features"].as_object().unwrap().len(), features::SCHEMA.len());
        // Unix time: the second run comes after the first.
        assert!(row["decided_at_ms"].as_f64() > Some(1.6e12), "{row}");
        let longest =
            row.as_object().unwrap().values().filter_map(Value::as_str).map(str::len).max();
        assert!(longest < Some(40), "{row}");
    }
    let done = run(["evaluate", file.to_str().unwrap()]);
    assert!(done.code == Some(0) || done.stderr.contains("too few"), "{}", done.stderr);
}

#[test]
fn with_candidates_each_row_holds_what_it_might_have_been_and_evaluate_does_not_mind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    let (_engine, gateway, address) = servers_with(&file, &["--record-candidates"]);
    load(&address);
    assert!(gateway.terminate().success());
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 20);
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let decision = &row["decision"];
        assert_eq!((&decision["of"], &decision["propensity"]), (&1.into(), &1.0.into()));
        let [candidate] = &decision["candidates"].as_array().unwrap()[..] else { panic!("{row}") };
        assert_eq!(candidate["endpoint"], "default/one");
        let named = row["features"].as_object().unwrap();
        let listed = candidate["features"].as_array().unwrap();
        for (feature, value) in features::SCHEMA.iter().zip(listed) {
            assert_eq!(&named[feature.name], value, "{}", feature.name);
        }
        assert!(line.len() < 4_000, "{} bytes", line.len());
    }
    let done = run(["evaluate", file.to_str().unwrap()]);
    assert!(done.code == Some(0) || done.stderr.contains("too few"), "{}", done.stderr);
}

#[test]
fn a_file_of_something_else_is_not_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = (folder.path().join("notes.txt"), folder.path().join("c.yaml"));
    fs::write(&file, "milk, bread").unwrap();
    fs::write(&config, "listen: 127.0.0.1:0\n").unwrap();
    let args = ["serve", "--config", config.to_str().unwrap(), "--record", file.to_str().unwrap()];
    let done = run(args);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("holds no recorded rows"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(&file).unwrap(), "milk, bread");
}

#[test]
fn a_file_of_rows_of_another_version_is_not_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let (file, config) = (folder.path().join("rows.jsonl"), folder.path().join("c.yaml"));
    fs::write(&file, "{\"schema\":1,\"decided_at_ms\":1.0}\n").unwrap();
    fs::write(&config, "listen: 127.0.0.1:0\n").unwrap();
    let args = ["serve", "--config", config.to_str().unwrap(), "--record", file.to_str().unwrap()];
    let done = run(args);
    assert_eq!(done.code, Some(1));
    let words = "holds rows of version 1, and this program writes 2";
    assert!(done.stderr.contains(words), "{}", done.stderr);
}

#[test]
fn half_a_row_left_by_a_crash_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.jsonl");
    let whole = "{\"schema\":2,\"decided_at_ms\":1.0}\n";
    fs::write(&file, format!("{whole}{{\"schema\":2,\"deci")).unwrap();
    let (_engine, gateway, address) = servers(&file);
    load(&address);
    assert!(gateway.terminate().success());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(whole));
    assert_eq!(text.lines().count(), 21);
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn a_full_disk_is_told_once_and_requests_go_on() {
    let folder = tempfile::tempdir().unwrap();
    // A device that refuses whatever is written: its name is that of the file, beside the configuration.
    let file = folder.path().join("rows.jsonl");
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let (_engine, gateway, address) = servers(&file);
    for round in 1..=2 {
        load(&address);
        let dropped = format!("slackline_cli_dropped_rows_total {}", 20 * round);
        let is_counted = |_| get(&address, "/metrics").contains(&dropped);
        assert!((0..100_000).any(is_counted), "{dropped}");
    }
    let told = gateway.line_with("rows cannot be recorded");
    assert!(told.contains("WARN") && told.contains("No space left"), "{told}");
    let (status, log) = gateway.terminate_and_read();
    assert!(status.success());
    let again = log.iter().filter(|line| line.contains("rows cannot be recorded"));
    assert_eq!(again.count(), 0, "{log:#?}");
}
