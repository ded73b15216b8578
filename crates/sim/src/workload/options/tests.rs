//! What a scenario file may say of its workload, and what it is told when it makes no sense.

use std::{io::Write as _, path::Path, time::Duration};

use super::*;
use crate::workload::{BlockSource, engine_blocks};

fn parsed(text: &str) -> Workload {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn make(folder: &Path, horizon_s: u64) -> Make<'_> {
    Make { speed: 1.0, seed: 1, horizon: Duration::from_secs(horizon_s), shares: &[], folder }
}

fn here() -> &'static Path {
    Path::new(".")
}

/// A folder of its own with one file in it.
fn file(name: &str, text: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("sim-workload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::File::create(folder.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
    folder
}

#[test]
fn what_makes_no_sense_is_named_with_key_and_value() {
    for (text, expected) in [
        (
            r#"{"generate":{"like":"scenario-a","rate":-3}}"#,
            "generate.rate: must be above 0, not -3",
        ),
        (
            r#"{"generate":{"like":"scenario-a","rate":3,"groups":0}}"#,
            "generate.groups: must be above 0, not 0",
        ),
        (
            r#"{"generate":{"like":"scenario-a","rate":3,"samples":4}}"#,
            "generate.samples: `scenario-a` does not have it",
        ),
        (
            r#"{"generate":{"like":"rl-rollout","rate":3,"arrivals":"constant"}}"#,
            "generate.arrivals: `rl-rollout` does not have it",
        ),
        (
            r#"{"generate":{"like":"agentic","rate":3,"prompt_tokens":{"sd":-1}}}"#,
            "generate.prompt_tokens.sd: must be from 0 to 10000000, not -1",
        ),
        (
            r#"{"generate":{"like":"scenario-c","rate":3,"max_context":5000}}"#,
            "generate.max_context: must be above the system prompt (6000), not 5000",
        ),
        (r#"{"replay":{"trace":"azure-code","speed":0}}"#, "replay.speed: must be above 0, not 0"),
        (
            r#"{"servegen":{"file":"r.csv","model":"m","rate":-1}}"#,
            "servegen.rate: must be above 0, not -1",
        ),
        (
            r#"{"servegen":{"file":"r.csv","model":"m","cv":-1}}"#,
            "servegen.cv: must be from 0 to 20, not -1",
        ),
    ] {
        assert_eq!(parsed(text).check().unwrap_err(), expected, "{text}");
    }
}

#[test]
fn an_unknown_key_or_variant_is_refused() {
    for text in [
        r#"{"generate":{"like":"scenario-a","rate":3,"group":4}}"#,
        r#"{"generate":{"like":"scenario-e","rate":3}}"#,
        r#"{"generate":{"like":"scenario-a","rate":3,"arrivals":{"gamma":{"cv":2,"x":1}}}}"#,
        r#"{"replays":{"trace":"azure-code"}}"#,
    ] {
        assert!(serde_json::from_str::<Workload>(text).is_err(), "{text}");
    }
}

#[test]
fn shares_that_are_none_are_refused() {
    let workload = parsed(r#"{"generate":{"like":"sharegpt","rate":3}}"#);
    for (shares, expected) in [
        (&[1.5, -0.5][..], "workload.share: must be from 0 to 1, not 1.5"),
        (&[0.5, 0.3][..], "workload.share: the shares of all classes must sum to 1, not 0.8"),
    ] {
        let error = workload.trace(&Make { shares, ..make(here(), 10) }).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn classes_come_in_their_shares_and_one_to_a_conversation() {
    for like in ["sharegpt", "agentic"] {
        let workload = parsed(&format!(r#"{{"generate":{{"like":"{like}","rate":50}}}}"#));
        let shares = &[0.2, 0.7, 0.1][..];
        let trace = workload.trace(&Make { shares, ..make(here(), 1_000) }).unwrap();
        let mut of = std::collections::HashMap::new();
        let mut counts = [0.0; 3];
        for arrival in &trace.arrivals {
            counts[usize::from(arrival.class)] += 1.0 / trace.arrivals.len() as f64;
            if let Some(session) = arrival.session {
                assert_eq!(*of.entry(session).or_insert(arrival.class), arrival.class);
            }
        }
        for (found, share) in counts.iter().zip(shares) {
            assert!((found - share).abs() < 0.03, "{like}: {counts:?}");
        }
    }
}

#[test]
fn a_replay_keeps_its_requests_and_changes_its_pace() {
    let workload = parsed(
        r#"{"replay":{"trace":"mooncake-conversation","speed":2,"max_prompt_tokens":30000}}"#,
    );
    let whole = workload.trace(&make(here(), 10_000)).unwrap();
    assert_eq!(whole.arrivals.len(), 2_154);
    assert!(whole.clamped > 0);
    let nominal = workload.nominal_rate(here()).unwrap();
    let found = whole.arrivals.len() as f64 / whole.span().as_secs_f64();
    assert!((found / nominal - 1.0).abs() < 0.01, "{found} {nominal}");
    let taken = parsed(r#"{"replay":{"trace":"azure-code","take":30}}"#);
    assert_eq!(taken.trace(&make(here(), 10_000)).unwrap().arrivals.len(), 30);
}

#[test]
fn a_replay_that_repeats_fills_the_horizon_with_new_prompts() {
    let workload = parsed(r#"{"replay":{"trace":"mooncake-conversation","repeat":true}}"#);
    let trace = workload.trace(&make(here(), 2_000)).unwrap();
    assert!(trace.span() > Duration::from_secs(1_990));
    assert!(trace.arrivals.is_sorted_by_key(|arrival| arrival.at));
    let ids = |at: usize| match &trace.arrivals[at].blocks {
        BlockSource::Shared(ids) => ids.clone(),
        BlockSource::Unique(_) | BlockSource::Parts(_) => panic!("no ids"),
    };
    assert_eq!(ids(0).len(), ids(2_154).len());
    assert_ne!(ids(0)[0], ids(2_154)[0]);
}

#[test]
fn a_missing_trace_is_named() {
    let workload = parsed(r#"{"replay":{"trace":"no-such.jsonl"}}"#);
    let error = workload.trace(&make(Path::new("/nowhere"), 10)).unwrap_err().to_string();
    assert_eq!(error, "cannot open trace `/nowhere/no-such.jsonl`");
}

#[test]
fn recorded_rates_set_the_pace() {
    let folder = file(
        "rates.csv",
        "model,t_s,rate_rps\nbig,0,10\nsmall,0,1\nbig,600,50\nsmall,600,1\nbig,1200,30\n",
    );
    let text = r#"{"servegen":{"file":"rates.csv","model":"big","cv":1,"time_factor":2}}"#;
    let workload = parsed(text);
    assert!((workload.nominal_rate(&folder).unwrap() - 30.0).abs() < 1e-9);
    let trace = workload.trace(&make(&folder, 1_200)).unwrap();
    for (from, rate) in [(0, 10.0), (300, 50.0), (600, 30.0), (900, 10.0)] {
        let part = trace.clone().slice(Duration::from_secs(from), Duration::from_mins(5));
        let found = part.arrivals.len() as f64 / 300.0;
        assert!((found / rate - 1.0).abs() < 0.1, "{from}: {found}");
    }
    assert_ne!(engine_blocks(&trace.arrivals[0]), engine_blocks(&trace.arrivals[1]));
    let other = parsed(r#"{"servegen":{"file":"rates.csv","model":"bigger"}}"#);
    let error = other.nominal_rate(&folder).unwrap_err().to_string();
    assert!(error.ends_with("rates.csv:1: fewer than two rates of model `bigger`"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_workload_tells_what_it_is_in_a_line() {
    let about = parsed(r#"{"generate":{"like":"scenario-b","rate":4}}"#).about();
    assert_eq!(
        about,
        "scenario-b: 6 groups x 1000 users, 10 turns, system 1000, prompt 3000 ± 900, \
         answer 1000 ± 300 tokens, 4 requests/s, Poisson"
    );
}

#[test]
fn what_is_written_is_read_back() {
    for text in [
        r#"{"generate":{"like":"agentic","rate":2.0,"arrivals":{"flash":{"at_s":1.0,"for_s":2.0,"factor":3.0}}}}"#,
        r#"{"replay":{"trace":"azure-code","take":9}}"#,
    ] {
        let workload = parsed(text);
        assert_eq!(parsed(&serde_json::to_string(&workload).unwrap()), workload);
    }
}
