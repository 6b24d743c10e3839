//! Jobs that name no GPU: sizes and the GPUs that carry them, never a verdict about one that nobody named.

use std::path::Path;

use serde_json::Value;

use super::{command, folder, json, tonnage};

fn text(args: &[&str]) -> (Option<i32>, String) {
    let output = tonnage(args);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

const SMALL: [&str; 5] = ["gpt2", "-b", "1", "-s", "128"];

#[test]
fn the_answer_is_sizes_and_who_carries_them() {
    let (code, screen) = text(&[&["estimate"][..], &SMALL].concat());
    assert_eq!(code, Some(0));
    assert!(screen.contains("no GPU was named") && screen.contains("fits from:"), "{screen}");
    assert!(screen.contains(" 8 GB  RTX 3070, RTX 4060") && screen.contains("larger ones of the catalog"), "{screen}");
    assert!(!screen.contains("usable") && !screen.contains("does not fit") && !screen.contains("judged"), "{screen}");
    let answer = json(&[&["estimate", "--json"][..], &SMALL].concat());
    for key in ["verdict", "gpu", "usable_bytes", "headroom_bytes", "out_of_memory", "num_alloc_retries", "room"] {
        assert!(answer[key].is_null(), "{key}: {}", answer[key]);
    }
    assert!(answer["gpus"][0]["verdict"].is_null() && answer["processes"][0]["verdict"].is_null());
    assert_eq!((&answer["sizes_as_on"]["id"], &answer["fits_from"][0]["gpu"]), (&"h100".into(), &"rtx-3070".into()));
    let named = json(&[&["estimate", "--json", "--gpu", "rtx-3070"][..], &SMALL].concat());
    assert_eq!(answer["fits_from"][0]["total_bytes"], named["total_bytes"], "each GPU is asked for itself");
    assert!(named.get("fits_from").is_none() && named["verdict"] == "fits");
}

#[test]
fn what_no_gpu_carries_says_so_and_how_to_go_on() {
    let large = ["estimate", "llama-3.1-70b", "-b", "1", "-s", "128"];
    let (code, screen) = text(&large);
    assert_eq!(code, Some(1));
    assert!(screen.contains("fits none of the") && screen.contains("tonnage plan llama-3.1-70b"), "{screen}");
    let answer = tonnage(&[&large[..], &["--json"]].concat());
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&answer["verdict"], &answer["fits_from"]), (&Value::Null, &Value::Array(Vec::new())));
}

#[test]
fn a_gate_needs_a_gpu() {
    for gate in [&["-q"][..], &["--fail-on", "tight"], &["-q", "--compare", "precision=fp32,bf16"]] {
        let (code, said) = text(&[&["estimate"][..], &SMALL, gate].concat());
        assert!(code == Some(2) && said.contains("no GPU is named") && said.contains("--gpu live"), "{gate:?}: {said}");
    }
    let (code, _) = text(&[&["estimate", "-q", "--gpu", "t4"][..], &SMALL].concat());
    assert_eq!(code, Some(0));
}

#[test]
fn variants_say_the_smallest_that_carries_them() {
    let compared = ["--compare", "precision=fp32,bf16"];
    let (code, screen) = text(&[&["estimate", "gpt2"][..], &compared].concat());
    assert_eq!(code, Some(0));
    assert!(screen.contains("fits from") && screen.contains("RTX A4500") && screen.contains("RTX 3060"), "{screen}");
    // Values of `gpu` name it.
    let (_, named) = text(&["estimate", "gpt2", "--compare", "gpu=l4,t4"]);
    assert!(named.contains("verdict") && !named.contains("fits from"), "{named}");
}

#[test]
fn what_needs_a_gpu_asks_for_one() {
    let job = [&SMALL[..], &["--max-steps", "10"]].concat();
    for command in ["plan", "cost"] {
        let (code, said) = text(&[&[command][..], &job].concat());
        assert!(code == Some(2) && said.contains("no GPU is named"), "{command}: {said}");
        assert!(said.contains("--gpu live") && said.lines().count() == 2, "{command}: {said}");
    }
    for command in ["run", "probe"] {
        let (code, said) = text(&[&[command][..], &job, &["--", "true"]].concat());
        assert!(code == Some(2) && said.contains("no GPU is named"), "{command}: {said}");
    }
    let (code, said) = text(&[&["plan", "--gpus", "l4,t4"][..], &job].concat());
    assert_eq!(code, Some(0), "a search brings its own: {said}");
}

#[test]
fn a_fit_table_without_a_gpu_is_of_the_catalog() {
    let table = json(&[&["fit", "--no-largest", "--json"][..], &SMALL].concat());
    let catalog = json(&["gpus", "--json"]);
    let count = |list: &Value| list.as_array().unwrap().len();
    assert_eq!(count(&table["gpus"]), count(&catalog["gpus"]));
}

/// The command's answer with a scripted NVML in the place of the driver's.
fn on_machine(script: &Path, args: &[&str]) -> Value {
    let test = std::env::current_exe().unwrap();
    let mut command = command(args);
    command.env("TONNAGE_NVML_LIBRARY", test.parent().unwrap().join("libtonnage_phantom.so"));
    command.env("TONNAGE_NVML_SCRIPT", script).env("TONNAGE_NVML_SPEED", "0").env("TONNAGE_PHANTOM_QUIET", "1");
    let output = command.env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_gpu_outside_the_catalog_is_taken_as_nvml_tells() {
    let script = std::env::temp_dir().join(format!("tonnage-live-{}.jsonl", std::process::id()));
    let device = r#"{"driver": "580.95.05", "cuda": 13000}
{"t": 0, "device": 0, "name": "NVIDIA GeForce RTX 3050", "compute_capability": "8.6", "cores": 2560, "total": 8589934592, "used": 0}
"#;
    std::fs::write(&script, device).unwrap();
    let answer = on_machine(&script, &[&["estimate", "--json", "--gpu", "live"][..], &SMALL].concat());
    std::fs::write(&script, device.replace("\"cores\": 2560, ", "")).unwrap();
    let without = on_machine(&script, &[&["estimate", "--json", "--gpu", "live"][..], &SMALL].concat());
    std::fs::remove_file(&script).unwrap();
    assert_eq!(
        (&answer["gpu"]["name"], &answer["gpu"]["multiprocessors"]),
        (&"NVIDIA GeForce RTX 3050".into(), &20.into())
    );
    assert_eq!((&answer["gpu"]["compute_capability"], &answer["verdict"]), (&"8.6".into(), &"fits".into()));
    let usable = answer["gpu"]["usable_bytes"].as_u64().unwrap();
    assert!((7 << 30..8_u64 << 30).contains(&usable), "{usable}");
    assert!(answer["caveats"].to_string().contains("is not in the catalog"), "{}", answer["caveats"]);
    assert!(without["caveats"].to_string().contains("taken as 132"), "{}", without["caveats"]);
}

#[test]
fn this_machines_gpu_is_taken_where_one_is_needed() {
    let node = folder("../../../testdata/nvml").join("node.jsonl");
    let plan = on_machine(&node, &[&["plan", "--json"][..], &SMALL].concat());
    assert_eq!(plan["base"]["usable_bytes"], 84_943_044_608_u64, "{plan}");
}
