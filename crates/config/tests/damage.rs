//! Every reader on damaged, huge and hostile files: an answer or an error with its place, never a panic.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tonnage_config::{ConfigText, KINDS, Kind, read_files};
use tonnage_core::job::JobSource;

/// Reads `text` as `kind`, and asks for all that follows from it.
fn run(kind: Kind, name: &str, text: &str) {
    for kind in [Some(kind), None] {
        if let Ok(reading) = read_files(&[(kind, ConfigText { name, text })]) {
            let tally = reading.files[0].tally();
            let sum = tally.used + tally.no_memory + tally.noted + tally.refused + tally.not_understood;
            assert_eq!(sum, reading.files[0].keys.len());
            let _ = reading.to_json();
            let _ = reading.as_source(JobSource::model("gpt2")).map(|source| source.resolve(&[]).is_ok());
        }
    }
}

fn seeds() -> Vec<(Kind, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/configs");
    let mut seeds = Vec::new();
    for kind in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let of = Kind::find_kind(&kind.file_name().unwrap().to_string_lossy()).unwrap();
        let mut files: Vec<_> = fs::read_dir(&kind).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files.into_iter().take(3) {
            seeds.push((of, file.to_string_lossy().into_owned(), fs::read_to_string(&file).unwrap()));
        }
    }
    seeds
}

/// Values of types that no key has.
const VALUES: [&str; 12] = [
    "null",
    "-1",
    "1e400",
    "99999999999999999999",
    "\"\"",
    "[]",
    "{}",
    "[[1]]",
    "true",
    "\"\u{1f600}\u{0}\"",
    "{\"a\": {\"b\": 1}}",
    "0.5",
];

#[test]
fn every_key_takes_a_value_of_any_type() {
    for (kind, name, _) in KINDS {
        for value in VALUES {
            for keys in
                ["bf16", "optim", "lora_target_modules", "adapter", "fsdp", "fsdp_config", "deepspeed", "max_length"]
            {
                let text = format!("{{\"{keys}\": {value}, \"per_device_train_batch_size\": {value}}}");
                run(*kind, &format!("{name}.json"), &text);
            }
        }
    }
}

/// Every key of every seed with a value of another type.
#[test]
fn values_of_other_types_are_answered_or_refused() {
    for (kind, name, text) in seeds().into_iter().filter(|(_, name, _)| name.ends_with(".yaml")) {
        for value in VALUES {
            let lines: Vec<String> = text
                .lines()
                .map(|line| match line.split_once(": ") {
                    Some((key, _)) if !key.starts_with('#') => format!("{key}: {value}"),
                    _ => line.to_owned(),
                })
                .collect();
            run(kind, &name, &lines.join("\n"));
        }
    }
}

#[test]
fn bombs_and_deep_nesting_are_refused() {
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let names = vec![format!("*a{}", level - 1); 8].join(", ");
        bomb.push_str(&format!("k{level}: &a{level} [{names}]\n"));
    }
    let error = |name: &str, text: &str| read_files(&[(Some(Kind::Axolotl), ConfigText { name, text })]).unwrap_err();
    assert!(error("a.yaml", &bomb).problem.contains("aliases"), "{}", error("a.yaml", &bomb));
    let deep = format!("a: {}1{}\n", "[".repeat(5000), "]".repeat(5000));
    error("a.yaml", &deep);
    error("a.json", &format!("{{\"a\": {}1{}}}", "[".repeat(5000), "]".repeat(5000)));
    error("a.toml", &format!("a = {}1{}", "[".repeat(5000), "]".repeat(5000)));
    let python = format!("SFTConfig(a={}1{})", "[".repeat(5000), "]".repeat(5000));
    let read = read_files(&[(Some(Kind::Python), ConfigText { name: "a.py", text: &python })]);
    assert!(read.unwrap_err().problem.contains("nested"));
}

#[test]
fn a_key_that_is_there_twice_is_an_error_with_its_place() {
    let texts = [
        ("a.yaml", "base_model: gpt2\nsequence_len: 8\nsequence_len: 16\n", 3),
        ("a.json", "{\"base_model\": \"gpt2\",\n\"sequence_len\": 8,\n\"sequence_len\": 16}", 3),
        ("a.toml", "base_model = \"gpt2\"\nsequence_len = 8\nsequence_len = 16\n", 3),
        ("a.sh", "axolotl train \\\n --sequence_len 8 \\\n --sequence_len 16", 3),
    ];
    for (name, text, line) in texts {
        let error = read_files(&[(Some(Kind::Axolotl), ConfigText { name, text })]).unwrap_err();
        assert_eq!(error.place.as_ref().map(|place| place.line), Some(line), "{error}");
    }
    // JSON's errors and YAML's say where they are.
    let error =
        read_files(&[(Some(Kind::Axolotl), ConfigText { name: "a.yaml", text: "a: 1\nb: [1,\n" })]).unwrap_err();
    assert!(error.place.is_some(), "{error}");
    let second =
        read_files(&[(Some(Kind::Axolotl), ConfigText { name: "a.yaml", text: "a: 1\n---\nb: 1\n" })]).unwrap_err();
    assert!(second.problem.contains("second document"), "{second}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}", at in 0..14_usize) {
        let (kind, name, _) = KINDS[at % KINDS.len()];
        for end in ["yaml", "json", "toml", "sh", "py", "ipynb"] {
            run(kind, &format!("{name}.{end}"), &text);
        }
    }

    #[test]
    fn damaged_files_are_read_or_refused(seed in 0..64_usize, cut in 0..4000_usize, with in "[\\PC\n\t]{0,4}", take in 0..40_usize) {
        let seeds = seeds();
        let (kind, name, text) = &seeds[seed % seeds.len()];
        let mut characters: Vec<char> = text.chars().collect();
        let at = cut % characters.len().max(1);
        let end = (at + take).min(characters.len());
        characters.splice(at..end, with.chars());
        run(*kind, name, &characters.into_iter().collect::<String>());
    }
}
