//! `slackline simulate` and `slackline check`: the scenarios that come with the program, and what is said of
//! a file that is wrong.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::program::{Done, run};

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

fn scenario(name: &str) -> String {
    config().join("scenarios").join(name).to_str().unwrap().to_owned()
}

/// Runs the program, which must succeed.
fn shown<'a>(args: impl IntoIterator<Item = &'a str>) -> String {
    let done = run(args);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    done.stdout
}

/// `quick.yaml` with `from` replaced by `to`, as a file of its own in `folder`.
fn changed(folder: &Path, from: &str, to: &str) -> PathBuf {
    let text = fs::read_to_string(scenario("quick.yaml")).unwrap();
    assert!(text.contains(from), "{from}");
    let path = folder.join("changed.yaml");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    path
}

fn check(path: &Path) -> Done {
    run(["check", path.to_str().unwrap()])
}

#[test]
fn every_scenario_that_comes_with_the_program_runs() {
    let mut ran = 0;
    for entry in fs::read_dir(config().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let path = path.to_str().unwrap();
        shown(["check", path]);
        let has_fleets = fs::read_to_string(path).unwrap().contains("\nfleets:");
        let fleets: &[&str] = if has_fleets { &["ten-h100", "mixed"] } else { &[""] };
        for fleet in fleets {
            let mut args = vec!["simulate", path, "--requests", "40", "--seeds", "1"];
            args.extend(["--policy", "least-requests", "--policy", "slackline"]);
            if !fleet.is_empty() {
                args.extend(["--fleet", fleet]);
            }
            let text = shown(args);
            assert!(text.contains("\nslackline "), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
            ran += 1;
        }
    }
    assert!(ran >= 28, "{ran}");
}

#[test]
fn the_same_seed_comes_to_the_same_bytes_with_any_number_of_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let quick = scenario("quick.yaml");
    let report = |name: &str, jobs: &str, seeds: &str| {
        let path = folder.path().join(name);
        let json = path.to_str().unwrap();
        let args = ["simulate", &quick, "--requests", "200", "--jobs", jobs, "--seeds", seeds];
        let text = shown(args.into_iter().chain(["--json", json, "--timing"]));
        let table = text.split("TIME PER DECISION").next().unwrap().to_owned();
        assert!(text.contains("TIME PER DECISION"), "{text}");
        (table, fs::read(path).unwrap())
    };
    let first = report("a.json", "1", "1,2");
    assert_eq!(first, report("b.json", "1", "1,2"));
    assert_eq!(first, report("c.json", "2", "1,2"));
    assert_ne!(first.1, report("d.json", "2", "1,3").1);
    let value: Value = serde_json::from_slice(&first.1).unwrap();
    assert_eq!(value["runs"].as_array().unwrap().len(), 8);
    assert_eq!(value["runs"][0]["policy"], "round-robin");
    assert!(value["runs"][0]["ttft_ms"]["p99"].is_f64());
}

#[test]
fn what_is_wrong_in_a_scenario_is_one_line_with_its_place_and_the_nearest_name() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, told) in [
        ("horizon_s", "horizn_s", "33:1: unknown field `horizn_s`, did you mean `horizon_s`?"),
        ("rate: 100", "rate: -3", "24:11: workload.generate.rate: must be above 0, not -3"),
        (
            "A100",
            "A1O0",
            "14:11: fleet[1].gpu: no profile for accelerator `A1O0`, did you mean `A100`?",
        ),
        ("share: 0.2", "share: 0.3", "19:31: classes[1].share: the shares add up to 1.1, not to 1"),
        (
            "- slackline",
            "- slakline",
            "29:5: policies[2]: no policy is called `slakline`, did you mean `slackline`?",
        ),
        ("seeds: 3", "seeds: many", "32:8: seeds: invalid type"),
        (
            "llama-3.1-8b",
            "llama-3.1-9b",
            "9:8: model: no profile for `llama-3.1-9b` on `H100`, did you mean `llama-3.1-8b`?",
        ),
        (
            "seeds: 3",
            "events: [{at_s: 1, fail: {endpoint: h100-sxm-7}}]",
            "32:37: events[0].fail.endpoint: no endpoint of the fleet is called `h100-sxm-7`, did you mean",
        ),
        (
            "like: sharegpt\n",
            "like: sharegp\n",
            "23:11: workload.generate.like: unknown variant `sharegp`, did you mean `sharegpt`?",
        ),
    ] {
        let path = changed(folder.path(), from, to);
        for command in ["check", "simulate"] {
            let done = run([command, path.to_str().unwrap()]);
            assert_eq!(done.code, Some(1), "{to}");
            let told = format!("slackline: {}:{told}", path.display());
            assert!(done.stderr.starts_with(&told), "{to} gave {}", done.stderr);
            assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        }
    }
}

