//! What was written by us and damaged since (a full disk, another program): every reader answers or says what is wrong, and
//! nothing is lost that was not damaged.

#[path = "../../core/tests/damage/mod.rs"]
mod damage;

use std::fs;
use std::path::Path;

use damage::{Damage, damage, damaged};
use proptest::prelude::*;
use tonnage_core::record::{BatchRecord, Event, JobRecord, RunRecord};
use tonnage_run::adapter::{Injection, inject};
use tonnage_run::corrections::{Kept, keep_correction, kept_correction};
use tonnage_run::guard::checkpoint::{newest_checkpoint, saved_progress};
use tonnage_run::ledger::{Claim, Ledger};
use tonnage_run::private::TemporaryFolder;
use tonnage_run::store::Store;

/// Damages the file at `path`, which is there.
fn spoil(path: &Path, damages: &[Damage]) {
    fs::write(path, damaged(fs::read(path).unwrap(), damages)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_and_journals(damages in damage(), of_journal in any::<bool>()) {
        let folder = TemporaryFolder::make().unwrap();
        let store = Store::new(folder.path().to_owned());
        let run = store.create(RunRecord { command: vec!["true".to_owned()], ..RunRecord::default() }).unwrap();
        for pid in 1..4 {
            run.append(Event::ProcessStarted { node: 0, number: 1, pid, began: 1 }).unwrap();
        }
        let name = if of_journal { "events.jsonl" } else { "run.json" };
        spoil(&run.path().join(name), &damages);
        // A run that cannot be read is none of the list; one that can still takes entries.
        for found in store.list() {
            prop_assert!(found.state().attempts() <= 4);
            found.append(Event::ProcessStarted { node: 0, number: 1, pid: 9, began: 1 }).unwrap();
            found.state();
        }
    }

    #[test]
    fn corrections(damages in damage()) {
        let folder = TemporaryFolder::make().unwrap();
        let job = JobRecord::default();
        keep_correction(folder.path(), &job, Kept { by: "measured".to_owned(), seen_bytes: 7, ..Kept::default() }).unwrap();
        prop_assert_eq!(kept_correction(folder.path(), &job).unwrap().map(|kept| kept.seen_bytes), Some(7));
        spoil(&folder.path().join("corrections.json"), &damages);
        // What cannot be read is said, or read as far as it goes; it is never a panic, and what is kept next can be read.
        let _ = kept_correction(folder.path(), &job);
        if keep_correction(folder.path(), &job, Kept { seen_bytes: 8, ..Kept::default() }).is_ok() {
            prop_assert_eq!(kept_correction(folder.path(), &job).unwrap().map(|kept| kept.seen_bytes), Some(8));
        }
    }

    #[test]
    fn ledgers(damages in damage()) {
        let folder = TemporaryFolder::make().unwrap();
        let ledger = Ledger::open(folder.path(), "gpu").unwrap();
        let claim = Claim { run: "a".to_owned(), bytes: 60, ..Claim::default() };
        ledger.claim(std::slice::from_ref(&claim), 100).unwrap().unwrap();
        let files: Vec<_> = fs::read_dir(folder.path().join("ledger")).unwrap().flatten().map(|entry| entry.path()).collect();
        files.iter().for_each(|file| spoil(file, &damages));
        let _ = ledger.claims();
        let _ = ledger.claim(&[claim], 100);
        let _ = ledger.release("a", None);
    }

    #[test]
    fn checkpoints(damages in damage(), of_state in any::<bool>()) {
        let folder = TemporaryFolder::make().unwrap();
        let checkpoint = folder.path().join("checkpoint-5");
        fs::create_dir(&checkpoint).unwrap();
        let header = br#"{"w":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 16]].concat();
        fs::write(checkpoint.join("model.safetensors"), &file).unwrap();
        fs::write(checkpoint.join("trainer_state.json"), "{\"global_step\": 5, \"max_steps\": 9, \"log_history\": [{\"loss\": 1.5}]}").unwrap();
        prop_assert!(newest_checkpoint(folder.path()).0.is_some());
        spoil(&checkpoint.join(if of_state { "trainer_state.json" } else { "model.safetensors" }), &damages);
        let (found, torn) = newest_checkpoint(folder.path());
        prop_assert_eq!(usize::from(found.is_some()) + torn.len(), 1);
        // What a state says is its folder's step or nothing, and never less than its total.
        if let Some(progress) = saved_progress(folder.path(), 0) {
            prop_assert!(progress.step == 5 && progress.total.is_none_or(|total| total >= 5));
        }
        // A file that is shorter than its header says is never complete.
        let length = fs::metadata(checkpoint.join("model.safetensors")).unwrap().len();
        prop_assert!(found.is_none() || length >= 8);
    }

    #[test]
    fn deepspeed_configs(damages in damage()) {
        let folder = TemporaryFolder::make().unwrap();
        let config = folder.path().join("ds.json");
        let valid = "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": 4, \
                     \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}, \"bf16\": {\"enabled\": true}}";
        let command = ["deepspeed", "t.py", "--deepspeed_config", &config.display().to_string()].map(str::to_owned);
        let attempt = folder.path().join("attempt");
        fs::create_dir(&attempt).unwrap();
        let injection = |rows| Injection {
            batch: Some(BatchRecord { micro_batch_size: rows, gradient_accumulation_steps: 64 / rows, ..BatchRecord::default() }),
            changes: &[],
            resume_from: None,
            node: None,
            job: None,
            attempt: 1,
            folder: attempt.clone(),
        };
        fs::write(&config, valid).unwrap();
        prop_assert!(inject(&command, &injection(8)).is_ok());
        let told: serde_json::Value = serde_json::from_slice(&fs::read(attempt.join("deepspeed.json")).unwrap()).unwrap();
        prop_assert_eq!(&told["train_micro_batch_size_per_gpu"], &serde_json::Value::from(8));
        spoil(&config, &damages);
        fs::remove_file(attempt.join("deepspeed.json")).unwrap();
        match inject(&command, &injection(8)) {
            // What is written for DeepSpeed can be read by it, and the user's own file stays as it is.
            Ok(_) => {
                if let Ok(text) = fs::read(attempt.join("deepspeed.json")) {
                    prop_assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
                }
            }
            Err(error) => prop_assert!(error.to_string().contains("ds.json"), "{}", error),
        }
    }
}
