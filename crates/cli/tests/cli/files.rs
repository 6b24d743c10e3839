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

#[test]
fn the_picture_is_small_and_well_formed() {
    let path = scratch("step.svg");
    tonnage(&["estimate", "gpt2", "-q", "--svg", path.to_str().unwrap()]);
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert!(svg.len() < 150_000, "{} bytes", svg.len());
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
