//! Priors are what their command makes, are good on rows that they were not made from, and a bad file is
//! told by line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::program::{Done, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the program in words, with paths put in for `{out}` and the like.
fn train(args: &[&str]) -> Done {
    run(std::iter::once("train").chain(args.iter().copied()))
}

/// The lines of a file of priors, without how they fare on measured points.
fn priors(path: &Path) -> Vec<Value> {
    let line = |line: &str| {
        let mut prior: Value = serde_json::from_str(line).unwrap();
        prior["card"]["reality"] = Value::Null;
        prior
    };
    fs::read_to_string(path).unwrap().lines().map(line).collect()
}

#[test]
fn the_command_makes_the_priors_that_are_committed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("p.jsonl");
    let profiles = root().join("crates/sim/profiles.csv");
    let done = train(&[
        "--profiles",
        profiles.to_str().unwrap(),
        "--only",
        "H100-SXM llama-3.1-8b",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let committed = priors(&root().join("models/priors.jsonl"));
    assert_eq!(priors(&out), committed[..1], "make models/priors.jsonl anew, see models/README.md");
}

#[test]
fn first_rows_of_classes_that_priors_know_are_predicted_well() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    // Another workload and seed than those that taught the priors.
    let done = run([
        "evaluate",
        "--simulate",
        "mixed",
        "--requests",
        "1500",
        "--seed",
        "7",
        "--learners",
        "mean,rls",
        "--json",
        json.to_str().unwrap(),
    ]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("FIRST ROWS"), "{}", done.stdout);
    let figures: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let first = figures["first_rows"].as_array().unwrap();
    assert_eq!(first.len(), 3);
    for class in first {
        assert_eq!(class["first_50_judged"], 50, "{class}");
        assert!(class["prior_only_mape_ratio"].as_f64().unwrap() <= 0.3, "{class}");
        assert!(class["first_50_mape_ratio"].as_f64().unwrap() <= 0.3, "{class}");
        assert!(class["rows_51_to_150_mape_ratio"].as_f64().unwrap() <= 0.2, "{class}");
    }
}

#[test]
fn a_prior_of_recorded_rows_is_made_and_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (rows, out) = (path("rows.jsonl"), path("p.jsonl"));
    let simulate = |seed, record: &str| {
        run([
            "evaluate",
            "--simulate",
            "homogeneous",
            "--requests",
            "700",
            "--seed",
            seed,
            "--learners",
            "rls",
            "--prior",
            "none",
            "--record",
            record,
        ])
    };
    assert_eq!(simulate("1", &rows).code, Some(0));
    let made = train(&[
        "--rows",
        &rows,
        "--model",
        "llama-3.1-8b",
        "--accelerator",
        "H100-SXM",
        "--out",
        &out,
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stdout.contains("held-out last fifth"), "{}", made.stdout);
    let [prior] = &*priors(Path::new(&out)) else { panic!("not one prior") };
    assert!(prior["card"]["held_out"]["ttft_mape_ratio"].as_f64().unwrap() < 0.3, "{prior}");
    let other = path("other.jsonl");
    assert_eq!(simulate("2", &other).code, Some(0));
    let json = path("figures.json");
    let judged = run(["evaluate", &other, "--learners", "rls", "--prior", &out, "--json", &json]);
    assert_eq!(judged.code, Some(0), "{}", judged.stderr);
    let figures: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(figures["first_rows"][0]["first_50_judged"], 50, "{figures}");
}

#[test]
fn what_no_prior_can_be_made_of_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = path("p.jsonl");
    let profiles = path("profiles.csv");
    fs::write(&profiles, "gpu,model\nH100,x\n").unwrap();
    let done = train(&["--profiles", &profiles, "--out", &out]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("is not a table of step-time profiles"), "{}", done.stderr);
    let done = train(&["--out", &out]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
}

#[test]
fn a_bad_file_of_priors_stops_the_start_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("old.jsonl"), "{\"format\": 0}\n").unwrap();
    let config = path("slackline.yaml");
    fs::write(&config, "learner: {priors: old.jsonl}\n").unwrap();
    let done = run(["serve", "--config", &config]);
    assert_eq!(done.code, Some(1));
    let last = done.stderr.trim_end().lines().last().unwrap();
    assert!(last.contains("old.jsonl:1: the prior was made with format 0"), "{}", done.stderr);
    fs::write(&config, "learner: {priors: none-there.jsonl}\n").unwrap();
    let done = run(["serve", "--config", &config]);
    assert!(done.stderr.contains("cannot read priors from"), "{}", done.stderr);
}
