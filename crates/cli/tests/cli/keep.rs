//! What was learned outlives a restart.

use std::{fs, path::Path};

use crate::program::{Server, field, get, run};

/// An engine, and a gateway in front of it that keeps what it learns in `folder`.
fn servers(folder: &Path) -> (Server, Server, String) {
    let engine = Server::start(["engine", "--gpu", "H100", "--port", "0", "--time-scale", "20"]);
    let address = field(&engine.line_with("engine is listening"), "address");
    let (host, port) = address.rsplit_once(':').unwrap();
    let config = folder.join("slackline.yaml");
    let entry = format!("{{name: one, address: {host}, port: \"{port}\"}}");
    fs::write(&config, format!("endpoints: {{static: [{entry}]}}\n")).unwrap();
    let state = folder.join("state");
    let gateway = Server::start([
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--state",
        state.to_str().unwrap(),
    ]);
    let address = field(&gateway.line_with("gateway is listening"), "address");
    (engine, gateway, address)
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
    let target = format!("http://{address}");
    let args = ["load", "--target", &target, "--model", "llama-3.1-8b", "--time-scale", "20"];
    let limits = ["--requests", "30", "--max-prompt-tokens", "1000"];
    let done = run(args.into_iter().chain(limits));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
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
