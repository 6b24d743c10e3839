//! The reader on the scripted library: what is said is read, what is not is absent, and a fault is never a figure.

mod scripted;

use scripted::Scripted;
use tonnage_watch::{Absent, Sample, Sampler};

const NODE: &str = include_str!("../../../testdata/nvml/node.jsonl");
const MIG: &str = include_str!("../../../testdata/nvml/mig.jsonl");

/// What a new reader reads.
fn read(scripted: &Scripted) -> Sample {
    scripted.sampler().sample().unwrap()
}

#[test]
fn a_node_is_read() {
    let sample = read(&Scripted::new(NODE));
    assert_eq!((sample.devices.len(), sample.driver, sample.cuda), (8, Ok("580.95.05".to_owned()), Ok(13000)));
    let device = &sample.devices[3];
    let memory = device.memory.unwrap();
    assert_eq!((memory.total, memory.reserved), (85_520_809_984, Some(566_231_040)));
    assert_eq!(memory.used + memory.free + 566_231_040, memory.total);
    assert_eq!((device.temperature, device.utilization, device.power), (Ok(58), Ok(93), Ok(460.0)));
    assert_eq!(device.fan, Err(Absent::NOT_SUPPORTED));
    let process = &device.running()[1];
    assert_eq!((process.pid, process.memory, process.sm), (40031, Ok(13 << 30), Ok(21)));
    assert_eq!(process.name, Ok("python".to_owned()));
}

#[test]
fn instances_have_memory_and_processes_of_their_own() {
    let sample = read(&Scripted::new(MIG));
    let device = &sample.devices[0];
    assert_eq!((device.mig, device.processes.clone().err()), (Ok(true), Some(Absent::NO_PERMISSION)));
    assert_eq!(device.utilization, Err(Absent::NOT_SUPPORTED));
    let used: Vec<_> = device.instances.iter().map(|each| each.memory.unwrap().used).collect();
    assert_eq!(used, [9_663_676_416, 1_073_741_824]);
    assert_eq!(device.instances[0].instance, Some((1, 0)));
    assert_eq!(device.instances[0].running()[0].memory, Err(Absent::NOT_SUPPORTED));
    assert_eq!(device.instances[1].processes.as_ref().map(Vec::len), Ok(0));
}

#[test]
fn processes_that_start_between_two_calls_are_listed() {
    let late: Vec<_> = (0..40).map(|pid| format!("{{\"pid\": {}, \"used\": 5}}", 100 + pid)).collect();
    let script = format!(
        "{{\"device\": 0, \"total\": 9, \"processes\": [{{\"pid\": 1, \"used\": 5}}], \"processes_late\": [{}]}}",
        late.join(",")
    );
    assert_eq!(read(&Scripted::new(&script)).devices[0].running().len(), 41);
}

#[test]
fn a_lost_device_keeps_its_name_and_loses_its_figures() {
    let script = format!("{NODE}{}\n", r#"{"t": 5, "device": 2, "xid": 79, "error": {"*": "gpu_is_lost"}}"#);
    let scripted = Scripted::new(&script);
    let mut sampler = scripted.sampler();
    assert!(!sampler.sample().unwrap().devices[2].is_lost());
    scripted.at(6.0);
    let device = sampler.sample().unwrap().devices.remove(2);
    assert!(device.is_lost() && device.name.is_ok() && device.temperature == Err(Absent::LOST));
    assert_eq!(device.processes, Err(Absent::LOST));
    assert_eq!(device.xids, [79]);
    scripted.at(7.0);
    assert!(sampler.sample().unwrap().devices[2].xids.is_empty());
}

#[test]
fn a_library_that_does_not_start_says_why() {
    let scripted = Scripted::new("{\"error\": {\"nvmlInit_v2\": \"lib_rm_version_mismatch\"}}");
    let error = scripted.open().err().unwrap().to_string();
    assert_eq!(error, "NVML does not start: driver and library have different versions");
}