#[test]
fn a_missing_trace_is_told_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let from = "  generate:\n    like: sharegpt\n    rate: 100\n";
    let path = changed(folder.path(), from, "  replay:\n    trace: missing.csv\n");
    let error = check(&path).stderr;
    let told = ":23:12: workload.replay.trace: cannot open trace";
    assert!(error.contains(told) && error.contains("missing.csv"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_checked_file_is_told_in_a_few_lines() {
    let text = shown(["check", &scenario("mooncake.yaml")]);
    assert!(text.lines().next().unwrap().ends_with("mooncake.yaml: ok"), "{text}");
    assert!(text.contains("mixed: 4 H100-SXM llama-3.1-8b, 4 A100-SXM-80 llama-3.1-8b"), "{text}");
    let text = shown(["check", config().join("slackline.yaml").to_str().unwrap()]);
    assert!(text.contains("policy     learned"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.yaml");
    fs::write(&path, "listen: 127.0.0.1:1\nschedul: {}\n").unwrap();
    let error = check(&path).stderr;
    assert!(
        error.contains("s.yaml:2:1: unknown field `schedul`, did you mean `schedule`?"),
        "{error}"
    );
}

#[test]
fn the_published_schema_is_that_of_the_program() {
    let published = fs::read_to_string(config().join("scenario.schema.json")).unwrap();
    let current = shown(["check", "--schema", "scenario"]);
    assert!(
        published == current,
        "run `slackline check --schema scenario > config/scenario.schema.json`"
    );
}

#[test]
fn searches_end_in_a_table_and_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("r.json");
    let short = "horizon_s: 4\nwarm_up_s: 1";
    let scenario = changed(folder.path(), "horizon_s: 20\nwarm_up_s: 5", short);
    let mut args = vec!["simulate", scenario.to_str().unwrap(), "--seeds", "1,2"];
    args.extend(["--policy", "least-requests", "--policy", "slackline", "--goodput", "--what-if"]);
    args.extend(["--json", json.to_str().unwrap()]);
    let text = shown(args);
    assert!(text.contains("LARGEST RATE THAT HOLDS"), "{text}");
    assert!(text.contains("The cheapest fleet that holds 90.0 %"), "{text}");
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(report["goodput"].as_array().unwrap().len(), 2);
    assert_eq!(report["goodput"][0]["by_seed"].as_array().unwrap().len(), 2);
    assert!(report["what_if"].as_array().unwrap().iter().any(|tried| tried["holds"] == true));
    assert!(report["runs"].as_array().unwrap().is_empty());
}

#[test]
fn a_report_is_a_page_too_and_two_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stricter = changed(folder.path(), "itl_ms: 30", "itl_ms: 15");
    let scenarios = [("a", scenario("quick.yaml")), ("b", stricter.to_str().unwrap().to_owned())];
    for (name, scenario) in &scenarios {
        let (json, html) = (file(&format!("{name}.json")), file(&format!("{name}.html")));
        let args = ["simulate", scenario, "--requests", "200"];
        shown(args.into_iter().chain(["--json", &json, "--html", &html]));
    }
    let page = fs::read_to_string(file("a.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    let text = shown(["simulate", "--compare", &file("a.json"), &file("b.json")]);
    assert!(text.contains("slackline"), "{text}");
    let done = run(["simulate", "--compare", &file("a.json"), &file("a.html")]);
    assert!(done.stderr.contains("is not a report"), "{}", done.stderr);
}

#[test]
fn a_policy_may_be_a_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.yaml"), "schedule: {policy: least-requests}\n").unwrap();
    let text = "- slackline\n  - {name: mine, about: our own, file: mine.yaml}";
    let path = changed(folder.path(), "- slackline", text);
    let path = path.to_str().unwrap();
    let file = folder.path().join("mine.yaml");
    for policy in ["mine", file.to_str().unwrap()] {
        let args = ["simulate", path, "--requests", "100", "--policy", policy];
        let text = shown(args.into_iter().chain(["--policy", "least-requests"]));
        let row = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(name)).unwrap();
            row.split_whitespace().skip(1).collect::<Vec<_>>()
        };
        assert_eq!(row("mine"), row("least-requests"), "{text}");
    }
    let done = run(["simulate", path, "--policy", "slakline"]);
    assert!(done.stderr.contains("did you mean `slackline`?"), "{}", done.stderr);
}
