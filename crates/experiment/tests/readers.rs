//! Readers given damaged, cut and hostile files: none panics, none takes more than it was given, and what comes out can be reported.

use proptest::prelude::*;
use tonnage_experiment::experiment::{Experiment, Question};
use tonnage_experiment::render::{csv, html, json, markdown, text};
use tonnage_experiment::section::{Made, make_document};
use tonnage_experiment::source::{Found, Gathered, Place, READERS, reader_of};

/// A file of every reader, as its program writes it.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let event =
        include_bytes!("../../../testdata/experiment/tensorboard/seed1/events.out.tfevents.1700000000.host.1.0");
    let swarm = include_bytes!(
        "../../../testdata/experiment/sapo-replication/experiments/sapo_smollm_4loc4ext/logs/worker_0/metrics.jsonl"
    );
    let records = include_bytes!("../../../examples/experiment/two/seed0.jsonl");
    let run = include_bytes!("../../cli/tests/data/records/older/run.json");
    vec![
        ("events.out.tfevents.1", event.to_vec()),
        ("metrics.jsonl", swarm.to_vec()),
        ("seed0.jsonl", records.to_vec()),
        ("run.json", run.to_vec()),
        ("trainer_state.json", br#"{"log_history": [{"step": 1, "eval_loss": 2.5, "epoch": 0.1}, {"step": 2, "eval_loss": NaN}], "global_step": 2}"#.to_vec()),
        ("history.csv", b"_step,_runtime,eval/acc\n1,0.5,0.25\n2,1.5,0.5\n".to_vec()),
        ("chart.csv", b"\"Step\",\"a-seed1 - loss\",\"a-seed1 - loss__MIN\"\n1,0.5,0.25\n2,1.5,0.5\n".to_vec()),
        ("history.json", br#"[{"_step": 1, "loss": 0.5}, {"_step": 2, "loss": "NaN"}]"#.to_vec()),
        ("log.jsonl", b"{\"step\": 1, \"eval\": {\"acc\": 0.5}}\n{\"step\": 2, \"eval\": {\"acc\": 0.7}}\n".to_vec()),
        ("table.csv", b"method,seed,step,metric,value\nA,0,1,acc,0.5\n\"B \"\"x\"\"\",1,2,acc,1e308\n".to_vec()),
    ]
}

fn read(name: &str, bytes: &[u8]) -> Option<Result<Found, String>> {
    let reader = reader_of(name, &bytes[..bytes.len().min(4096)])?;
    let place = Place { path: name, top: "top", beside: &|_| None };
    Some((reader.read)(&mut &bytes[..], &place))
}

/// What was read goes through everything that follows.
fn report(found: Found, given: usize) {
    let points: usize = found.runs.iter().flat_map(|run| run.series.values()).map(|series| series.len()).sum();
    assert!(points <= given * 2 + 16, "{points} points of {given} bytes");
    let mut runs = found.runs;
    runs.iter_mut().for_each(|run| run.finish());
    let Ok(all) = Experiment::new(runs, &Question::default()) else { return };
    let (document, _) = make_document(&all, &Gathered::default(), &Made::default());
    let look = tonnage_report::Look { width: 60, unicode: false };
    let outcomes =
        [text(&document, &look), markdown(&document, None), csv(&document), json(&document), html(&document)];
    assert!(outcomes.iter().all(|outcome| !outcome.is_empty()));
    serde_json::from_str::<serde_json::Value>(&outcomes[3]).expect("JSON");
}

#[test]
fn every_reader_reads_its_seed() {
    let mut seen: Vec<&str> = Vec::new();
    for (name, bytes) in seeds() {
        let reader = reader_of(name, &bytes).unwrap_or_else(|| panic!("{name}: no reader"));
        seen.push(reader.name);
        let found = read(name, &bytes).unwrap().unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(!found.runs.is_empty(), "{name}");
        report(found, bytes.len());
    }
    for reader in READERS {
        assert!(seen.contains(&reader.name), "no seed for the reader of {}", reader.name);
    }
}

#[test]
fn any_beginning_of_a_file_is_read_or_refused() {
    for (name, bytes) in seeds() {
        for cut in (0..bytes.len()).step_by(31) {
            if let Some(Ok(found)) = read(name, &bytes[..cut]) {
                report(found, cut);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_read_or_refused(which in 0usize..10, places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let (name, mut bytes) = seeds().swap_remove(which);
        bytes.truncate(4000);
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(Ok(found)) = read(name, &bytes) {
            report(found, bytes.len());
        }
    }

    #[test]
    fn files_of_nothing_in_particular_are_read_or_refused(which in 0usize..10, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (name, mut file) = seeds().swap_remove(which);
        // Behind a true beginning, so that the reader takes it.
        file.truncate(60);
        file.extend(bytes);
        if let Some(Ok(found)) = read(name, &file) {
            report(found, file.len());
        }
    }

    #[test]
    fn numbers_of_any_size_are_reported(values in prop::collection::vec((any::<f64>(), any::<f64>()), 1..60)) {
        let lines: String = values.iter().enumerate().map(|(at, (step, value))| format!("{},{},{step:e},{value:e}\n", at % 3, at % 2)).collect();
        if let Some(Ok(found)) = read("t.csv", format!("config,seed,step,eval_acc\n{lines}").as_bytes()) {
            report(found, 10_000);
        }
    }
}
