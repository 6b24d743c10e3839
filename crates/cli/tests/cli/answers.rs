//! Answers for programs: JSON and exit codes.

use std::process::Stdio;

use super::{check, command, json, tonnage};

#[test]
fn json_is_a_golden_document() {
    check("json", &["estimate", "job.toml", "--json", "--top=3"]);
}

#[test]
fn json_adds_up() {
    let answer = json(&["estimate", "qwen2.5-0.5b", "-b", "4", "--precision", "bf16", "--json"]);
    assert_eq!(answer["version"], 1);
    let number = |key: &str| answer[key].as_u64().unwrap();
    let categories = answer["bytes_by_category_at_peak"].as_object().unwrap();
    let sum: u64 = categories.values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(sum + number("unsplit_bytes_at_peak"), number("peak_allocated_bytes"));
    let modules = answer["bytes_by_module_at_peak"].as_object().unwrap();
    assert_eq!(modules.values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), sum);
    let peak = answer["peak_phase"].as_str().unwrap();
    assert_eq!(answer["peak_per_phase"][peak], answer["peak_allocated_bytes"]);
    assert_eq!(
        number("total_bytes"),
        number("peak_reserved_bytes") + answer["context_bytes"]["high"].as_u64().unwrap()
    );
    assert_eq!(answer["largest_live_at_peak"].as_array().unwrap().len(), 10);
}

#[test]
fn the_timeline_rises_to_the_peak() {
    let answer = json(&["estimate", "job.toml", "--json", "--timeline"]);
    let points = answer["timeline"]["points"].as_array().unwrap();
    let highest = points.iter().map(|point| point["allocated_bytes"].as_u64().unwrap()).max();
    assert_eq!(highest, answer["peak_allocated_bytes"].as_u64());
}

#[test]
fn compared_variants_are_the_single_answers() {
    let compared = json(&["estimate", "job.toml", "--json", "--compare", "micro_batch_size=8,24"]);
    let single = json(&["estimate", "job.toml", "--json", "-b", "8"]);
    let first = &compared["compare"][0];
    assert_eq!(first["changes"]["micro_batch_size"], "8");
    assert_eq!(first["estimate"]["peak_reserved_bytes"], single["peak_reserved_bytes"]);
}

#[test]
fn exit_codes_say_whether_it_fits() {
    let code = |args: &[&str]| tonnage(args).status.code();
    assert_eq!(code(&["estimate", "job.toml", "-q"]), Some(0));
    assert_eq!(code(&["estimate", "job.toml", "-q", "--gpu", "8GiB"]), Some(1));
    assert_eq!(code(&["estimate", "job.toml", "-q", "--compare", "micro_batch_size=24,1", "--gpu", "8GiB"]), Some(0));
    assert_eq!(code(&["estimate", "job.toml", "-q", "--compare", "micro_batch_size=24,20", "--gpu", "2GiB"]), Some(1));
    assert_eq!(code(&["estimate"]), Some(2));
    assert_eq!(code(&["estimate", "--nonsense"]), Some(2));
    assert!(tonnage(&["estimate", "job.toml", "-q"]).stdout.is_empty());
}

#[test]
fn small_gpt_flags_and_fields_reach_the_model() {
    let parameters = |args: &[&str]| json(&[&["estimate", "--json"], args].concat())["model"]["param_count"].clone();
    let sizes = ["--model-layer=6", "--model-head=6", "--model-embd=384", "--model-positions=512", "-s", "64"];
    let lilwill = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lilwill.toml");
    assert_eq!(parameters(&sizes), parameters(&[lilwill]));
    assert_eq!(
        parameters(&["gpt2", "--set", "model.n_layer=24", "-s", "8"]),
        parameters(&["gpt2", "--model-layer=24", "-s", "8"])
    );
}

#[test]
fn every_example_has_an_answer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let jobs: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    assert!(jobs.len() >= 5);
    for job in jobs {
        let answer = json(&["estimate", job.to_str().unwrap(), "--json"]);
        assert!(answer["peak_reserved_bytes"].as_u64().unwrap() > 1 << 25, "{}", job.display());
    }
}

