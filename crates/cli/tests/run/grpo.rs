//! `tonnage train` of jobs of GRPO over a real PyTorch, on the CPU and over a GPU that is not there. Ignored unless asked for:
//! `TONNAGE_TORCH_PYTHON` names a Python with PyTorch.

use std::fs;

use serde_json::Value;

use super::Home;
use super::train::{rehearsed, repository, run, same_files, succeeded};

/// Two micro-batches generated at once, trained on twice: a step of one pass ends in the middle of a generation batch.
const WITHIN_BATCHES: &[&str] = &[
    "--micro-batch-size=16",
    "--gradient-accumulation-steps=1",
    "--grpo-steps-per-generation=2",
    "--grpo-num-iterations=2",
    "--grpo-beta=0.04",
    "--max-steps=7",
    "--save-steps=3",
    "--save-total-limit=9",
    "--eval-steps=2",
    "--grpo-eval-questions=16",
    "--grpo-question-level=1",
    "--grpo-warm-start-reward=0.1",
    "--learning-rate=1e-3",
    "--logging-steps=1",
];

fn home(name: &str) -> Home {
    let home = Home::new(name);
    let job = fs::read_to_string(repository().join("examples/grpo-arithmetic.toml")).expect("the example is there");
    home.write("job.toml", &job);
    home
}

fn train(home: &Home, output: &str, more: &[&str]) -> std::process::Output {
    let words = ["train", "job.toml", "--no-rehearsal", "--output-dir", output];
    run(home, &[&words, WITHIN_BATCHES, more].concat())
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn going_on_within_a_generation_batch_is_never_having_stopped() {
    let home = home("grpo-resume");
    succeeded(&train(&home, "whole", &[]));
    // Another folder has the first checkpoint alone, which lies in the middle of a generation batch.
    let within = home.path("whole/checkpoint-3");
    assert!(within.join("generation_batch.safetensors").is_file(), "passes 3 to 4 of 4 are to come");
    fs::create_dir_all(home.path("again/checkpoint-3")).unwrap();
    for file in fs::read_dir(&within).unwrap().flatten() {
        fs::copy(file.path(), home.path("again/checkpoint-3").join(file.file_name())).unwrap();
    }
    succeeded(&train(&home, "again", &["--resume"]));
    for step in [6, 7] {
        let [whole, again] = ["whole", "again"].map(|folder| home.path(&format!("{folder}/checkpoint-{step}")));
        same_files(&whole, &again);
    }
    let weights = |step| fs::read(home.path(&format!("whole/checkpoint-{step}/model.safetensors"))).unwrap();
    assert!(weights(3) != weights(7), "what came after the first checkpoint changed the model");
    // The curve has every step once, with what the report reads.
    let text = fs::read_to_string(home.path("whole/metrics.jsonl")).unwrap();
    let points: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rewards: Vec<f64> = points.iter().filter_map(|point| point["metrics"]["reward"].as_f64()).collect();
    assert!(rewards.len() == 7 && rewards.iter().any(|reward| *reward > 0.0), "{rewards:?}");
    for name in
        ["reward_group_variance", "frac_reward_at_floor", "kl", "entropy", "tokens_generated", "seconds_sampling"]
    {
        assert!(points.iter().any(|point| point["metrics"][name].as_f64().is_some_and(f64::is_finite)), "{name}");
    }
    assert!(points.iter().any(|point| point["metrics"]["eval/reward_sampled"].is_f64()));
    // Another number of groups is another training.
    let other = train(&home, "again", &["--resume", "--num-generations=4"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned() + &String::from_utf8_lossy(&other.stdout);
    assert!(!other.status.success() && said.contains("another training"), "{said}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_is_estimated_of_grpo_is_what_runs_to_the_byte() {
    let home = home("grpo-rehearsed");
    let variants: [&[&str]; 9] = [
        &[],
        &["--grpo-beta=0.04"],
        &["--gradient-accumulation-steps=4", "--micro-batch-size=16"],
        &["--grpo-num-iterations=2"],
        &["--gradient-accumulation-steps=2", "--grpo-steps-per-generation=4", "--micro-batch-size=16"],
        &["--precision=amp-bf16", "--optimizer=adamw_fused"],
        &["--precision=bf16"],
        &["--gradient-checkpointing=true"],
        &[
            "--prompt-len=100",
            "--completion-len=156",
            "--set=model.n_positions=256",
            "--set=model.vocab_size=5000",
            "--micro-batch-size=8",
        ],
    ];
    for variant in variants {
        rehearsed(&home, &[&["job.toml"], variant].concat());
    }
}
