//! What was learned outlives a restart.

use std::{fs, path::Path};

use crate::program::{Server, field, get, run};

/// An engine, and a gateway in front of it that keeps what it learns in `folder`.
fn servers(folder: &Path) -> (Server, Server, String) {
    servers_with(folder, "", &[])
}

/// The same with more lines of configuration and more flags.
fn servers_with(folder: &Path, lines: &str, flags: &[&str]) -> (Server, Server, String) {
    let engine = Server::start(["engine", "--gpu", "H100", "--port", "0", "--time-scale", "20"]);
    let address = field(&engine.line_with("engine is listening"), "address");
    let (host, port) = address.rsplit_once(':').unwrap();
    let config = folder.join("slackline.yaml");
    let entry = format!("{{name: one, address: {host}, port: \"{port}\"}}");
    fs::write(&config, format!("endpoints: {{static: [{entry}]}}\n{lines}")).unwrap();
    let (state, config) = (folder.join("state"), config.to_str().unwrap().to_owned());
    let args = ["serve", "--config", &config, "--listen", "127.0.0.1:0"];
    let kept = ["--state", state.to_str().unwrap()];
    let gateway = Server::start(args.into_iter().chain(kept).chain(flags.iter().copied()));
    let address = field(&gateway.line_with("gateway is listening"), "address");
    (engine, gateway, address)
}

/// Thirty requests.
fn load(address: &str) {
    let target = format!("http://{address}");
    let args = ["load", "--target", &target, "--model", "llama-3.1-8b", "--time-scale", "20"];
    let limits = ["--requests", "30", "--max-prompt-tokens", "1000"];
    let done = run(args.into_iter().chain(limits));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

fn labels(address: &str) -> Option<String> {
    let page = get(address, "/metrics");
    let line = page
        .lines()
        .find(|line| line.starts_with("slackline_predict_class_labels") && line.contains("ttft"))?;
    Some(line.rsplit(' ').next().unwrap().to_owned())
}

#[test]
fn a_restarted_gateway_goes_on_from_what_it_had_learned() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, gateway, address) = servers(folder.path());
    load(&address);
    assert_eq!(labels(&address).as_deref(), Some("30"));
    assert!(gateway.terminate().success());
    drop(engine);

    let (_engine, gateway, address) = servers(folder.path());
    assert_eq!(labels(&address).as_deref(), Some("30"));
    assert!(gateway.terminate().success());
}

#[test]
fn a_damaged_store_is_moved_aside_and_serving_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("manifest"), "not a store").unwrap();
    let (_engine, gateway, address) = servers(folder.path());
    assert_eq!(labels(&address), None);
    assert!(gateway.terminate().success());
    let aside = fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("state.corrupt"));
    assert!(aside);
}

#[test]
fn models_of_other_learners_are_learned_again_from_the_kept_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, gateway, address) = servers(folder.path());
    load(&address);
    assert!(gateway.terminate().success());
    drop(engine);
    let (engine, gateway, address) =
        servers_with(folder.path(), "learner: {regressors: [rls], batch: []}\n", &[]);
    assert_eq!(labels(&address).as_deref(), Some("30"));
    assert!(gateway.terminate().success());
    drop(engine);

    // And a damaged blob, which says nothing of itself.
    let state = folder.path().join("state");
    let options = state::Options { path: state.clone(), ..state::Options::default() };
    let store = state::Store::open(options, 1).unwrap().store;
    store.put_blob("models", b"rubbish").unwrap();
    store.flush().unwrap();
    drop(store);
    let (_engine, gateway, address) = servers(folder.path());
    assert_eq!(labels(&address).as_deref(), Some("30"));
    assert!(gateway.terminate().success());
}

#[test]
fn what_was_done_with_models_that_do_not_fit_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, gateway, address) = servers(folder.path());
    load(&address);
    assert!(gateway.terminate().success());
    drop(engine);
    let config = folder.path().join("slackline.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}learner: {{batch: []}}\n")).unwrap();
    let state = folder.path().join("state");
    let gateway = Server::start([
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--state",
        state.to_str().unwrap(),
    ]);
    let told = gateway.line_with("what was learned before");
    for words in
        ["WARN", "cannot be taken over", "repeated from kept rows", "rows=30", "regressors"]
    {
        assert!(told.contains(words), "{told}");
    }
    gateway.line_with("gateway is listening");
    assert!(gateway.terminate().success());
}

#[test]
fn rows_are_kept_and_recorded_at_once_and_evaluate_reads_both() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("rows.jsonl"), folder.path().join("state"));
    let flags = ["--record", file.to_str().unwrap()];
    let (_engine, gateway, address) = servers_with(folder.path(), "", &flags);
    load(&address);
    let busy = run(["evaluate", state.to_str().unwrap()]);
    assert!(busy.stderr.contains("in use by another process"), "{}", busy.stderr);
    assert!(gateway.terminate().success());
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 30);
    let json = folder.path().join("figures.json");
    let evaluate = |rows: &Path| {
        let done = run(["evaluate", rows.to_str().unwrap(), "--json", json.to_str().unwrap()]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let text = fs::read_to_string(&json).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        ["rows", "groups", "totals"].map(|key| report[key].clone())
    };
    assert_eq!(evaluate(&state), evaluate(&file));
    let nothing = run(["evaluate", folder.path().to_str().unwrap()]);
    assert!(nothing.stderr.contains("there is no state in"), "{}", nothing.stderr);
}

#[test]
fn without_room_for_rows_none_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--state-samples-mb", "0"];
    let (_engine, gateway, address) = servers_with(folder.path(), "", &flags);
    load(&address);
    assert!(gateway.terminate().success());
    let done = run(["evaluate", folder.path().join("state").to_str().unwrap()]);
    assert!(done.stderr.contains("no rows"), "{}", done.stderr);
}
