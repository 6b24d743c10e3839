//! A sample of `cargo xtask walk`: keys with values beyond reason are answered or refused with a word, by every command.

use std::process::Output;

use tonnage_core::job::{KEYS, Kind};

use super::command;

const LLAMA: &str = "model.num_hidden_layers=2 model.hidden_size=64 model.intermediate_size=160 model.num_attention_heads=4 \
                     model.num_key_value_heads=2 model.vocab_size=500";
/// Jobs that are small until a key says otherwise.
const JOBS: [&str; 4] = [
    "seq_len=64",
    "task=grpo prompt_len=8 completion_len=8 num_generations=4 micro_batch_size=4",
    "task=swarm prompt_len=8 completion_len=8 num_generations=4",
    "task=generate seq_len=16 max_new_tokens=4",
];
const COMMANDS: [&str; 4] = ["estimate", "plan", "fit", "cost"];
const STRANGE: [&str; 7] = ["0", "-1", "nan", "18446744073709551616", "1e308", "ünï-日本", ""];

fn run(at: usize, key: &str, value: &str) -> Output {
    let assignments = format!("{LLAMA} {}", JOBS[at % JOBS.len()]);
    let mut words = vec![COMMANDS[at / JOBS.len() % COMMANDS.len()], "llama-3.2-1b", "--gpu", "h100"];
    words.extend(assignments.split_whitespace().flat_map(|assignment| ["--set", assignment]));
    let last = format!("{key}={value}");
    words.extend(["--set", &last]);
    command(&words).output().unwrap()
}

fn check(at: usize, key: &str, value: &str) {
    let output = run(at, key, value);
    let told = String::from_utf8_lossy(&output.stderr);
    let shown: String = value.chars().take(40).collect();
    assert!(matches!(output.status.code(), Some(0..=3)), "{key}={shown}: {:?} {told}", output.status);
    assert!(!told.contains("panicked at"), "{key}={shown}: {told}");
    assert!(told.len() < 8 << 10, "{key}={shown}: {} bytes of errors", told.len());
    assert!(output.status.code() != Some(2) || !told.trim().is_empty(), "{key}={shown}: refused without a word");
}

#[test]
fn the_greatest_value_of_every_key_is_answered_or_refused() {
    for (at, key) in KEYS.iter().enumerate() {
        let greatest = match key.kind {
            Kind::Size { max, .. } => max.to_string(),
            Kind::Number { max, .. } => max.to_string(),
            _ => "x".repeat(20_000),
        };
        check(at, key.name, &greatest);
    }
}

#[test]
fn a_value_that_suits_no_key_is_refused_with_a_word() {
    for (at, key) in KEYS.iter().enumerate() {
        check(at + 1, key.name, STRANGE[at % STRANGE.len()]);
    }
}
