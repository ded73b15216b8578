//! Pages of engines, by version: what is known after reading one, and what stays unknown.

#![expect(clippy::unwrap_used, reason = "a broken fixture should fail loudly")]

use datalayer::{Engine, MAX_LABEL_BYTES, MAX_PAGE_BYTES, Page, PageError, Snapshot, read_page};
use proptest::prelude::*;

const IDLE: &[u8] = include_bytes!("fixtures/vllm-0.32-idle.txt");
const LOADED: &[u8] = include_bytes!("fixtures/vllm-0.32-loaded.txt");

fn page(text: &str) -> Page {
    read_page(None, text.as_bytes()).unwrap()
}

fn snapshot(text: &str) -> Snapshot {
    page(text).snapshot
}

fn known(running: u32, waiting: u32, kv: f32) -> Snapshot {
    let (running, waiting, kv_utilization) = (Some(running), Some(waiting), Some(kv));
    Snapshot { running, waiting, kv_utilization, ..Snapshot::default() }
}

fn with_blocks(snapshot: Snapshot, tokens: u32, blocks: u32) -> Snapshot {
    Snapshot { kv_block_tokens: Some(tokens), kv_blocks: Some(blocks), ..snapshot }
}

#[test]
fn the_captured_pages_of_vllm_0_32_are_read() {
    let idle = read_page(None, IDLE).unwrap();
    assert_eq!(idle.engine, Engine::Vllm);
    let unhurt = |snapshot| Snapshot { preemptions: Some(0), ..snapshot };
    assert_eq!(idle.snapshot, unhurt(with_blocks(known(0, 0, 0.0), 32, 16384)));
    let loaded = read_page(Some(Engine::Vllm), LOADED).unwrap();
    assert_eq!(loaded.snapshot, unhurt(with_blocks(known(16, 8, 0.026_857_108), 32, 16384)));
    assert_eq!((loaded.kv_suspect, loaded.asleep), (false, false));
    assert_eq!(loaded.snapshot.kv_capacity_tokens(), Some(524_288));
}

#[test]
fn vllm_v0_has_the_old_name_and_perhaps_no_block_count() {
    let text = "vllm:num_requests_running{model_name=\"m\"} 3.0\n\
        vllm:num_requests_swapped{model_name=\"m\"} 9.0\n\
        vllm:num_requests_waiting{model_name=\"m\"} 1.0\n\
        vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\n\
        vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n";
    assert_eq!(snapshot(text), Snapshot { kv_block_tokens: Some(16), ..known(3, 1, 0.25) });
}

#[test]
fn of_both_kv_names_the_new_one_counts_in_any_order() {
    let old = "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.9\n";
    let new = "vllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n";
    for text in [format!("{old}{new}"), format!("{new}{old}")] {
        assert_eq!(snapshot(&text).kv_utilization, Some(0.1));
    }
    let unknown = format!("{old}vllm:kv_cache_usage_perc{{engine=\"0\"}} NaN\n");
    assert_eq!(snapshot(&unknown).kv_utilization, None);
}

#[test]
fn engines_on_one_page_add_up_and_the_fullest_cache_counts() {
    let text = "vllm:num_requests_running{engine=\"0\"} 3\n\
        vllm:num_requests_running{engine=\"1\"} 4\n\
        vllm:num_requests_waiting{engine=\"0\"} 0\n\
        vllm:num_requests_waiting{engine=\"1\"} 2\n\
        vllm:num_requests_waiting_by_reason{engine=\"1\",reason=\"capacity\"} 2\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n\
        vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"120\"} 1\n";
    assert_eq!(snapshot(text), with_blocks(known(7, 2, 0.75), 16, 220));
}

#[test]
fn a_kv_value_that_one_api_server_never_set_does_not_hide_the_other() {
    let text = "vllm:kv_cache_usage_perc{engine=\"0\",pid=\"11\"} 0.4\n\
        vllm:kv_cache_usage_perc{engine=\"0\",pid=\"12\"} 0.0\n";
    assert_eq!(snapshot(text).kv_utilization, Some(0.4));
}

