//! Rows are judged alike in every format, and what is wrong with one is told by file, line and field.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::program::{Done, run};

/// A row as `--record` writes it: `at` seconds after the start, its latencies known 700 ms later.
fn row(at: u16) -> Value {
    let prompt = f64::from(at * 37 % 900) + 100.0;
    let mut features: Map<String, Value> =
        features::SCHEMA.iter().map(|feature| (feature.name.to_owned(), json!(0.0))).collect();
    features["prompt_tokens"] = json!(prompt);
    features["uncached_tokens"] = json!(prompt);
    let decided = 1.7e12 + f64::from(at) * 1e3;
    json!({
        "schema": features::SCHEMA_VERSION, "decided_at_ms": decided, "model": "m<1>", "accelerator": "A100",
        "role": "both", "endpoint": format!("default/e{}", at % 2), "slot": at % 2,
        "features": features, "ttft_ms": 10.0 + prompt / 20.0, "ttft_known_at_ms": decided + 300.0,
        "itl_ms": 8.0 + f64::from(at % 3), "itl_known_at_ms": decided + 700.0, "output_tokens": 40,
        "end": "complete", "rung": "heuristic"
    })
}

fn rows(count: u16) -> Vec<Value> {
    (0..count).map(row).collect()
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

/// A folder with `content` in the file `name`.
fn folder(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    (folder, path)
}

fn evaluate(path: &Path, more: &[&str]) -> Done {
    run(["evaluate", path.to_str().unwrap()].into_iter().chain(more.iter().copied()))
}

/// The figures for the rows at `path`, without the name of the file.
fn figures(path: &Path) -> (Done, Value) {
    let json = path.with_extension("figures");
    let done = evaluate(path, &["--json", json.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let mut figures: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    figures["source"].take();
    (done, figures)
}

#[test]
fn recorded_rows_are_judged_for_people_and_machines() {
    let mut recorded = rows(300);
    recorded[7]["end"] = json!("client-gone");
    recorded[8]["end"] = json!("endpoint-failed");
    recorded[9].as_object_mut().unwrap().remove("itl_ms");
    let (_folder, path) = folder("rows.jsonl", lines(&recorded));
    let (done, figures) = figures(&path);
    assert!(done.stdout.contains("300 rows, 1 client-gone kept out, 1 endpoint-failed kept out"));
    let counts = &figures["rows"];
    assert_eq!((&counts["read"], &counts["kept_out"]["client-gone"]), (&json!(300), &json!(1)));
    for (target, labels) in [("ttft", 298), ("itl", 297)] {
        let totals = figures["totals"].as_array().unwrap();
        let total = totals.iter().find(|total| total["target"] == target).unwrap();
        assert_eq!((&total["class"], &total["regime"]), (&json!("all"), &json!("all")));
        let judged = total["n"].as_u64().unwrap();
        assert_eq!(judged + counts["warm_up"][target].as_u64().unwrap(), labels);
        assert!((20..100).contains(&counts["warm_up"][target].as_u64().unwrap()));
        for quantile in ["p50", "p90", "p95", "p99"] {
            assert!(total["coverage_ratio"][quantile].is_f64(), "{total}");
        }
        assert!(total["pinball_p90_ms"].is_f64() && total["median_ape_ratio"].is_f64());
        assert!(total["pinball_p90_uncorrected_ms"].is_f64());
        let learners = total["learners"].as_array().unwrap();
        assert_eq!(
            (&learners[0]["name"], &learners[1]["name"]),
            (&json!("served"), &json!("mean"))
        );
    }
    // What depends on the prompt alone is learned.
    let learned = &figures["groups"][0];
    assert_eq!((&learned["class"], &learned["regime"]), (&json!("m<1>/A100/both"), &json!("idle")));
    assert!(learned["median_ape_ratio"].as_f64().unwrap() < 0.1, "{learned}");
    assert!(done.stdout.contains("m<1>/A100/both  idle    ttft"), "{}", done.stdout);
}

#[test]
fn csv_parquet_and_gzip_give_the_figures_of_json_lines() {
    let recorded = rows(120);
    let (folder, path) = folder("rows.jsonl", lines(&recorded));
    let (_, expected) = figures(&path);
    let columns = columns(&recorded[0]);
    let csv_path = folder.path().join("rows.csv");
    let cells = |row: &Value| columns.iter().map(|name| cell(row, name)).collect::<Vec<_>>();
    let csv: Vec<_> = std::iter::once(columns.join(","))
        .chain(recorded.iter().map(|row| {
            let cells =
                cells(row).iter().map(|v| v.to_string().replace('"', "")).collect::<Vec<_>>();
            cells.join(",")
        }))
        .collect();
    fs::write(&csv_path, csv.join("\n")).unwrap();
    assert_eq!(figures(&csv_path).1, expected);
    let parquet_path = folder.path().join("rows.parquet");
    write_parquet(&parquet_path, &columns, &recorded);
    assert_eq!(figures(&parquet_path).1, expected);
    let gzip_path = folder.path().join("rows.gz");
    let mut packed = flate2::write::GzEncoder::new(
        fs::File::create(&gzip_path).unwrap(),
        flate2::Compression::fast(),
    );
    std::io::Write::write_all(&mut packed, lines(&recorded).as_bytes()).unwrap();
    packed.finish().unwrap();
    assert_eq!(figures(&gzip_path).1, expected);
}

#[test]
fn rows_without_a_version_are_told_by_their_columns() {
    let mut recorded = rows(120);
    let (_folder, path) = folder("rows.jsonl", lines(&recorded));
    let (_, expected) = figures(&path);
    for row in &mut recorded {
        row.as_object_mut().unwrap().remove("schema");
    }
    fs::write(&path, lines(&recorded)).unwrap();
    assert_eq!(figures(&path).1, expected);
    recorded[3]["features"].as_object_mut().unwrap().remove("step_ms");
    fs::write(&path, lines(&recorded)).unwrap();
    let done = evaluate(&path, &[]);
    assert!(done.stderr.contains("rows.jsonl:4: `features.step_ms` is missing"), "{}", done.stderr);
}

#[test]
fn means_of_streams_that_go_on_are_learned_from_a_list_and_from_text() {
    let (folder, path) = folder("rows.jsonl", lines(&rows(120)));
    let (_, without) = figures(&path);
    let with = |as_cell: &dyn Fn(Value) -> Value| {
        let add = |mut row: Value| {
            let known_at_ms = row["decided_at_ms"].as_f64().unwrap() + 400.0;
            let list = json!([{"ms": 20.0, "known_at_ms": known_at_ms}]);
            row["itl_so_far"] = as_cell(list);
            row
        };
        rows(120).into_iter().map(add).collect::<Vec<_>>()
    };
    fs::write(&path, lines(&with(&|list| list))).unwrap();
    let (_, expected) = figures(&path);
    assert_ne!(expected, without);
    let as_text = with(&|list| json!(list.to_string()));
    let columns = columns(&as_text[0]);
    let csv_path = folder.path().join("rows.csv");
    let mut csv = csv::Writer::from_path(&csv_path).unwrap();
    csv.write_record(&columns).unwrap();
    for row in &as_text {
        let text = |name: &String| match cell(row, name) {
            Value::String(text) => text,
            number => number.to_string(),
        };
        csv.write_record(columns.iter().map(text)).unwrap();
    }
    csv.flush().unwrap();
    assert_eq!(figures(&csv_path).1, expected);
    let parquet_path = folder.path().join("rows.parquet");
    write_parquet(&parquet_path, &columns, &as_text);
    assert_eq!(figures(&parquet_path).1, expected);
}

#[test]
fn a_warm_up_is_kept_out_and_of_a_preempted_answer_only_its_first_token_counts() {
    let mut recorded = rows(200);
    recorded[100]["end"] = json!("warm-up");
    recorded[101]["end"] = json!("preempted");
    let (_folder, path) = folder("rows.jsonl", lines(&recorded));
    let (_, figures) = figures(&path);
    assert_eq!(figures["rows"]["kept_out"], json!({"warm-up": 1}));
    let judged = |target: &str| {
        let totals = figures["totals"].as_array().unwrap();
        let total = totals.iter().find(|total| total["target"] == target).unwrap();
        let warm_up = figures["rows"]["warm_up"][target].as_u64().unwrap();
        total["n"].as_u64().unwrap() + warm_up
    };
    assert_eq!((judged("ttft"), judged("itl")), (199, 198));
}

/// Names of the columns of a flat row.
fn columns(row: &Value) -> Vec<String> {
    let mut columns = Vec::new();
    for (name, value) in row.as_object().unwrap() {
        match value.as_object() {
            Some(inner) => columns.extend(inner.keys().map(|key| format!("{name}.{key}"))),
            None => columns.push(name.clone()),
        }
    }
    columns
}

fn cell(row: &Value, name: &str) -> Value {
    match name.split_once('.') {
        Some((outer, inner)) => row[outer][inner].clone(),
        None => row[name].clone(),
    }
}

fn write_parquet(path: &Path, columns: &[String], rows: &[Value]) {
    let kind = |name: &String| match cell(&rows[0], name) {
        Value::String(_) => format!("required binary {name} (string);"),
        _ => format!("required double {name};"),
    };
    let schema = format!("message rows {{ {} }}", columns.iter().map(kind).collect::<String>());
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for name in columns {
        let cells: Vec<_> = rows.iter().map(|row| cell(row, name)).collect();
        let mut column = group.next_column().unwrap().unwrap();
        if cells[0].is_string() {
            let texts: Vec<_> =
                cells.iter().map(|c| ByteArray::from(c.as_str().unwrap())).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        } else {
            let numbers: Vec<_> = cells.iter().map(|cell| cell.as_f64().unwrap()).collect();
            column.typed::<DoubleType>().write_batch(&numbers, None, None).unwrap();
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn a_bad_row_is_named_by_file_line_and_field() {
    let with = |field: &str, value: Value| {
        let mut recorded = rows(5);
        recorded[3][field] = value;
        recorded
    };
    let mut lacking = rows(5);
    lacking[3]["features"].as_object_mut().unwrap().remove("step_ms");
    let mut newer = rows(5);
    newer[3]["features"]["phase_of_moon"] = json!(0.5);
    for (rows, words) in [
        (lacking, "`features.step_ms` is missing"),
        (newer, "`features.phase_of_moon` is no feature that this program knows"),
        (with("itl_so_far", json!([{"ms": 9.0}])), "`itl_so_far` is no such list: missing field"),
        (with("itl_so_far", json!(7)), "`itl_so_far` is not a list"),
        (
            with("steps", json!([[-5.0, 9.0, 2.0, 900.0]])),
            "`steps` holds one that was known before",
        ),
        (
            with("steps", json!([[1e15, -9.0, 2.0, 900.0]])),
            "`steps` holds a value that is no number",
        ),
        (with("schema", json!(1)), "`schema` is 1, and this program reads 2"),
        (with("schema", json!(9)), "`schema` is 9, and this program reads 2"),
        (with("ttft_ms", json!(-3.0)), "`ttft_ms` is -3, which is no latency"),
        (with("ttft_ms", json!("soon")), "`ttft_ms` is `soon`, not a number"),
        (with("ttft_known_at_ms", json!(1.7e12)), "`ttft_known_at_ms` is before"),
        (with("end", json!("lost")), "`end` is `lost`"),
        (with("role", json!("all")), "`role` is `all`"),
        (with("model", Value::Null), "`model` is missing"),
    ] {
        let (_folder, path) = folder("rows.jsonl", lines(&rows));
        let done = evaluate(&path, &[]);
        assert_eq!(done.code, Some(1), "{words}");
        assert!(done.stderr.contains(&format!("rows.jsonl:4: {words}")), "{}", done.stderr);
    }
}

#[test]
fn a_file_that_holds_no_rows_is_refused() {
    let torn = format!("{}{{\"schema\":2,", lines(&rows(2)));
    for (text, words) in [
        ("", "rows.jsonl: no rows"),
        ("{\"a\": 1}\n", "rows.jsonl:1: neither a row recorded here"),
        ("when,what\n1,2\n", "rows.jsonl:2: neither a row recorded here"),
        (torn.as_str(), "rows.jsonl:3: not a JSON object"),
        (&lines(&rows(3)), "nothing to judge: 3 rows are too few"),
    ] {
        let (_folder, path) = folder("rows.jsonl", text);
        let done = evaluate(&path, &[]);
        assert_eq!(done.code, Some(1), "{words}");
        assert!(done.stderr.contains(words), "{}", done.stderr);
    }
    let done = evaluate(Path::new("no-such-rows"), &[]);
    assert!(done.stderr.contains("cannot read rows from `no-such-rows`"), "{}", done.stderr);
}

/// A row as llm-d's latency predictor keeps it: one latency each.
fn peer_row(at: u16) -> Value {
    let prompt = u32::from(at) * 37 % 900 + 100;
    let (ttft, tpot) =
        if at.is_multiple_of(2) { (20.0 + f64::from(prompt) / 20.0, 0.0) } else { (0.0, 9.5) };
    json!({
        "kv_cache_percentage": 0.25, "input_token_length": prompt, "num_request_waiting": 0,
        "num_request_running": at % 5, "num_tokens_generated": 0, "actual_ttft_ms": ttft,
        "actual_tpot_ms": tpot, "prefix_cache_score": 0.5, "prefill_tokens_in_flight": 0,
        "decode_tokens_in_flight": 0
    })
}

#[test]
fn rows_of_the_peer_are_judged_on_a_clock_of_rows() {
    let recorded: Vec<_> = (0..400).map(peer_row).collect();
    let (_folder, path) = folder("peer.jsonl", lines(&recorded));
    let (done, figures) = figures(&path);
    assert!(done.stdout.contains("The file tells no times"), "{}", done.stdout);
    assert_eq!(figures["rows"]["without_times"], true);
    assert_eq!(figures["groups"][0]["class"], "unknown/unknown/both");
    for total in figures["totals"].as_array().unwrap() {
        let judged = total["n"].as_u64().unwrap();
        assert!((100..=180).contains(&judged), "{total}");
    }
    let mut bad = recorded;
    bad[10]["kv_cache_percentage"] = json!(31.0);
    let (_folder, path) = folder("peer.jsonl", lines(&bad));
    let done = evaluate(&path, &[]);
    let words = "peer.jsonl:11: `kv_cache_percentage` is 31, not in 0..=1";
    assert!(done.stderr.contains(words), "{}", done.stderr);
}

#[test]
fn a_simulated_pool_is_judged_as_its_recorded_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let simulate = |rows: &str, json: &str| {
        let done = run([
            "evaluate",
            "--simulate",
            "drift",
            "--requests",
            "600",
            "--seed",
            "3",
            "--record",
            rows,
            "--json",
            json,
        ]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        fs::read_to_string(json).unwrap()
    };
    let first = simulate(&at("a.jsonl"), &at("a.json"));
    assert_eq!(simulate(&at("b.jsonl"), &at("b.json")), first);
    let simulated: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(simulated["rows"]["read"], 600);
    assert!(simulated["source"].as_str().unwrap().contains("azure-conversation"));
    let windows = simulated["around_change"].as_array().unwrap();
    assert!(windows.iter().any(|window| window["to_s"] == 50.0 && window["n"].as_u64() > Some(0)));
    let (_, recorded) = figures(&folder.path().join("a.jsonl"));
    assert_eq!(recorded["totals"], simulated["totals"]);
    // Slower engines show in what came.
    let class = |target: &str| {
        let timeline = simulated["timeline"].as_array().unwrap();
        let of = timeline.iter().filter(|s| s["target"] == target);
        of.map(|s| s["observed_p50_ms"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert!(class("itl").iter().all(|ms| ms.is_finite() && *ms > 0.0));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let (folder, path) = folder("rows.jsonl", lines(&rows(200)));
    let html = folder.path().join("report.html");
    let done = evaluate(&path, &["--html", html.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let page = fs::read_to_string(html).unwrap();
    for foreign in ["<script", " src=", " href=", "url(", "@import", "<link"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let addresses: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    assert!(addresses.iter().all(|a| a.starts_with("http://www.w3.org/")), "{addresses:?}");
    assert_eq!(page.matches("<svg").count(), 3);
    for words in [
        "Time to first token (TTFT) of m&lt;1&gt;/A100/both",
        "Mean time between tokens (ITL) of",
        "Calibration",
        "milliseconds, logarithmic",
        "time, seconds",
        "predicted p90",
        "coverage p50",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("m<1>"));
}

#[test]
fn learners_are_chosen_by_name() {
    let (_folder, path) = folder("rows.jsonl", lines(&rows(200)));
    let done = evaluate(&path, &["--learners", "rls,elastic-net"]);
    assert!(
        done.stdout.contains("elastic-net")
            && !["mean ", "twin", "endpoint-rls"].iter().any(|other| done.stdout.contains(other)),
        "{}",
        done.stdout
    );
    let done = evaluate(&path, &["--learners", "rls,twin"]);
    assert!(done.stdout.contains("twin") && !done.stdout.contains("overload"), "{}", done.stdout);
    let done = evaluate(&path, &["--learners", "rls,oracle"]);
    assert!(done.stderr.contains("`oracle`"), "{}", done.stderr);
    let done = evaluate(&path, &["--learners", "elastic-net"]);
    assert!(done.stderr.contains("name one of mean, rls too"), "{}", done.stderr);
}

#[test]
fn a_result_that_cannot_be_written_is_refused_first() {
    let (_folder, path) = folder("rows.jsonl", lines(&rows(2)));
    let done = evaluate(&path, &["--json", "no-such-folder/figures.json"]);
    assert!(done.stderr.contains("there is no folder `no-such-folder`"), "{}", done.stderr);
}
