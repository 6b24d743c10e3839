//! Imports memory snapshots that PyTorch wrote and replays them: the figures are those PyTorch reported.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use tonnage_core::alloc::{AllocatorConfig, CachingAllocator, Replayed, replay};
use tonnage_core::recording::{RecordedEvent, Recording, read_snapshot};
use tonnage_core::units::MIB;

#[derive(Deserialize)]
struct Figures {
    allocated: u64,
    reserved: u64,
    requested: u64,
}

#[derive(Deserialize)]
struct Expected {
    settings: String,
    start: Figures,
    peak: Figures,
    end: Figures,
    segments: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots")
}

fn bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(folder().join(format!("{name}.pickle.gz"))).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn case(name: &str) -> (Recording, Expected) {
    let text = fs::read_to_string(folder().join("expected.json")).unwrap();
    let mut cases: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
    (read_snapshot(&bytes(name), 0).unwrap(), cases.remove(name).unwrap())
}

fn run(recording: &Recording, settings: &str) -> Replayed {
    let config = AllocatorConfig::parse(settings).unwrap();
    replay(&mut CachingAllocator::new(config, Some(16384 * MIB)), recording.requests()).unwrap()
}

#[test]
fn recorded_from_the_start_every_figure_is_equal() {
    let (recording, expected) = case("from_start");
    let stats = run(&recording, &expected.settings).total;
    assert_eq!((stats.peak_allocated, stats.allocated), (expected.peak.allocated, expected.end.allocated));
    assert_eq!((stats.peak_reserved, stats.reserved), (expected.peak.reserved, expected.end.reserved));
    assert_eq!((stats.peak_requested, stats.requested), (expected.peak.requested, expected.end.requested));
    assert_eq!(stats.segments, expected.segments);
    assert_eq!(recording.settings(), expected.settings);
}

/// What was alive before is allocated anew in a fresh allocator, so its cached segments are not there: `reserved` is
/// what the job would need from a clean start, not what it had.
#[test]
fn recorded_later_the_program_asks_for_the_same() {
    for name in ["mid_training", "mid_training_expandable"] {
        let (recording, expected) = case(name);
        let replayed = run(&recording, &expected.settings);
        let [before, recorded] = &replayed.phases[..] else { panic!("{name}: two phases") };
        assert_eq!(before.requested, expected.start.requested, "{name}");
        assert_eq!(before.allocated, expected.start.allocated, "{name}");
        assert_eq!(recorded.peak_requested, expected.peak.requested, "{name}");
        assert_eq!(recorded.requested, expected.end.requested, "{name}");
        assert_eq!(recorded.allocated, expected.end.allocated, "{name}");
        assert!(recorded.peak_reserved <= expected.peak.reserved, "{name}");
    }
}

/// The ring buffer of 150 entries lost the beginning; what the rest frees was alive when it begins.
#[test]
fn a_trace_without_its_beginning_ends_right() {
    let (recording, expected) = case("ring_overflow");
    let stats = run(&recording, &expected.settings).total;
    assert_eq!(stats.requested, expected.end.requested);
    assert_eq!(stats.allocated, expected.end.allocated);
}

#[test]
fn stacks_name_the_source_line() {
    let (recording, _) = case("from_start");
    let allocs = recording.events.iter().filter_map(|event| match event {
        RecordedEvent::Alloc(alloc) => Some(alloc),
        _ => None,
    });
    let named = allocs.filter(|a| &*a.op == "layer_norm" && a.module.starts_with("record.py:")).count();
    assert!(named > 0);
}

#[test]
fn any_cut_is_an_error_and_no_panic() {
    let bytes = bytes("mid_training_expandable");
    for length in (0..bytes.len()).step_by(7) {
        assert!(read_snapshot(&bytes[..length], 0).is_err());
    }
    assert!(read_snapshot(&bytes, 1).is_err());
}
