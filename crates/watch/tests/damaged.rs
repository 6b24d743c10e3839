//! Recordings and histories, damaged since they were written: what can be read is, and nothing else comes of it.

#[path = "../../core/tests/damage/mod.rs"]
mod damage;
mod scripted;

use std::fs;

use damage::{damage, damaged};
use proptest::prelude::*;
use scripted::Scripted;
use tonnage_watch::record::{Recorder, Recording, Store};
use tonnage_watch::{Sample, Sampler};

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recordings_and_histories(damages in damage()) {
        let valid = recorded();
        let samples = |text: &str| Recording::parse(text).map(|mut recording| std::iter::from_fn(|| recording.sample()).count());
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
