//! The examples in `config/` work, and what is wrong in a file is told by line, column and key.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cli::Config;

use crate::program::{Server, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

#[test]
fn every_example_loads() {
    let mut loaded = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        if path.file_name().unwrap() == "endpoints.yaml" {
            let text = fs::read_to_string(&path).unwrap();
            let parsed = discovery::parse(&text, "endpoints.yaml").unwrap();
            assert_eq!(parsed.problems, []);
            assert_eq!(parsed.set.endpoints.len(), 2);
        } else {
            let config = Config::load(&path).unwrap();
            if let discovery::Options::File(file) = config.endpoints {
                assert!(file.path.is_file(), "{} is not there", file.path.display());
            }
        }
        loaded += 1;
    }
    assert!(loaded >= 4);
}

#[test]
fn every_policy_loads_says_what_it_is_and_is_listed() {
    let folder = folder().join("policies");
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut loaded = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let discovery::Options::File(file) = config.endpoints else {
            panic!("{} does not name its endpoints", path.display())
        };
        assert!(file.path.is_file(), "{} is not there", file.path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{name} does not say what it is");
        assert!(text.contains(&format!("--config config/policies/{name}.yaml")), "{name}");
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in the table");
        loaded += 1;
    }
    assert!(loaded >= 25);
}

#[test]
fn the_annotated_example_shows_the_defaults() {
    let shown = Config::load(&folder().join("slackline.yaml")).unwrap();
    let fallback = Config::default();
    assert_eq!(shown.listen, fallback.listen);
    assert_eq!(
        serde_json::to_value(&shown.router).unwrap(),
        serde_json::to_value(&fallback.router).unwrap()
    );
    let gateway =
        gateway::Options { default_slo: fallback.gateway.default_slo, ..shown.gateway.clone() };
    assert_eq!(format!("{gateway:?}"), format!("{:?}", fallback.gateway));
    assert_eq!(format!("{:?}", shown.scrape), format!("{:?}", fallback.scrape));
    let picker = Config::load(&folder().join("epp.yaml")).unwrap();
    assert_eq!(picker.epp, fallback.epp);
}

#[test]
fn the_examples_serve() {
    let example = |name: &str| folder().join(name).to_str().unwrap().to_owned();
    for name in ["slackline.yaml", "heuristic.yaml"] {
        let server =
            Server::start(["serve", "--config", &example(name), "--listen", "127.0.0.1:0"]);
        let line = server.line_with("gateway is listening");
        assert!(line.contains("endpoints=2"), "{line}");
        assert!(server.terminate().success());
    }
    let epp = example("epp.yaml");
    let server = Server::start([
        "epp",
        "--config-file",
        &epp,
        "--bind=127.0.0.1",
        "--grpc-port=0",
        "--grpc-health-port=0",
        "--metrics-port=0",
    ]);
    server.line_with("plaintext");
    let line = server.line_with("endpoint picker is listening");
    assert!(line.contains("endpoints=2"), "{line}");
    assert!(server.terminate().success());
}

#[test]
fn a_wrong_file_stops_the_start_with_line_column_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.yaml");
    let file = path.to_str().unwrap();
    for (text, told) in [
        ("listen: 127.0.0.1:8080\nscrap: {}\n", "2:1: unknown field `scrap`"),
        ("scrape:\n  interval_ms: soon\n", "2:16: scrape.interval_ms: "),
        ("endpoints:\n  static:\n    - {name: a, address: 10.0.0.1, port: 0}\n", "3:7: endpoints"),
        ("schedule: {policy: best}\n", "1:20: schedule.policy: unknown variant `best`"),
    ] {
        fs::write(&path, text).unwrap();
        for args in [["serve", "--config", file], ["epp", "--config-file", file]] {
            let done = run(args);
            assert_eq!(done.code, Some(1), "{args:?}");
            let told = format!("slackline: {file}:{told}");
            assert!(done.stderr.contains(&told), "{text:?} gave {}", done.stderr);
        }
    }
}
