//! Conversations as a model's own chat template writes them, beside what transformers makes of them (testdata/train/chat.py).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tonnage_train::data::batches::{Examples, Making};
use tonnage_train::data::chat::ChatTemplate;
use tonnage_train::data::rows::IGNORED;
use tonnage_train::data::tokenizer::Tokenizer;

fn rows(folder: &Path, assistant_only: bool) -> Vec<(Vec<i64>, Vec<bool>)> {
    let tokenizer = Tokenizer::of_file(folder).expect("a tokenizer");
    let chat = ChatTemplate::beside(folder).expect("it can be read").expect("it is there");
    let making = Making {
        tokenizer: &tokenizer,
        chat: Some(&chat),
        assistant_only,
        end: None,
        field: "text",
        tokens: 4096,
        growth: None,
        seed: 1,
        ranks: 1,
        rank: 0,
    };
    let made =
        making.read(&[folder.join("rows.jsonl")], &[], 0.0).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let Examples::Rows { rows, .. } = made.train else { panic!("not rows") };
    let row = |row: &tonnage_train::data::rows::Row| {
        let said = row.labels.iter().map(|label| *label != IGNORED).collect();
        (row.tokens.iter().map(|token| i64::from(*token)).collect(), said)
    };
    rows.iter().map(row).collect()
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH names a Python with transformers"]
fn conversations_are_those_of_transformers() {
    let python = std::env::var_os("TONNAGE_TORCH").expect("TONNAGE_TORCH names a Python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/train/chat.py");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chat");
    let ended = Command::new(python).arg(script).arg(&folder).status().expect("the script starts");
    assert!(ended.success(), "the script failed");
    for name in ["turns", "pairs", "marked", "chatml"] {
        let folder = folder.join(name);
        let text = std::fs::read_to_string(folder.join("expected.json")).expect("it is there");
        let expected: Vec<Value> = serde_json::from_str(&text).expect("it is JSON");
        let (found, whole) = (rows(&folder, true), rows(&folder, false));
        assert!(expected.len() >= 2 && found.len() == expected.len(), "{name}");
        for ((expected, (ids, said)), (_, learnt)) in expected.iter().zip(found).zip(whole) {
            let numbers: Vec<i64> =
                expected["ids"].as_array().expect("a list").iter().map(|id| id.as_i64().expect("a number")).collect();
            let theirs: Vec<bool> =
                expected["said"].as_array().expect("a list").iter().map(|said| said.as_i64() == Some(1)).collect();
            assert_eq!((ids, said), (numbers, theirs), "{name}");
            assert!(learnt.iter().all(|learnt| *learnt), "{name}");
        }
    }
}