#[test]
fn an_engine_that_sleeps_is_unknown_and_not_idle() {
    let sleep = |engine: u32, awake: u32| {
        format!(
            "vllm:num_requests_running{{engine=\"{engine}\"}} 0\n\
             vllm:num_requests_waiting{{engine=\"{engine}\"}} 0\n\
             vllm:kv_cache_usage_perc{{engine=\"{engine}\"}} 0\n\
             vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"100\"}} 1\n\
             vllm:engine_sleep_state{{engine=\"{engine}\",sleep_state=\"awake\"}} {awake}\n\
             vllm:engine_sleep_state{{engine=\"{engine}\",sleep_state=\"discard_all\"}} {}\n",
            1 - awake
        )
    };
    let all = page(&sleep(0, 0));
    assert!(all.asleep);
    assert_eq!(all.snapshot, Snapshot::default());
    let some = page(&(sleep(0, 0) + &sleep(1, 1)));
    assert!(!some.asleep);
    assert_eq!(some.snapshot, Snapshot { kv_block_tokens: Some(16), ..known(0, 0, 0.0) });
}

#[test]
fn the_block_size_in_use_is_taken_and_never_guessed() {
    let info = |labels: &str| snapshot(&format!("vllm:cache_config_info{{{labels}}} 1.0\n"));
    let hybrid = "block_size=\"16\",effective_attention_block_size=\"528\",num_gpu_blocks=\"10\"";
    assert_eq!(info(hybrid).kv_block_tokens, Some(528));
    let differ = "block_size=\"16\",effective_attention_block_size=\"None\",num_gpu_blocks=\"10\"";
    assert_eq!(info(differ).kv_block_tokens, None);
    assert_eq!(info(differ).kv_blocks, Some(10));
    let two = "vllm:cache_config_info{block_size=\"16\"} 1\nvllm:cache_config_info{block_size=\"32\"} 1\n";
    assert_eq!(snapshot(two).kv_block_tokens, None);
}

#[test]
fn preemptions_are_counted_under_the_names_of_each_engine() {
    let preemptions = |text: &str| snapshot(text).preemptions;
    let vllm = "vllm:num_preemptions_total{engine=\"0\"} 3.0\n\
        vllm:num_preemptions_created{engine=\"0\"} 1.7e+09\n\
        vllm:num_preemptions_total{engine=\"1\"} 4.0\n";
    assert_eq!(preemptions(vllm), Some(7));
    for name in ["num_retracted_reqs_total", "num_retracted_requests_total"] {
        assert_eq!(preemptions(&format!("sglang:{name}{{tp_rank=\"0\"}} 5.0\n")), Some(5));
    }
    // A gauge of the last step is no count.
    assert_eq!(preemptions("sglang:num_running_reqs 1\nsglang:num_retracted_reqs 2\n"), None);
    assert_eq!(preemptions("vllm:num_requests_running 1\n"), None);
}

#[test]
fn a_kv_value_above_one_is_suspect_and_unknown() {
    let suspect = page("vllm:kv_cache_usage_perc 42.0\nvllm:num_requests_running 1\n");
    assert_eq!(suspect.snapshot.kv_utilization, None);
    assert_eq!(suspect.snapshot.running, Some(1));
    assert!(suspect.kv_suspect);
    assert!(!page("vllm:kv_cache_usage_perc 1.0\n").kv_suspect);
}

