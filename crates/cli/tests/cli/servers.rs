//! Servers and the load that is put on them.

use std::fs;

use serde_json::Value;

use crate::program::{Server, field, get, run};

/// A hundred times faster than life, so that a test takes no time.
const FAST: [&str; 2] = ["--time-scale", "100"];

fn engine(more: &[&str]) -> (Server, String) {
    let args = ["engine", "--gpu", "H100", "--port", "0", FAST[0], FAST[1]];
    let server = Server::start(args.into_iter().chain(more.iter().copied()));
    let address = field(&server.line_with("engine is listening"), "address");
    (server, address)
}

/// Replays twenty requests against `address`, and gives the figures.
fn load(address: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let target = format!("http://{address}");
    let args = ["load", "--target", &target, "--model", "llama-3.1-8b", FAST[0], FAST[1]];
    let limits = ["--requests", "20", "--ttft-slo-ms", "1e6", "--itl-slo-ms", "1e6"];
    let json = ["--max-prompt-tokens", "1000", "--json", file.to_str().unwrap()];
    let done = run(args.into_iter().chain(limits).chain(json));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("policy "), "{}", done.stdout);
    assert!(done.stdout.contains("20 requests ended"), "{}", done.stdout);
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn load_on_an_engine_is_reported_for_people_and_machines() {
    let (engine, address) = engine(&[]);
    let figures = load(&address);
    let policy = &figures["policies"][0];
    assert_eq!(policy["name"], "mooncake-conversation");
    assert_eq!(policy["attainment"], 1.0);
    assert_eq!(policy["share"]["sim-0"], 1.0);
    assert!(policy["goodput_rps"].as_f64().unwrap() > 0.0);
    for latency in ["ttft_ms", "itl_ms"] {
        for quantile in ["p50", "p90", "p99"] {
            assert!(policy[latency][quantile].is_f64(), "{latency} {quantile}");
        }
    }
    assert!(figures["model_error"].as_object().unwrap().is_empty());
    assert!(engine.terminate().success());
}

#[test]
fn engines_of_one_command_are_told_apart() {
    let (server, first) = engine(&["--count", "2", "--name", "my-model"]);
    let second = field(&server.line_with("engine is listening"), "address");
    assert_ne!(first, second);
    let answer = get(&second, "/v1/models");
    assert!(answer.contains("x-inference-pod: sim-1") && answer.contains("my-model"), "{answer}");
}

#[test]
fn the_gateway_serves_what_its_endpoints_file_names_and_follows_it() {
    let (_first, one) = engine(&[]);
    let (_second, two) = engine(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    let entry = |name: &str, address: &str| {
        let (host, port) = address.rsplit_once(':').unwrap();
        format!("- {{name: {name}, address: {host}, port: \"{port}\"}}\n")
    };
    fs::write(&path, format!("endpoints:\n{}", entry("one", &one))).unwrap();
    let gateway = Server::start([
        "serve",
        "--endpoints-file",
        path.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--policy",
        "round-robin",
    ]);
    let line = gateway.line_with("gateway is listening");
    assert!(line.contains("endpoints=1"), "{line}");
    let address = field(&line, "address");
    assert_eq!(load(&address)["policies"][0]["share"]["default/one"], 1.0);

    let fresh = folder.path().join("fresh");
    let text = format!("endpoints:\n{}{}", entry("one", &one), entry("two", &two));
    fs::write(&fresh, text).unwrap();
    fs::rename(&fresh, &path).unwrap();
    let line = gateway.line_with("pool has changed");
    assert!(line.contains("endpoints=2"), "{line}");
    let share = &load(&address)["policies"][0]["share"];
    assert_eq!((&share["default/one"], &share["default/two"]), (&0.5.into(), &0.5.into()));
    assert!(gateway.terminate().success());
}

#[test]
fn a_gateway_without_endpoints_answers_503() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slackline.yaml");
    fs::write(&config, "listen: 127.0.0.1:0\nendpoints: {static: []}\n").unwrap();
    let gateway = Server::start(["serve", "--config", config.to_str().unwrap()]);
    let address = field(&gateway.line_with("gateway is listening"), "address");
    gateway.line_with("no endpoints");
    let answer = get(&address, "/v1/models");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(gateway.terminate().success());
}

#[test]
fn the_picker_shows_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("epp.yaml");
    fs::write(&config, "endpoints: {static: [{name: a, address: 127.0.0.1, port: 9}]}\n").unwrap();
    let ports = ["--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0", "--bind=127.0.0.1"];
    let command = ["epp", "--secure-serving=false", "--config-file", config.to_str().unwrap()];
    let picker = Server::start(command.into_iter().chain(ports));
    let line = picker.line_with("endpoint picker is listening");
    let answer = get(&field(&line, "metrics"), "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("slackline_router_endpoints 1"), "{answer}");
    assert!(picker.terminate().success());
}

#[test]
fn load_on_nobody_fails_and_says_so() {
    let vacant = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = format!("http://{vacant}");
    let args = ["load", "--target", &target, "--model", "m", FAST[0], FAST[1], "--requests", "5"];
    let done = run(args);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("5 connect"), "{}", done.stdout);
    assert!(done.stderr.contains("none of 5 requests succeeded"), "{}", done.stderr);
}
