//! The demo, shortened, from start to end.

use std::fs;

use serde_json::Value;

use crate::program::slackline;

/// The policies that are compared, in order.
const POLICIES: [&str; 4] =
    ["slackline (learned)", "llm-d (our reading)", "least-requests", "round-robin"];

/// Runs the demo in a folder of its own, in which it leaves nothing but its figures.
fn demo(args: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let output = slackline(["demo", "--json", "figures.json"])
        .args(args)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["figures.json"]);
    let figures = fs::read_to_string(folder.path().join("figures.json")).unwrap();
    (String::from_utf8(output.stdout).unwrap(), serde_json::from_str(&figures).unwrap())
}

#[test]
fn the_demo_ends_with_a_table_and_the_same_figures_for_machines() {
    let (stdout, figures) =
        demo(&["--seconds", "1", "--time-scale", "12", "--requests", "300", "--seed", "7"]);
    assert!(stdout.contains("through the gateway at http://127.0.0.1:"), "{stdout}");
    assert!(stdout.contains("Learned routing met the objective of"), "{stdout}");
    let policies = figures["policies"].as_array().unwrap();
    for (policy, name) in policies.iter().zip(POLICIES) {
        assert_eq!(policy["name"], name);
        assert!(stdout.lines().any(|line| line.starts_with(name)), "{stdout}");
        assert_eq!(policy["requests"], 300);
        assert!((0.0..=1.0).contains(&policy["attainment"].as_f64().unwrap()));
        assert!(policy["goodput_rps"].as_f64().unwrap() > 0.0);
        for latency in ["ttft_ms", "itl_ms"] {
            assert!(policy[latency]["p99"].as_f64() >= policy[latency]["p50"].as_f64());
        }
        let shares = policy["share"].as_object().unwrap();
        let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{shares:?}");
    }
    assert_eq!(policies.len(), POLICIES.len());
    for class in ["H100-SXM", "A100-SXM-80"] {
        let error = &figures["model_error"][format!("{class} ttft_median_ape")];
        assert!(error.as_f64().is_some_and(|error| error >= 0.0), "{figures}");
    }
    assert!(figures["live"]["requests"].as_u64().unwrap() > 0);
}

#[test]
fn equal_seeds_give_equal_comparisons() {
    let args = ["--no-live", "--requests", "100", "--seed", "3"];
    let (first, second) = (demo(&args), demo(&args));
    assert_eq!(first.1, second.1);
    assert_eq!(first.1.get("live"), None);
}