#[test]
fn names_of_ray_nim_and_openmetrics_are_vllm_too() {
    for prefix in ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_", ""] {
        let text = format!(
            "# TYPE vllm:num_requests_running gauge\n\
             {prefix}num_requests_running{{ReplicaId=\"r\"}} 2\n\
             {prefix}num_requests_waiting{{ReplicaId=\"r\"}} 1\n\
             {prefix}gpu_cache_usage_perc{{ReplicaId=\"r\"}} 0.5\n"
        );
        assert_eq!(page(&text).engine, Engine::Vllm, "{prefix}");
        assert_eq!(snapshot(&text), known(2, 1, 0.5), "{prefix}");
    }
    let twice = "vllm:num_requests_running 2\nvllm_num_requests_running 2\n";
    assert_eq!(snapshot(twice).running, Some(2), "a second spelling counts nothing twice");
}

#[test]
fn sglang_ranks_add_up_and_their_tensor_parallel_copies_do_not() {
    let series = |dp: u32, tp: u32| {
        let (running, waiting) = (3 + dp, dp);
        let labels = format!("dp_rank=\"{dp}\",model_name=\"m\",tp_rank=\"{tp}\"");
        format!(
            "sglang:num_running_reqs{{{labels}}} {running}.0\n\
             sglang:num_queue_reqs{{{labels}}} {waiting}.0\n\
             sglang:token_usage{{{labels}}} 0.{running}\n\
             sglang:page_size{{{labels}}} 64\nsglang:num_pages{{{labels}}} 1000\n"
        )
    };
    let text: String = (0..8).map(|copy| series(copy / 4, copy % 4)).collect();
    assert_eq!(page(&text).engine, Engine::Sglang);
    assert_eq!(snapshot(&text), with_blocks(known(7, 1, 0.4), 64, 2000));
}

#[test]
fn sglang_counts_the_total_of_priorities_once() {
    let text = "sglang:num_running_reqs{priority=\"\",tp_rank=\"0\"} 5\n\
        sglang:num_running_reqs{priority=\"1\",tp_rank=\"0\"} 2\n\
        sglang:num_running_reqs{priority=\"9\",tp_rank=\"0\"} 3\n\
        sglang:num_queue_reqs{priority=\"\",tp_rank=\"0\"} 1\n\
        sglang:num_queue_reqs{priority=\"1\",tp_rank=\"0\"} 1\n";
    let snapshot = snapshot(text);
    assert_eq!((snapshot.running, snapshot.waiting), (Some(5), Some(1)));
}

#[test]
fn sglang_tells_its_cache_by_version() {
    let load = "sglang:num_running_reqs{model_name=\"m\"} 1\nsglang:num_queue_reqs{model_name=\"m\"} 0\n\
        sglang:token_usage{model_name=\"m\"} 0.28\nsglang:utilization{model_name=\"m\"} -1\n";
    assert_eq!(snapshot(load), known(1, 0, 0.28));
    let info = format!("{load}sglang:cache_config_info{{page_size=\"1\",num_pages=\"900\"}} 1.0\n");
    assert_eq!(snapshot(&info), with_blocks(known(1, 0, 0.28), 1, 900));
    let gauges = format!("{load}sglang:page_size 64\nsglang:num_pages 1.024e+06\n");
    assert_eq!(snapshot(&gauges), with_blocks(known(1, 0, 0.28), 64, 1_024_000));
}

#[test]
fn requests_that_wait_for_their_kv_on_a_decode_worker_of_sglang_wait() {
    let text = "sglang:num_queue_reqs{engine_type=\"decode\"} 1\n\
        sglang:num_decode_prealloc_queue_reqs{engine_type=\"decode\"} 2\n\
        sglang:num_decode_transfer_queue_reqs{engine_type=\"decode\"} 4\n";
    assert_eq!(snapshot(text).waiting, Some(7));
}

