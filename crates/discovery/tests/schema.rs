//! The schema of endpoints files: what is taken, what is skipped, and where the fault is said to be.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use discovery::{Inline, Options, Parsed, Severity, parse};
use proptest::prelude::*;

const LLM_D: &str = r#"
endpoints:
- name: vllm-0
  namespace: default
  address: 10.0.0.1
  port: "8000"
  labels: {llm-d.ai/role: decode}
- name: vllm-1
  address: 10.0.0.2
  port: "8001"
"#;

fn read(text: &str) -> Parsed {
    parse(text, "pool.yaml").unwrap()
}

fn addresses(parsed: &Parsed) -> Vec<String> {
    parsed.set.endpoints.iter().map(|e| format!("{} {}", e.id, e.address)).collect()
}

fn problems(parsed: &Parsed) -> Vec<String> {
    parsed.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_of_llm_d_is_taken_as_it_is() {
    let parsed = read(LLM_D);
    assert_eq!(
        addresses(&parsed),
        ["default/vllm-0 10.0.0.1:8000", "default/vllm-1 10.0.0.2:8001"]
    );
    assert_eq!(parsed.set.endpoints[0].role(), types::Role::Decode);
    assert_eq!(parsed.problems, []);
}

#[test]
fn json_is_taken_too() {
    let text = r#"{"endpoints": [{"name": "a", "namespace": "prod",
        "address": "10.0.0.1", "port": "80", "labels": {"on": "yes"}}]}"#;
    let parsed = read(text);
    assert_eq!(addresses(&parsed), ["prod/a 10.0.0.1:80"]);
    assert_eq!(parsed.set.endpoints[0].labels["on"], "yes");
}

#[test]
fn ports_as_numbers_ipv6_and_host_names_are_taken() {
    let text = "endpoints:\n\
        - {name: a, address: '2001:db8::1', port: 80}\n\
        - {name: b, address: '[::1]', port: '81'}\n\
        - {name: c, address: vllm-0.pool.svc, port: 82}\n";
    let want = ["default/a [2001:db8::1]:80", "default/b [::1]:81", "default/c vllm-0.pool.svc:82"];
    assert_eq!(addresses(&read(text)), want);
}

#[test]
fn words_that_old_yaml_took_for_booleans_stay_words() {
    let parsed = read("endpoints: [{name: no, address: on, port: 80, labels: {y: yes, off: no}}]");
    assert_eq!(addresses(&parsed), ["default/no on:80"]);
    assert_eq!(parsed.set.endpoints[0].labels["y"], "yes");
}

#[test]
fn anchors_and_merges_work_and_the_fault_is_where_they_are_used() {
    let text = "endpoints:\n\
        - &base {name: a, address: 10.0.0.1, port: 80}\n\
        - {<<: *base, name: b}\n\
        - {<<: *base, name: c, port: zero}\n";
    let parsed = read(text);
    assert_eq!(addresses(&parsed), ["default/a 10.0.0.1:80", "default/b 10.0.0.1:80"]);
    assert_eq!(
        problems(&parsed),
        ["pool.yaml:4:30: endpoint `c`: port: `zero` is not a port in 1..=65535"]
    );
}

#[test]
fn a_bad_entry_is_named_with_its_line_and_the_rest_serves() {
    let cases = [
        ("- address: 10.0.0.9\n  port: '80'", "3:3: name is missing"),
        ("- name: ''\n  address: h\n  port: '80'", "3:9: name is empty"),
        ("- name: 7\n  address: h\n  port: '80'", "3:9: name is 7, not text: quote it"),
        ("- name: x\n  port: '80'", "3:3: endpoint `x`: address is missing"),
        (
            "- name: x\n  address: 10.0.0\n  port: 80",
            "4:12: endpoint `x`: address: `10.0.0` is \
            neither an IP address nor a host name",
        ),
        ("- name: x\n  address: h", "3:3: endpoint `x`: port is missing"),
        (
            "- name: x\n  address: h\n  port: 65536",
            "5:9: endpoint `x`: port: `65536` is not a port \
            in 1..=65535",
        ),
        (
            "- name: x\n  address: h\n  port: '0'",
            "5:9: endpoint `x`: port: `0` is not a port in \
            1..=65535",
        ),
        (
            "- name: x\n  address: h\n  port: -1",
            "5:9: endpoint `x`: port: `-1` is not a port in \
            1..=65535",
        ),
        ("- name: x\n  address: h\n  port: 80.5", "5:9: endpoint `x`: port is 80.5, not a number"),
        (
            "- name: x\n  namespace: a/b\n  address: h\n  port: 80",
            "3:9: endpoint `x`: namespace \
            `a/b` has a `/`",
        ),
        (
            "- name: x\n  address: h\n  port: 80\n  labels: {a: 5}",
            "6:15: endpoint `x`: label `a` is \
            5, not text: quote it",
        ),
        (
            "- name: x\n  address: h\n  port: 80\n  labels: [a]",
            "6:11: endpoint `x`: labels is a \
            list, not a mapping",
        ),
        ("- just text", "3:3: `just text` is no endpoint: a mapping with a name is needed"),
        ("-", "3:2: nothing is no endpoint: a mapping with a name is needed"),
    ];
    for (entry, want) in cases {
        let good = "{name: good, address: 10.0.0.1, port: 80}";
        let parsed = read(&format!(
            "endpoints:\n- {good}\n{entry}\n- {{name: last, address: b, port: 1}}\n"
        ));
        assert_eq!(addresses(&parsed), ["default/good 10.0.0.1:80", "default/last b:1"], "{entry}");
        assert_eq!(problems(&parsed), [format!("pool.yaml:{want}")], "{entry}");
        assert_eq!(parsed.problems[0].severity, Severity::Error);
    }
}

