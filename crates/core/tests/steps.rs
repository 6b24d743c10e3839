//! Whole training steps, event by event: simulated traces against what PyTorch's allocator was asked for.
//!
//! `testdata/steps/cases.json` describes the steps, `timelines` beside it holds what was recorded for each.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tonnage_core::recording::{Names, RecordedEvent, Recording, compare, read_timeline};
use tonnage_core::{job, step};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/steps")
}

fn recorded(id: &str) -> Recording {
    let file = fs::File::open(folder().join(format!("timelines/{id}.jsonl.gz"))).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut recording = read_timeline(&text).unwrap();
    // What dies with the process is not simulated.
    let end = recording.events.iter().rposition(|e| matches!(e, RecordedEvent::Phase(phase) if phase.name == "end"));
    recording.events.truncate(end.unwrap() + 1);
    recording
}

#[test]
fn every_step_is_what_pytorch_does() {
    let cases: Vec<Value> = serde_json::from_str(&fs::read_to_string(folder().join("cases.json")).unwrap()).unwrap();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let simulation = step::simulate(&job::from_case(case).unwrap()).unwrap();
        let comparison = compare(&simulation.trace, &recorded(id), Names::Ignore);
        assert!(comparison.first.is_none(), "{id}: {:#?}", comparison.first);
    }
    assert!(cases.len() >= 40);
}

#[test]
fn weights_and_states_of_the_optimizer_last_whatever_the_batch() {
    let lasting = |rows: u64| {
        let case = json!({"micro_batch": rows, "model": {"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}});
        let simulation = step::simulate(&job::from_case(&case).unwrap()).unwrap();
        (simulation.trace.lasting_bytes(), simulation.parameter_count)
    };
    let (of_one, parameters) = lasting(1);
    assert_eq!(lasting(6).0, of_one);
    // Four bytes of the weight and eight of AdamW's two states; steps are counted on the host.
    assert_eq!(of_one, 12 * parameters);
}