#[test]
fn values_may_follow_their_flag_after_a_space() {
    let answer = json(&["estimate", "gpt2", "-s", "16", "--json", "--top", "3"]);
    assert_eq!(answer["largest_live_at_peak"].as_array().unwrap().len(), 3);
    let screen = String::from_utf8(tonnage(&["estimate", "gpt2", "-s", "16", "--top", "3"]).stdout).unwrap();
    assert!(screen.contains("12 ×") && screen.contains("transformer.h.*.mlp.c_fc"), "{screen}");
}

#[test]
fn a_comparison_names_what_all_share() {
    let head = |list: &str| {
        let screen = tonnage(&["estimate", "gpt2", "-s", "16", "--gpu", "t4", "--compare", list]).stdout;
        String::from_utf8(screen).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(head("precision=fp32,fp16"), "openai-community/gpt2 on NVIDIA T4, by precision");
    assert_eq!(head("gpu=l4,t4"), "openai-community/gpt2, by gpu");
    assert_eq!(head("model=gpt2,distilgpt2"), "models on NVIDIA T4, by model");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for args in [&["models"][..], &["schema"], &["completions", "bash"], &["man", "estimate"], &["estimate", "gpt2"]] {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_guides_formula_stands_beside_the_estimate() {
    let lilwill = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lilwill.toml");
    let answer = json(&["estimate", lilwill, "--legacy", "--json"]);
    let legacy = answer["legacy"].as_object().unwrap();
    assert_eq!(legacy["param_count"], 30_116_736);
    let parts = legacy.iter().filter(|(name, _)| !matches!(name.as_str(), "param_count" | "total_bytes"));
    assert_eq!(parts.map(|(_, bytes)| bytes.as_u64().unwrap()).sum::<u64>(), legacy["total_bytes"].as_u64().unwrap());
    assert!(answer["total_bytes"].as_u64().unwrap() > 30 * legacy["total_bytes"].as_u64().unwrap());
    assert!(json(&["estimate", lilwill, "--json"]).get("legacy").is_none());
    let refused = tonnage(&["estimate", "qwen2.5-0.5b", "--legacy"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn keys_and_trace_comparisons_are_json_too() {
    let keys = json(&["keys", "optimizer", "--json"]);
    assert!(keys["keys"][0]["choices"].as_array().unwrap().iter().any(|choice| choice == "adamw_fused"));
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/timelines/mini_b24_s512_fp32_sdpa.jsonl.gz");
    let model = ["n_embd=384", "n_layer=6", "n_head=6", "n_positions=512"].map(|field| format!("--set=model.{field}"));
    let model: Vec<&str> = model.iter().map(String::as_str).collect();
    let mini = |rows: &str| {
        let job = [
            &["trace", "compare", "gpt2"][..],
            &model,
            &["-b", rows, "-s", "512", "--gpu", "h200", "--framework=loop", "--use-cache=false", "--json", recorded],
        ];
        let output = command(&job.concat()).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    assert!(mini("24")["first_difference"].is_null());
    assert_eq!(mini("8")["first_difference"]["kind"], "allocation differs in bytes");
}

/// An environment with transformers in it, as pip lays it out.
fn environment(name: &str, version: &str) -> std::path::PathBuf {
    let root = std::env::temp_dir().join(format!("tonnage-{name}-{}", std::process::id()));
    let site = root.join("lib/python3.11/site-packages");
    std::fs::create_dir_all(site.join(format!("transformers-{version}.dist-info"))).expect("a folder");
    root
}

#[test]
fn the_installed_transformers_decides_where_nobody_says() {
    let estimate = |environment: &std::path::Path, more: &[&str]| {
        let args = [&["estimate", "gpt2", "-b", "2", "-s", "64", "--gpu", "l4"], more].concat();
        let output = command(&args).env("VIRTUAL_ENV", environment).output().expect("the binary runs");
        String::from_utf8(output.stdout).expect("text")
    };
    let active = environment("active", "4.48.1");
    let place = format!("installed in {}", active.display());
    let answer = estimate(&active, &["--json"]);
    assert!(answer.contains(&place) && answer.contains("\"value\": \"4.48\""), "{answer}");
    assert!(estimate(&active, &[]).contains("transformers 4.48 "), "the answer says it");
    let said = estimate(&active, &["--transformers", "4.57", "--json"]);
    assert!(said.contains("flag --transformers") && !said.contains(&place), "{said}");
    let old = environment("old", "4.20.0");
    assert!(estimate(&old, &["--json"]).contains("transformers 4.20.0 in"), "what is not simulated is said");
    for folder in [active, old] {
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
