//! The metrics, read by a strict parser of the exposition format: what Prometheus and `promtool check metrics` refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tonnage_watch::format::{MetricOptions, metrics_text};
use tonnage_watch::record::Recording;
use tonnage_watch::{Board, Prediction, Sampler, observe_sample};

/// Series by name and labels.
type Series = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads a page; panics where it is not as the format wants it.
fn parse(page: &str) -> Series {
    let mut series = Series::new();
    let mut family = String::new();
    let mut families = BTreeSet::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} comes twice");
            assert!(help.len() > family.len() + 5, "{family} has no help");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {family} ")).unwrap();
            assert_eq!(kind == "counter", family.ends_with("_total"), "{family} is a {kind}");
            continue;
        }
        let (name, labels, value) = sample(line);
        assert_eq!(name, family, "outside its family");
        assert!(series.insert((name, labels), value).is_none(), "twice: {line}");
    }
    assert!(page.ends_with('\n'));
    series
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let name = &line[..end];
    assert!(
        name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    );
    let mut rest = &line[end..];
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").unwrap();
            assert!(key.chars().all(|each| each.is_ascii_alphanumeric() || each == '_'), "{line}");
            let (value, after) = label_value(after);
            assert!(labels.insert(key.to_owned(), value).is_none());
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    (name.to_owned(), labels, rest.strip_prefix(' ').unwrap().parse().unwrap())
}

fn label_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return (value, &text[place + 1..]),
            '\\' => match characters.next().unwrap().1 {
                'n' => value.push('\n'),
                each @ ('\\' | '"') => value.push(each),
                other => panic!("no such escape: {other}"),
            },
            character => value.push(character),
        }
    }
    panic!("no end of a label")
}

fn board(script: &str, until: f64, prediction: Option<Prediction>) -> Board {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml").join(format!("{script}.jsonl"));
    let mut recording = Recording::parse(std::fs::read_to_string(path).unwrap()).unwrap();
    let mut board = Board::new(prediction);
    while recording.next_time().is_some_and(|time| time <= until) {
        observe_sample(&mut board, recording.sample().unwrap());
    }
    board
}

const ALL: MetricOptions = MetricOptions { processes: true, dcgm: true };

fn of<'a>(series: &'a Series, name: &'a str) -> Vec<(&'a BTreeMap<String, String>, f64)> {
    series.iter().filter(|((other, _), _)| other == name).map(|((_, labels), value)| (labels, *value)).collect()
}

#[test]
fn every_script_makes_a_page_that_can_be_read() {
    for script in ["node", "mig", "lost", "leak", "swarm", "neighbour", "growing"] {
        let prediction =
            Prediction { job: "a \"job\"\\\n".to_owned(), peak_bytes: 5, range: (4, 5), ..Default::default() };
        let series = parse(&metrics_text(&board(script, 500.0, Some(prediction)), ALL));
        assert!(series.len() > 5);
        for (name, labels) in series.keys() {
            assert!(!name.ends_with("_mib") && !name.contains("percent"), "{name}");
            assert!(
                !name.starts_with("tonnage_gpu_") || name.ends_with("_info") || labels.len() == 1,
                "{name} {labels:?}"
            );
        }
    }
}

#[test]
fn a_failed_read_has_no_sample_and_clears_its_success() {
    let series = parse(&metrics_text(&board("lost", 50.0, None), ALL));
    let success: Vec<f64> = of(&series, "tonnage_gpu_last_collect_success").iter().map(|(_, value)| *value).collect();
    assert_eq!(success, [0.0, 1.0]);
    for name in ["tonnage_gpu_memory_used_bytes", "tonnage_gpu_temperature_celsius", "DCGM_FI_DEV_FB_USED"] {
        assert_eq!(of(&series, name).len(), 1, "{name}");
    }
    assert!(of(&series, "tonnage_gpu_power_watts").is_empty());
    let alerts: Vec<_> = of(&series, "tonnage_alert").iter().map(|(labels, _)| labels["kind"].clone()).collect();
    assert_eq!(alerts, ["lost", "xid"]);
}

#[test]
fn a_leak_has_a_trend_and_a_time_to_full() {
    let prediction =
        Prediction { job: "j".to_owned(), peak_bytes: 15 << 30, range: (14 << 30, 15 << 30), ..Default::default() };
    let series = parse(&metrics_text(&board("leak", 900.0, Some(prediction)), ALL));
    let value = |name| of(&series, name)[0].1;
    let per_minute = value("tonnage_gpu_memory_trend_bytes_per_second") * 60.0 / f64::from(1 << 20);
    assert!((per_minute - 200.0).abs() < 2.0, "{per_minute}");
    assert!((value("tonnage_gpu_seconds_to_full") / 3600.0 - 2.2).abs() < 0.5);
    assert_eq!(value("tonnage_gpu_oom_risk"), 1.0);
    assert!(value("tonnage_process_prediction_error_ratio") > 0.05);
}

#[test]
fn memory_of_an_instance_is_told_once() {
    let text = r#"{"device": 0, "name": "A100", "total": 100, "used": 60, "mig": [
        {"uuid": "MIG-a", "gpu_instance": 1, "compute_instance": 0, "total": 50, "used": 20},
        {"uuid": "MIG-b", "gpu_instance": 1, "compute_instance": 1, "total": 50, "used": 20}]}"#;
    let mut board = Board::new(None);
    observe_sample(&mut board, Recording::parse(text.replace('\n', "")).unwrap().sample().unwrap());
    let series = parse(&metrics_text(&board, MetricOptions::default()));
    let used: Vec<_> =
        of(&series, "tonnage_gpu_memory_used_bytes").iter().map(|(labels, _)| labels["uuid"].clone()).collect();
    assert_eq!(used, ["MIG-a", "gpu-0"]);
}