#[test]
fn trtllm_serve_is_read_where_it_tells_its_load() {
    let body = |prefix: &str| {
        format!(
            "{prefix}num_requests_running{{engine_type=\"undefined\"}} 2\n\
             {prefix}num_requests_waiting{{engine_type=\"undefined\"}} 3\n\
             {prefix}kv_cache_utilization 0.5\n{prefix}kv_cache_tokens_per_block 32\n\
             {prefix}kv_cache_max_blocks 1000\n"
        )
    };
    let want = with_blocks(known(2, 3, 0.5), 32, 1000);
    assert_eq!(page(&body("trtllm_")).engine, Engine::TrtllmServe);
    assert_eq!(snapshot(&body("trtllm_")), want);
    let labelled = read_page(Some(Engine::TrtllmServe), body("").as_bytes()).unwrap();
    assert_eq!((labelled.engine, labelled.snapshot), (Engine::TrtllmServe, want));
    let v1_0 = "trtllm_request_success_total{model_name=\"undefined\"} 5\n";
    assert_eq!(read_page(None, v1_0.as_bytes()), Err(PageError::NoSeries));
}

#[test]
fn triton_of_2024_gives_used_and_max_and_no_waiting() {
    let text = "nv_inference_exec_count{model=\"m\"} 900\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"active\",version=\"1\"} 5\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 64\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 4\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"context\",version=\"1\"} 1\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\"} 64\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\"} 25\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"free\",model=\"m\"} 75\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\"} 100\n";
    let want = Snapshot { waiting: None, ..with_blocks(known(4, 0, 0.25), 64, 100) };
    assert_eq!(page(text).engine, Engine::Triton);
    assert_eq!(snapshot(text), want);
    let of_2025 = format!(
        "{text}nv_trt_llm_request_metrics{{model=\"m\",request_type=\"waiting\"}} 6\n\
         nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"fraction\",model=\"m\"}} 0.2525\n"
    );
    assert_eq!(snapshot(&of_2025), with_blocks(known(4, 6, 0.2525), 64, 100));
}

#[test]
fn vllm_behind_triton_is_found_by_its_names() {
    let text = "nv_inference_exec_count{model=\"m\"} 7\nnv_inference_pending_request_count{model=\"m\"} 5\n\
        vllm:num_requests_running{model=\"m\"} 1\nvllm:gpu_cache_usage_perc{model=\"m\"} 0.5\n";
    assert_eq!(page(text).engine, Engine::Vllm);
    assert_eq!(Engine::from_label("triton"), None);
}

#[test]
fn tgi_and_llama_cpp_tell_what_they_tell() {
    let tgi =
        page("tgi_batch_current_size 3\ntgi_queue_size 2\ntgi_request_count{method=\"x\"} 8\n");
    assert_eq!(tgi.engine, Engine::Tgi);
    assert_eq!(tgi.snapshot, Snapshot { kv_utilization: None, ..known(3, 2, 0.0) });
    let llama = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n";
    assert_eq!(snapshot(llama), Snapshot { kv_utilization: None, ..known(1, 4, 0.0) });
    let old = format!("{llama}llamacpp:kv_cache_usage_ratio 0.125\n");
    assert_eq!(page(&old).engine, Engine::LlamaCpp);
    assert_eq!(snapshot(&old), known(1, 4, 0.125));
}

#[test]
fn any_writing_of_a_sample_is_read() {
    for line in [
        "vllm:num_requests_running 16",
        "vllm:num_requests_running{} 16",
        "vllm:num_requests_running 1.6e+01 1712345678901",
        "vllm:num_requests_running{a=\"b\",} 16.0",
        "vllm:num_requests_running{ a = \"b\" , c=\"d\" } 16 # {trace_id=\"x\"} 0.5 1.0",
        "vllm:num_requests_running{model_name=\"a{b}c, d=\\\"e\\\" 3\\\\\",engine=\"0\"} 16",
        "  vllm:num_requests_running\t16\t",
        "vllm:num_requests_running{model_name=\"naïve ✓\"} 16",
    ] {
        for end in ["", "\n", "\r\n"] {
            let text = format!("# HELP x y\r\n\n{line}{end}");
            assert_eq!(snapshot(&text).running, Some(16), "{text:?}");
        }
    }
}

