//! A walk over all adapters: each knows its own command and no other's, says a key there, and is in the list once.

use std::path::Path;
use tonnage_core::job::keys;

use super::{ADAPTERS, takes_key};

/// An adapter, a command of its own, a key, and the command with the key set to 4.
const CASES: &[(&str, &str, &str, &str)] = &[
    (
        "Hugging Face Trainer",
        "python t.py --per_device_train_batch_size 16 --output_dir out",
        keys::MICRO_BATCH_SIZE,
        "python t.py --per_device_train_batch_size 4 --output_dir out",
    ),
    (
        "TRL",
        "trl grpo --num_generations 8 --steps_per_generation 2",
        keys::GRPO_STEPS_PER_GENERATION,
        "trl grpo --num_generations 8 --steps_per_generation 4",
    ),
    (
        "accelerate launch",
        "accelerate launch --gradient_accumulation_steps=2 t.py --gradient_accumulation_steps 9",
        keys::GRADIENT_ACCUMULATION_STEPS,
        "accelerate launch --gradient_accumulation_steps=4 t.py --gradient_accumulation_steps 9",
    ),
    (
        "DeepSpeed",
        "deepspeed t.py --deepspeed_config FOLDER/ds.json",
        keys::MICRO_BATCH_SIZE,
        "deepspeed t.py --deepspeed_config FOLDER/deepspeed.json",
    ),
    (
        "torchrun",
        "torchrun --standalone --nproc_per_node 2 t.py",
        "",
        "torchrun --log-dir FOLDER/ranks --tee 3 --standalone --nproc_per_node 2 t.py",
    ),
];

fn split_words(text: &str, folder: &Path) -> Vec<String> {
    text.replace("FOLDER", &folder.display().to_string()).split(' ').map(str::to_owned).collect()
}

#[test]
fn every_adapter_says_its_keys_in_its_own_commands() {
    let folder = std::env::temp_dir().join(format!("tonnage-walk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config =
        r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": "auto"}"#;
    std::fs::write(folder.join("ds.json"), config).unwrap();
    for adapter in ADAPTERS {
        let (_, command, key, wanted) = CASES.iter().find(|case| case.0 == adapter.name).expect(adapter.name);
        let mut argv = split_words(command, &folder);
        assert!((adapter.matches)(&argv), "{command}");
        let said = (adapter.set)(&mut argv, key, "4", &folder).unwrap();
        (adapter.finish)(&mut argv, &folder);
        assert_eq!((said, argv), (!key.is_empty(), split_words(wanted, &folder)));
        for (name, other, ..) in CASES.iter().filter(|case| case.0 != adapter.name) {
            assert!(
                !(adapter.matches)(&split_words(other, &folder)),
                "{} takes {name}'s command for its own",
                adapter.name
            );
        }
    }
    assert_eq!(CASES.len(), ADAPTERS.len());
    let copy: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("deepspeed.json")).unwrap()).unwrap();
    assert_eq!(copy["train_micro_batch_size_per_gpu"], 4);
    assert_eq!(copy[keys::GRADIENT_ACCUMULATION_STEPS], "auto");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn deepspeeds_auto_is_said_by_the_trainer() {
    let folder = std::env::temp_dir().join(format!("tonnage-auto-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = r#"{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}"#;
    std::fs::write(folder.join("ds.json"), config).unwrap();
    let alone = split_words("deepspeed t.py --deepspeed FOLDER/ds.json", &folder);
    let trainer = [alone.clone(), split_words("--per_device_train_batch_size 16", &folder)].concat();
    // The Trainer fills in what is "auto"; without its flags nobody does.
    assert!(takes_key(&trainer, keys::MICRO_BATCH_SIZE) && !takes_key(&alone, keys::MICRO_BATCH_SIZE));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn scripts_with_flags_of_their_own_are_left_alone() {
    let folder = Path::new("");
    for command in ["python t.py --output_dir out --batch-size 8", "python t.py --config a.json", "sh -c torchrun"] {
        let argv = split_words(command, folder);
        assert!(!takes_key(&argv, keys::MICRO_BATCH_SIZE), "{command}");
    }
}
