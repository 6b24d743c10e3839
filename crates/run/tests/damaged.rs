//! What was written by us and damaged since (a full disk, another program): every reader answers or says what is wrong, and
//! nothing is lost that was not damaged.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tonnage_core::record::{Event, JobRecord, RunRecord};
use tonnage_run::corrections::{Kept, keep, kept};
use tonnage_run::guard::checkpoint::newest;
use tonnage_run::ledger::{Claim, Ledger};
use tonnage_run::private::TemporaryFolder;
use tonnage_run::store::Store;

/// A change to a valid file.
#[derive(Clone, Debug)]
enum Damage {
    Cut(usize),
    Byte(usize, u8),
    Doubled(usize, usize),
    Spliced(usize, &'static str),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let texts =
        vec!["{", "}", "[", "null", "-1", "18446744073709551616", "1e999", "\"\\ud800\"", "\u{0}", "\n", ",,", "true"];
    let one = prop_oneof![
        any::<usize>().prop_map(Damage::Cut),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        (any::<usize>(), 1..64_usize).prop_map(|(at, length)| Damage::Doubled(at, length)),
        (any::<usize>(), proptest::sample::select(texts)).prop_map(|(at, text)| Damage::Spliced(at, text)),
    ];
    proptest::collection::vec(one, 1..4)
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let place = |at: usize, bytes: &[u8]| at % (bytes.len() + 1);
        match damage {
            Damage::Cut(at) => bytes.truncate(place(*at, &bytes)),
            Damage::Byte(at, byte) => {
                let at = place(*at, &bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Damage::Doubled(at, length) => {
                let at = place(*at, &bytes);
                let part = bytes[at..(at + length).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            Damage::Spliced(at, text) => {
                let at = place(*at, &bytes);
                bytes.splice(at..at, text.bytes());
            }
        }
    }
    bytes
}

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
        keep(folder.path(), &job, Kept { by: "measured".to_owned(), seen_bytes: 7, ..Kept::default() }).unwrap();
        prop_assert_eq!(kept(folder.path(), &job).unwrap().map(|kept| kept.seen_bytes), Some(7));
        spoil(&folder.path().join("corrections.json"), &damages);
        // What cannot be read is said, or read as far as it goes; it is never a panic, and what is kept next can be read.
        let _ = kept(folder.path(), &job);
        if keep(folder.path(), &job, Kept { seen_bytes: 8, ..Kept::default() }).is_ok() {
            prop_assert_eq!(kept(folder.path(), &job).unwrap().map(|kept| kept.seen_bytes), Some(8));
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
        fs::write(checkpoint.join("trainer_state.json"), "{\"global_step\": 5}").unwrap();
        prop_assert!(newest(folder.path()).0.is_some());
        spoil(&checkpoint.join(if of_state { "trainer_state.json" } else { "model.safetensors" }), &damages);
        let (found, torn) = newest(folder.path());
        prop_assert_eq!(usize::from(found.is_some()) + torn.len(), 1);
        // A file that is shorter than its header says is never complete.
        let length = fs::metadata(checkpoint.join("model.safetensors")).unwrap().len();
        prop_assert!(found.is_none() || length >= 8);
    }
}
