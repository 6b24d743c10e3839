//! Recordings and histories, damaged since they were written: what can be read is, and nothing else comes of it.

#[path = "../../core/tests/damage/mod.rs"]
mod damage;
mod scripted;

use std::fs;

use damage::{damage, damaged};
use proptest::prelude::*;
use scripted::Scripted;
use tonnage_watch::format::{Csv, MetricOptions, metrics_text, plain_table, sample_line};
use tonnage_watch::record::{Recorder, Recording, Store};
use tonnage_watch::{Board, Sample, Sampler, observe_sample};

/// A recording of half a minute on a node, as the program itself writes it.
fn recorded() -> Vec<u8> {
    let script = include_str!("../../../testdata/nvml/node.jsonl");
    let original = Scripted::new(script);
    let mut sampler = original.sampler();
    let mut recorder = Recorder::new(Vec::new());
    for time in [0.0, 10.0, 20.0, 30.0] {
        original.at(time);
        recorder.write(&Sample { time: 1000.0 + time, ..sampler.sample().unwrap() }).unwrap();
    }
    recorder.into_inner()
}

/// How many samples a recording has, each of them shown in every form.
fn show_samples(mut recording: Recording) -> usize {
    let mut board = Board::new(None);
    std::iter::from_fn(|| recording.sample())
        .map(|sample| {
            observe_sample(&mut board, sample);
            assert!(!plain_table(&board, 80).is_empty());
            assert!(serde_json::from_str::<serde_json::Value>(&sample_line(&board)).is_ok());
            assert!(!Csv::default().rows(&board).is_empty());
            assert!(!metrics_text(&board, MetricOptions { processes: true, dcgm: true }).is_empty());
        })
        .count()
}

#[test]
fn amounts_beyond_all_memory_are_shown() {
    let most = "18446744073709551616";
    let of_device = format!(r#""total": {most}, "used": {most}, "reserved": {most}"#);
    let of_job = |pid: u32| format!(r#"{{"pid": {pid}, "used": {most}, "name": "python", "job": "one"}}"#);
    let processes = [of_job(1), of_job(2)].join(", ");
    let devices = [format!("{of_device}, "), format!(r#""total": {most}, "#), String::new()];
    let lines = devices.iter().enumerate().map(|(index, memory)| {
        format!(r#"{{"t": 0, "device": {index}, "name": "GPU", {memory}"processes": [{processes}]}}"#) + "\n"
    });
    let text = "{\"driver\": \"580.95.05\"}\n".to_owned() + &lines.collect::<String>();
    assert!(show_samples(Recording::parse(&text).unwrap()) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recordings_and_histories(damages in damage()) {
        let valid = recorded();
        let samples = |text: &str| Recording::parse(text).map(show_samples);
        prop_assert_eq!(samples(str::from_utf8(&valid).unwrap()), Ok(4));
        let bytes = damaged(valid, &damages);
        match samples(&String::from_utf8_lossy(&bytes)) {
            Ok(count) => prop_assert!(count <= bytes.len()),
            Err(error) => prop_assert!(error.line > 0 && error.to_string().len() < 2_000, "{}", error),
        }
        let folder = std::env::temp_dir().join(format!("tonnage-damaged-{}-{:?}", std::process::id(), std::thread::current().id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("00000001.jsonl"), &bytes).unwrap();
        let (mut store, old) = Store::open(&folder).unwrap();
        // What is kept next is read next time, whatever lies before it.
        let sample = Sample { time: 5e9, driver: Ok("1".to_owned()), cuda: Ok(13000), devices: Vec::new(), problem: None };
        store.keep(&sample).unwrap();
        drop(store);
        let (_store, read) = Store::open(&folder).unwrap();
        prop_assert!(read.len() == old.len() + 1 && read.last().map(|last| last.time) == Some(5e9));
        fs::remove_dir_all(&folder).unwrap();
    }
}
