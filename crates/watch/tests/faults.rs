//! Every call of NVML fails in every way: every reading is what it was or absent, and no view shows a figure that was not
//! read.

mod scripted;

use std::collections::BTreeMap;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use scripted::Scripted;
use serde_json::Value;
use tonnage_watch::format::{Csv, MetricOptions, metrics_text, plain_table, sample_json};
use tonnage_watch::screen::{App, draw_screen};
use tonnage_watch::{Board, DeviceSample, Reading, Sample, Sampler, observe_sample};

const NODE: &str = include_str!("../../../testdata/nvml/node.jsonl");
const MIG: &str = include_str!("../../../testdata/nvml/mig.jsonl");

fn read(scripted: &Scripted) -> Sample {
    scripted.sampler().sample().unwrap()
}

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
        let views = Views::of(&healthy);
        let mut sampler = scripted.sampler();
        for call in calls.iter().filter(|call| **call != "nvmlInit_v2") {
            for kind in &kinds {
                scripted.play(&format!("{script}{{\"error\": {{\"{call}\": \"{kind}\"}}}}\n"));
                let fault = format!("{call} {kind}");
                no_false_figure(&healthy, &sampler.sample().unwrap(), &fault);
                let begun_with_it = read(&scripted);
                no_false_figure(&healthy, &begun_with_it, &fault);
                views.hold(&begun_with_it, &fault);
            }
        }
    }
}

/// What the views say of a sample.
struct Views {
    json: BTreeMap<String, Value>,
    metrics: BTreeMap<String, String>,
}

impl Views {
    fn of(sample: &Sample) -> Self {
        let mut board = Board::new(None);
        observe_sample(&mut board, Sample { time: 1e9, ..sample.clone() });
        let mut json = BTreeMap::new();
        leaves(&sample_json(&board), String::new(), &mut json);
        let page = metrics_text(&board, MetricOptions { processes: true, dcgm: true });
        let series = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        let metrics = series.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let text = plain_table(&board, 100) + &Csv::default().rows(&board);
        assert!(!text.contains("NaN"), "{text}");
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        terminal.draw(|frame| draw_screen(frame, &board, &App::default())).unwrap();
        Self { json, metrics }
    }

    /// Every figure of a sample with a fault is the healthy one's.
    fn hold(&self, sample: &Sample, fault: &str) {
        let found = Self::of(sample);
        // An old driver's memory counts what it keeps as used; then used, and what follows from it, are others.
        let old = sample.all_devices().any(|device| device.memory.is_ok_and(|memory| memory.reserved.is_none()));
        let may_differ = |name: &str| {
            let gauge = name.contains("_success") || name.contains("alert");
            gauge
                || name.contains("_info")
                || (old && (name.contains("used") || name.contains("FB_") || name.contains("peak")))
        };
        for (path, value) in &found.json {
            let same = self.json.get(path) == Some(value);
            assert!(
                same || !value.is_number() || may_differ(path),
                "{fault}: {path} is {value}, {:?}",
                self.json.get(path)
            );
        }
        for (series, value) in &found.metrics {
            let healthy = self.metrics.get(series);
            // Labels are part of a name: without UUID, name or address the same figure is under another.
            let unnamed = |device: &DeviceSample| device.uuid.is_err() || device.name.is_err() || device.pci.is_err();
            let renamed = healthy.is_none() && sample.all_devices().any(unnamed);
            assert!(
                healthy == Some(value) || renamed || may_differ(series),
                "{fault}: {series} is {value}, {healthy:?}"
            );
        }
    }
}

/// Every value below `value` by its path; devices by their place.
fn leaves(value: &Value, path: String, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| leaves(value, format!("{path}/{key}"), found)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(place, value)| leaves(value, format!("{path}/{place}"), found));
        }
        other => {
            found.insert(path, other.clone());
        }
    }
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
