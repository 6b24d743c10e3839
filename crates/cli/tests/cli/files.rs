//! Files that commands read and write.

use std::path::PathBuf;

use super::{check, json, tonnage};

fn recorded(name: &str) -> String {
    format!("../../../../testdata/{name}")
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    folder.join(name)
}

#[test]
fn the_predicted_trace_equals_the_recorded_one() {
    let recorded = recorded("timelines/mini_b24_s512_fp32_sdpa.jsonl.gz");
    check("trace_compare_equal", &["trace", "compare", "job.toml", &recorded]);
    let output = tonnage(&["trace", "compare", "job.toml", &recorded, "-b", "23"]);
    assert_eq!(output.status.code(), Some(1));
}

/// PyTorch's own snapshots and recordings of native programs know no phases.
#[test]
fn a_recording_without_phases_is_compared_by_bytes_and_lifetimes() {
    let whole = scratch("with_phases.jsonl");
    let written = tonnage(&["trace", "write", "job.toml", "--output", &whole.display().to_string()]);
    assert!(written.status.success());
    let text = std::fs::read_to_string(&whole).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("[\"p\"")).collect();
    assert!(lines.len() > 100 && lines.len() < text.lines().count(), "{} lines", lines.len());
    let file = scratch("without_phases.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let path = file.display().to_string();
    let equal = tonnage(&["trace", "compare", "job.toml", &path]);
    let said = String::from_utf8(equal.stdout).unwrap();
    assert_eq!(equal.status.code(), Some(0), "{said}");
    assert!(said.contains("equal: ") && said.contains("phases are not compared: the recording has none"), "{said}");
    let answer = json(&["trace", "compare", "job.toml", &path, "--json"]);
    assert_eq!((&answer["compares_phases"], &answer["first_difference"]), (&false.into(), &serde_json::Value::Null));
    let other = tonnage(&["trace", "compare", "job.toml", &path, "-b", "23"]);
    assert_eq!(other.status.code(), Some(1));
}

#[test]
fn a_recording_replays_to_pytorchs_figures() {
    let recorded = recorded("timelines/mini_b24_s512_fp32_sdpa.jsonl.gz");
    let replayed = json(&["trace", "replay", &recorded, "--json"]);
    let estimate = json(&["estimate", "job.toml", "--json"]);
    for key in ["peak_allocated_bytes", "peak_reserved_bytes", "rounded512_peak_bytes"] {
        assert_eq!(replayed[key], estimate[key], "{key}");
    }
    assert_eq!(tonnage(&["trace", "replay", &recorded, "--capacity", "8GiB"]).status.code(), Some(1));
}

#[test]
fn a_snapshot_replays() {
    check("trace_replay_snapshot", &["trace", "replay", &recorded("snapshots/mid_training.pickle.gz")]);
}

#[test]
fn a_written_trace_replays_to_the_estimate() {
    let path = scratch("written.jsonl");
    let path = path.to_str().unwrap();
    assert_eq!(tonnage(&["trace", "write", "gpt2", "-b", "1", "-s", "16", "--output", path]).status.code(), Some(0));
    let replayed = json(&["trace", "replay", path, "--json"]);
    let estimate = json(&["estimate", "gpt2", "-b", "1", "-s", "16", "--json"]);
    assert_eq!(replayed["peak_reserved_bytes"], estimate["peak_reserved_bytes"]);
}

/// A folder with the config of a tiny model and what a safetensors header says.
fn model_folder(name: &str, parameters: u64) -> PathBuf {
    let folder = scratch(name);
    std::fs::create_dir_all(&folder).unwrap();
    let config =
        r#"{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 10, "n_positions": 16}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let header = format!(r#"{{"w": {{"dtype": "U8", "shape": [{parameters}], "data_offsets": [0, {parameters}]}}}}"#);
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    folder
}

fn caveats(folder: &std::path::Path) -> String {
    json(&["estimate", folder.to_str().unwrap(), "--json"])["caveats"].to_string()
}

#[test]
fn weights_beside_a_config_check_its_parameter_count() {
    // wte 10 x 8, wpe 16 x 8, a layer of 12 x 8 x 8 + 13 x 8, ln_f 2 x 8.
    let equal = model_folder("equal", 80 + 128 + 768 + 104 + 16);
    assert!(!caveats(&equal).contains("parameter_count"), "{}", caveats(&equal));
    let other = model_folder("other", 1000);
    let said = caveats(&other);
    assert!(said.contains("1096 parameters, the safetensors file beside its config holds 1000"), "{said}");
    std::fs::write(other.join("model.safetensors"), b"short").unwrap();
    let output = tonnage(&["estimate", other.to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("model.safetensors: safetensors header: shorter than its length field"), "{stderr}");
}

#[test]
fn weights_in_several_files_are_counted_together() {
    let folder = model_folder("sharded", 548);
    std::fs::rename(folder.join("model.safetensors"), folder.join("model-1.safetensors")).unwrap();
    let index =
        r#"{"metadata": {"total_size": 1096}, "weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}"#;
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    let second = folder.join("model-2.safetensors");
    let _ = std::fs::remove_file(&second);
    assert!(caveats(&folder).contains("model-2.safetensors is not there"));
    std::fs::copy(folder.join("model-1.safetensors"), second).unwrap();
    assert_eq!(caveats(&folder).matches("parameter").count(), 0);
}

#[test]
fn the_picture_is_small_and_well_formed() {
    let path = scratch("step.svg");
    tonnage(&["estimate", "gpt2", "-q", "--svg", path.to_str().unwrap()]);
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert!(svg.len() < 150_000, "{} bytes", svg.len());
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
