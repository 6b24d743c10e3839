//! The reader on the scripted library: what is said is read, what is not is absent, and a fault is never a figure.

mod scripted;

use scripted::Scripted;
use tonnage_watch::{Absent, DeviceSample, Reading, Sample, Sampler};

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

/// Every call fails in every way, and every reading is either what it was or absent.
#[test]
fn a_fault_of_every_kind_at_every_call() {
    let calls: Vec<&str> = tonnage_phantom::nvml::scripted_calls().collect();
    let kinds: Vec<&str> = tonnage_phantom::nvml::error_names().collect();
    assert!(calls.len() > 50 && kinds.len() > 25);
    // The header and one device: eight would only fail eight times alike.
    let one = NODE.split_inclusive('\n').take(2).collect::<String>();
    for script in [one.as_str(), MIG] {
        let scripted = Scripted::new(script);
        let healthy = read(&scripted);
        let mut sampler = scripted.sampler();
        for call in calls.iter().filter(|call| **call != "nvmlInit_v2") {
            for kind in &kinds {
                scripted.play(&format!("{script}{{\"error\": {{\"{call}\": \"{kind}\"}}}}\n"));
                for sample in [sampler.sample().unwrap(), read(&scripted)] {
                    no_false_figure(&healthy, &sample, &format!("{call} {kind}"));
                }
            }
        }
    }
}

#[test]
fn a_library_that_does_not_start_says_why() {
    let scripted = Scripted::new("{\"error\": {\"nvmlInit_v2\": \"lib_rm_version_mismatch\"}}");
    let error = scripted.open().err().unwrap().to_string();
    assert_eq!(error, "NVML does not start: driver and library have different versions");
}

fn no_false_figure(healthy: &Sample, found: &Sample, fault: &str) {
    same(&healthy.driver, &found.driver, fault);
    same(&healthy.cuda, &found.cuda, fault);
    assert!(found.problem.is_some() || found.devices.len() == healthy.devices.len(), "{fault}");
    for (healthy, found) in healthy.devices.iter().zip(&found.devices) {
        device(healthy, found, fault);
        assert!(found.mig != Ok(true) || found.instances.len() <= healthy.instances.len(), "{fault}");
        for (healthy, found) in healthy.instances.iter().zip(&found.instances) {
            device(healthy, found, fault);
        }
    }
}

fn device(healthy: &DeviceSample, found: &DeviceSample, fault: &str) {
    match (&healthy.memory, &found.memory) {
        // An old driver's call counts what the driver keeps as used.
        (Ok(healthy), Ok(found)) if found.reserved.is_none() => {
            assert_eq!(found.used, healthy.used + healthy.reserved.unwrap_or(0), "{fault}");
        }
        (healthy, found) => same(healthy, found, fault),
    }
    same(&healthy.uuid, &found.uuid, fault);
    same(&healthy.name, &found.name, fault);
    same(&healthy.utilization, &found.utilization, fault);
    same(&healthy.memory_utilization, &found.memory_utilization, fault);
    same(&healthy.temperature, &found.temperature, fault);
    same(&healthy.power, &found.power, fault);
    same(&healthy.power_limit, &found.power_limit, fault);
    same(&healthy.energy, &found.energy, fault);
    same(&healthy.sm_clock, &found.sm_clock, fault);
    same(&healthy.memory_clock, &found.memory_clock, fault);
    same(&healthy.throttle, &found.throttle, fault);
    same(&healthy.ecc_uncorrected, &found.ecc_uncorrected, fault);
    same(&healthy.remap_pending, &found.remap_pending, fault);
    let Ok(processes) = &found.processes else { return };
    assert_eq!(processes.len(), healthy.running().len(), "{fault}");
    for (healthy, found) in healthy.running().iter().zip(processes) {
        assert_eq!(healthy.pid, found.pid, "{fault}");
        same(&healthy.memory, &found.memory, fault);
        same(&healthy.sm, &found.sm, fault);
        same(&healthy.name, &found.name, fault);
    }
}

fn same<T: PartialEq + std::fmt::Debug>(healthy: &Reading<T>, found: &Reading<T>, fault: &str) {
    assert!(found.is_err() || found == healthy, "{fault}: {found:?} for {healthy:?}");
}
