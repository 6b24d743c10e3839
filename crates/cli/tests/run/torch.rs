//! Real PyTorch over a GPU that is not there; only where `TONNAGE_TORCH_PYTHON` names a Python with PyTorch,
//! transformers and accelerate, and `TONNAGE_TORCH_PRELOAD` the library that stands in for the driver.

use super::Home;

/// A Trainer with a small GPT-2: micro-batch and accumulation by the Trainer's own flags.
const TRAINER: &str = include_str!("trainer.py");

const JOB: &str = r#"
model = "gpt2"
micro_batch_size = 32
seq_len = 512
precision = "amp-bf16"
gpu = "8GiB,sm_90"
"#;

/// A home with the script, and the words that start it; `None` without PyTorch.
fn trainer(name: &str) -> Option<(Home, Vec<String>)> {
    let python = std::env::var("TONNAGE_TORCH_PYTHON").ok()?;
    let preload = std::env::var("TONNAGE_TORCH_PRELOAD").unwrap_or_default();
    let home = Home::new(name);
    let script = home.write("trainer.py", TRAINER);
    let words =
        ["env", &format!("LD_PRELOAD={preload}"), "FAKECUDA_TOTAL_MIB=8192", "TORCH_CUDNN_SDPA_DEPRIORITIZED=1"];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.extend([python, script]);
    Some((home, words))
}

fn run(home: &Home, options: &[&str], command: &[String], flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut words = vec!["run"];
    words.extend(options);
    words.push("--");
    words.extend(command.iter().map(String::as_str));
    words.extend(flags);
    let output = home.run(&words);
    (output.status.code(), home.last())
}

#[test]
fn a_script_too_big_ends_trained() {
    let Some((home, command)) = trainer("torch-too-big") else { return };
    let job = home.write("job.toml", JOB);
    let flags = ["--per_device_train_batch_size", "32", "--gradient_accumulation_steps", "1"];
    let (code, run) = run(&home, &[&job, "--force"], &command, &flags);
    assert_eq!(code, Some(0), "{run:#}");
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "one failure, and one computed batch: {run:#}");
    assert_eq!(attempts[0]["failure"]["class"], "gpu_memory");
    assert_eq!(run["effective_batch_size"], 32);
    let log = String::from_utf8(home.run(&["logs"]).stdout).unwrap();
    assert!(log.contains("TRAINED rows per step 32 "), "{log}");
}

#[test]
fn a_leak_is_told_from_a_script_too_big() {
    let Some((home, command)) = trainer("torch-leak") else { return };
    let job = home.write("job.toml", &JOB.replace("= 32", "= 4"));
    let flags = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1", "--leak", "300"];
    let (code, run) = run(&home, &[&job], &command, &flags);
    assert_eq!(code, Some(1));
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1);
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("memory grows:"), "{:#}", run["result"]);
}
