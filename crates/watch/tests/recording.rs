//! A recording is a script: what was recorded of the scripted library, played by it and read by us, is what was read.

mod scripted;

use std::path::Path;

use proptest::prelude::*;
use scripted::Scripted;
use tonnage_watch::record::{Recorder, Recording};
use tonnage_watch::{DeviceSample, Sample, Sampler};

fn script(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The sample without what a recording does not tell: what the kernel said of processes.
fn comparable(mut sample: Sample) -> Vec<DeviceSample> {
    for device in &mut sample.devices {
        for each in
            std::iter::once(&mut device.processes).chain(device.instances.iter_mut().map(|one| &mut one.processes))
        {
            for process in each.as_deref_mut().unwrap_or_default() {
                process.host = Default::default();
            }
        }
    }
    sample.devices
}

#[test]
fn a_recording_is_a_script_of_the_same() {
    for name in ["node", "mig", "leak", "neighbour", "lost", "growing", "swarm"] {
        let original = Scripted::new(&script(&format!("{name}.jsonl")));
        let mut sampler = original.sampler();
        let times = [0.0, 1.0, 39.0, 40.5, 41.0, 59.0, 61.0, 119.0, 121.0, 150.0];
        let mut recorder = Recorder::new(Vec::new());
        let mut samples = Vec::new();
        for time in times {
            original.at(time);
            let sample = Sample { time: 1000.0 + time, ..sampler.sample().unwrap() };
            recorder.write(&sample).unwrap();
            samples.push(sample);
        }
        let text = String::from_utf8(recorder.into_inner()).unwrap();
        let mut recording = Recording::parse(&text).unwrap();
        let played = Scripted::new(&text);
        let mut player = played.sampler();
        for (time, sample) in times.into_iter().zip(samples) {
            let expected = comparable(sample);
            let replayed = recording.sample().unwrap();
            assert_eq!(replayed.time, 1000.0 + time, "{name}");
            assert_eq!(comparable(replayed), expected, "{name} at {time}");
            played.at(time);
            assert_eq!(comparable(player.sample().unwrap()), expected, "{name} played at {time}");
        }
        assert!(recording.sample().is_none());
    }
}

#[test]
fn a_script_is_read_as_the_library_reads_it() {
    for name in ["node", "mig", "leak", "neighbour", "lost", "growing", "swarm"] {
        let text = script(&format!("{name}.jsonl"));
        let library = Scripted::new(&text);
        let mut sampler = library.sampler();
        let mut recording = Recording::parse(&text).unwrap();
        while let Some(sample) = recording.sample() {
            library.at(sample.time);
            let mut read = comparable(sampler.sample().unwrap());
            let mut expected = comparable(sample);
            for device in read.iter_mut().chain(&mut expected) {
                // What a script leaves out, the library makes up, or does not tell of a lost device.
                device.pci = Ok(String::new());
                device.uuid = Ok(String::new());
                device.mig = Ok(false);
                device.instances.iter_mut().for_each(|each| {
                    (each.name, each.pci, each.mig) = (Ok(String::new()), Ok(String::new()), Ok(false))
                });
            }
            assert_eq!(read, expected, "{name} at {}", library_time(&recording));
        }
    }
}

fn library_time(recording: &Recording) -> String {
    recording.next_time().map_or_else(|| "the end".to_owned(), |time| format!("before {time}"))
}

#[test]
fn a_line_that_was_cut_off_is_left_out_and_a_broken_one_named() {
    let text = script("lost.jsonl");
    assert!(Recording::parse(&text[..text.len() - 5]).is_ok());
    let error = Recording::parse("{\"t\": 0}\n{\"t\": \n{}\n").unwrap_err();
    assert_eq!(error.line, 2);
    assert_eq!(Recording::parse("{\"device\": 4096}\n").unwrap_err().problem, "`device` is a number below 256");
}

#[test]
fn slips_of_the_pen_are_named() {
    let cases = [
        ("{\"tonnage_recording\": 99}", "`tonnage_recording` is 99; this program reads version 1"),
        ("{\"device\": 0, \"total\": -1}", "`total` is -1, not a number from 0"),
        ("{\"device\": 0, \"bogus\": 1}", "`bogus` is no key of a recording"),
        ("{\"total\": 5}", "`total` belongs to a `device`"),
        ("{\"device\": 0, \"processes\": [{\"used\": 1}]}", "a process has a `pid`"),
        ("{\"device\": 0, \"used\": {\"at\": 1, \"per_minute\": 2}}", "`used` is {"),
        ("{\"device\": 0, \"mig\": [{\"total\": \"5\"}]}", "`total` is \"5\""),
        ("{\"t\": \"soon\"}", "`t` is \"soon\""),
        ("{\"device\": 0, \"error\": \"lost\"}", "`error` has errors by call"),
    ];
    for (line, problem) in cases {
        for end in ["", "\n"] {
            let error = Recording::parse(format!("{{\"t\": 0}}\n{line}{end}")).unwrap_err();
            assert!(error.line == 2 && error.problem.starts_with(problem), "{error}");
        }
    }
}

#[test]
fn of_a_recording_that_tells_too_much_some_samples_are_played() {
    let row = "{\"pid\":1,\"used\":1},".repeat(100);
    let line = |t: usize| {
        format!("{{\"t\":{t},\"device\":0,\"total\":9,\"xid\":{t},\"processes\":[{}]}}\n", row.trim_end_matches(','))
    };
    let text: String = (0..20_000).map(line).collect();
    let all = Recording::parse(format!("{{\"tonnage_recording\":1}}\n{text}")).unwrap();
    let most = tonnage_core::limit::GPU_SAMPLES;
    let (mut few, one_of) = all.clone().bounded();
    assert!(one_of == 2 && few.len() * 101 <= most, "{one_of}: {}", few.len());
    let samples: Vec<_> = std::iter::from_fn(|| few.sample()).collect();
    assert_eq!(samples.last().unwrap().time, 19_999.0);
    assert_eq!(samples[1].devices[0].xids.len(), 2, "what was told between counts");
    let (same, one_of) = all.every(10.0).bounded();
    assert_eq!((same.len(), one_of), (2_000, 1));
}

#[test]
fn memory_that_no_line_tells_is_absent() {
    let memory = |text: &str| Recording::parse(text).unwrap().sample().unwrap().devices[0].memory;
    assert!(memory("{\"device\": 0, \"total\": 5}\n").is_err());
    assert_eq!(memory("{\"device\": 0, \"total\": 5, \"processes\": []}\n").unwrap().used, 0);
}

#[test]
fn what_is_recorded_of_a_process_is_read() {
    let mut sample = Recording::parse(script("swarm.jsonl")).unwrap().sample().unwrap();
    let process = &mut sample.devices[0].processes.as_mut().unwrap()[0];
    (process.host.node, process.host.rank) = (Some("node-3".to_owned()), Some(7));
    let told = process.clone();
    let mut recorder = Recorder::new(Vec::new());
    recorder.write(&sample).unwrap();
    let text = String::from_utf8(recorder.into_inner()).unwrap();
    let read = Recording::parse(text).unwrap().sample().unwrap();
    assert_eq!(read.devices[0].running()[0], told);
}

#[test]
fn of_a_key_that_stands_twice_the_last_holds() {
    let text = "{\"device\": 0, \"total\": 5, \"used\": 1, \"t\": 9, \"used\": 2, \"t\": 0}\n";
    let sample = Recording::parse(text).unwrap().sample().unwrap();
    assert_eq!((sample.time, sample.devices[0].memory.unwrap().used), (0.0, 2));
}

#[test]
fn an_xid_of_an_instance_is_told_once() {
    let text = "{\"device\": 0, \"mig\": [{\"xid\": 79, \"total\": 5}]}\n{\"t\": 1}\n";
    let mut recording = Recording::parse(text).unwrap();
    let mut xids = || recording.sample().unwrap().devices[0].instances[0].xids.clone();
    assert_eq!((xids(), xids()), (vec![79], vec![]));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(text in "\\PC*") {
        let _ = Recording::parse(&text);
    }

    #[test]
    fn any_values_are_read(key in "(used|total|processes|mig|error|xid|power|t)", value in "(null|-?[0-9]{1,30}|1e300|\\[[0-9,{}\":a-z]*\\]|\\{\"(at|per_second|\\*)\": ?(-?[0-9]{1,20}|\"[a-z]*\")\\})") {
        let text = format!("{{\"device\": 0, \"total\": 5, \"{key}\": {value}}}\n{{\"t\": 3}}\n");
        if let Ok(mut recording) = Recording::parse(&text) {
            for _ in 0..20 {
                recording.sample();
            }
        }
    }
}