#[test]
fn a_field_that_is_not_known_warns_and_has_no_effect() {
    let text = "kind: Pool\nendpoints:\n- name: a\n  address: h\n  port: 80\n  weight: 3\n";
    let parsed = read(text);
    assert_eq!(addresses(&parsed), ["default/a h:80"]);
    assert_eq!(
        problems(&parsed),
        [
            "pool.yaml:1:1: field `kind` is not known and has no effect",
            "pool.yaml:6:3: field `weight` is not known and has no effect",
        ]
    );
    assert!(parsed.problems.iter().all(|problem| problem.severity == Severity::Warning));
}

#[test]
fn of_entries_with_one_name_the_last_counts_and_both_lines_are_told() {
    let text = "endpoints:\n\
        - {name: a, address: old, port: 1}\n\
        - {name: b, address: h, port: 2}\n\
        - {name: a, namespace: default, address: new, port: 3}\n\
        - {name: a, namespace: other, address: h, port: 4}\n";
    let parsed = read(text);
    assert_eq!(addresses(&parsed), ["default/b h:2", "default/a new:3", "other/a h:4"]);
    assert_eq!(
        problems(&parsed),
        ["pool.yaml:4:3: endpoint `default/a` stands on lines 2 and 4: the last one counts"]
    );
}

#[test]
fn a_list_written_as_empty_is_an_empty_set() {
    for text in ["endpoints: []", "endpoints:", "{\"endpoints\": []}"] {
        assert_eq!(read(text), Parsed::default(), "{text}");
    }
}

#[test]
fn a_file_that_is_not_usable_says_where() {
    let cases = [
        ("", "1:1: file holds nothing, not a mapping with `endpoints`"),
        ("- a", "1:1: file holds a list, not a mapping with `endpoints`"),
        ("pool: []", "1:1: `endpoints` is missing"),
        ("endpoints: {a: b}", "1:12: `endpoints` is a mapping, not a list"),
        ("endpoints:\n- name: [", "2:9: unclosed bracket '['"),
        ("endpoints: []\nendpoints: []", "2:1: duplicate mapping key: endpoints"),
        (
            "endpoints:\n- name: a\n- name: b",
            "2:3: none of 2 endpoints is usable: endpoint `a`: address is missing",
        ),
    ];
    for (text, want) in cases {
        let problem = parse(text, "pool.yaml").unwrap_err().to_string();
        assert_eq!(problem, format!("pool.yaml:{want}"), "{text}");
    }
}

#[test]
fn a_fleet_of_thousands_fits_and_a_file_above_the_limit_is_refused() {
    let labels = "{llm-d.ai/role: decode, llm-d.ai/accelerator: H100-SXM}";
    let entry =
        |i| format!("- {{name: vllm-{i}, address: 10.0.0.1, port: '80', labels: {labels}}}\n");
    let mut text = "endpoints:\n".to_owned() + &(0..4000).map(entry).collect::<String>();
    assert_eq!(read(&text).set.endpoints.len(), 4000);
    text += &"#".repeat(discovery::MAX_FILE_BYTES);
    let problem = parse(&text, "pool.yaml").unwrap_err().to_string();
    assert!(problem.contains("more than 1048576"), "{problem}");
}

#[test]
fn options_name_one_kind_and_refuse_what_they_do_not_know() {
    let read = |text: &str| serde_json::from_str::<Options>(text);
    let Options::File(file) = read(r#"{"file": {"path": "a.yaml"}}"#).unwrap() else { panic!() };
    assert!(file.watch, "files are followed unless told otherwise");
    let Options::File(file) = read(r#"{"file": {"path": "a", "watchFile": false}}"#).unwrap()
    else {
        panic!()
    };
    assert!(!file.watch);
    let text = r#"{"static": [{"name": "a", "address": "h", "port": 80},
        {"name": "b", "address": "h", "port": "81", "namespace": "n", "labels": {"a": "b"}}]}"#;
    let Options::Static(entries) = read(text).unwrap() else { panic!() };
    let names: Vec<_> = entries.iter().map(Inline::endpoint).map(|e| e.id.to_string()).collect();
    assert_eq!(names, ["default/a", "n/b"]);
    for (bad, want) in [
        (r#"{"dns": {}}"#, "unknown variant `dns`"),
        (r#"{"file": {"path": "a", "pol": 1}}"#, "unknown field `pol`"),
        (r#"{"static": [{"name": "", "address": "h", "port": 1}]}"#, "name is empty"),
        (r#"{"static": [{"name": "a", "address": "h", "port": 0}]}"#, "`0` is not a port"),
        (r#"{"static": [{"name": "a", "address": "h", "port": []}]}"#, "port is neither"),
        (r#"{"static": [{"name": "a", "address": "h", "port": 1, "x": 1}]}"#, "unknown field `x`"),
    ] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains(want), "{bad}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser(text in "\\PC{0,200}") {
        let _any = parse(&text, "f");
    }

    #[test]
    fn no_damage_to_a_good_file_breaks_the_parser(at in 0..LLM_D.len(), with in "[\\[\\]{}:&*!|>'\"\t\n-]{0,3}") {
        let mut text = LLM_D.to_owned();
        text.replace_range(at..=at, &with);
        if let Ok(parsed) = parse(&text, "f") {
            prop_assert!(parsed.set.endpoints.len() <= 3);
        }
    }
}