#[test]
fn what_is_no_number_is_unknown() {
    for value in ["NaN", "Nan", "nan", "+Inf", "-Inf", "-1", "9e99"] {
        let page = page(&format!("vllm:num_requests_running{{engine=\"0\"}} {value}\n"));
        assert_eq!(page.snapshot.running, None, "{value}");
        let text = format!("vllm:num_requests_running 2\nvllm:num_requests_running {value}\n");
        assert_eq!(snapshot(&text).running, None, "a sum with a part unknown: {value}");
    }
    for broken in ["", "x", "{a=\"b\" 1", "{a} 1", "{a=b} 1", "{a=\"b\"}", "{a=\"b\\\"} 1"] {
        let text = format!("vllm:num_requests_running {broken}\nvllm:num_requests_waiting 2\n");
        assert_eq!(snapshot(&text).running, None, "{broken}");
        assert_eq!(snapshot(&text).waiting, Some(2), "{broken}");
    }
}

#[test]
fn a_page_without_data_is_not_an_idle_engine() {
    for text in ["", "\n", "[]", "{\"detail\":\"Unauthorized\"}", "go_goroutines 7\n", "# only\n"] {
        assert_eq!(read_page(None, text.as_bytes()), Err(PageError::NoSeries), "{text}");
    }
    let other = read_page(Some(Engine::Sglang), LOADED);
    assert_eq!(other, Err(PageError::NoSeries), "a label that names another engine finds nothing");
}

#[test]
fn limits_are_named() {
    let huge = vec![b'#'; MAX_PAGE_BYTES + 1];
    assert_eq!(read_page(None, &huge), Err(PageError::TooLarge));
    assert_eq!(read_page(None, &[0x1f, 0x8b, 8, 0]), Err(PageError::Compressed));
    let long = "x".repeat(7 << 20);
    let elsewhere = format!("other{{a=\"{long}\"}} 1\nvllm:num_requests_running 1\n");
    assert_eq!(
        snapshot(&elsewhere).running,
        Some(1),
        "a long label that does not matter is passed"
    );
    let matters = format!("# x\nvllm:num_requests_running{{a=\"{long}\"}} 1\n");
    let error = read_page(None, matters.as_bytes()).unwrap_err();
    assert_eq!(error, PageError::LabelTooLong { line: 2 });
    assert_eq!(error.to_string(), format!("label on line 2 has more than {MAX_LABEL_BYTES} bytes"));
}

#[test]
fn an_endpoint_may_name_its_engine() {
    let engine = |labels: &[(&str, &str)]| {
        Engine::of(&types::Endpoint {
            id: types::EndpointId::new("default", "a"),
            address: "h:1".parse().unwrap(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        })
    };
    assert_eq!(engine(&[]), None);
    assert_eq!(engine(&[("llm-d.ai/engine-type", "sglang")]), Some(Engine::Sglang));
    let alias = ("inference.networking.k8s.io/engine-type", "trtllm-serve");
    assert_eq!(engine(&[alias]), Some(Engine::TrtllmServe));
    assert_eq!(engine(&[alias, ("llm-d.ai/engine-type", "vllm")]), Some(Engine::Vllm));
    assert_eq!(engine(&[("llm-d.ai/engine-type", "novel")]), None, "the page tells");
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _any = read_page(None, &bytes);
        let mut named = b"vllm:cache_config_info{".to_vec();
        named.extend(&bytes);
        let _any = read_page(None, &named);
    }

    #[test]
    fn no_damage_to_a_page_breaks_the_reader(
        cuts in proptest::collection::vec((0..LOADED.len(), any::<u8>()), 1..40),
        length in 0..LOADED.len(),
    ) {
        let mut page = LOADED.to_vec();
        for (at, byte) in cuts {
            page[at] = byte;
        }
        page.truncate(length);
        if let Ok(page) = read_page(None, &page) {
            prop_assert!(page.snapshot.kv_utilization.is_none_or(|kv| (0.0..=1.0).contains(&kv)));
        }
    }
}
