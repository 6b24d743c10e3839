//! What a probe saw is counted on: by the preflight, and said by an estimate. Over real PyTorch, and kept by hand.

use super::{Home, torch_python};

const JOB: &str =
    "model = \"gpt2\"\nmicro_batch_size = 4\nseq_len = 128\nprecision = \"amp-bf16\"\ngpu = \"8GiB,sm_90\"\n";

const SCRIPT: &str = r#"
import tonnage_guard, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
rows = [{"input_ids": (x := torch.randint(0, 50257, (length,))), "labels": x} for length in [16] * 400 + [128] * 40]
args = TrainingArguments("out", per_device_train_batch_size=4, max_steps=40, bf16=True, report_to=[], save_strategy="no")
trainer = Trainer(GPT2LMHeadModel(GPT2Config()), args, train_dataset=tonnage_guard.longest_first(rows))
trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
trainer.train()
"#;

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_probe_rehearses_where_there_is_no_gpu_and_is_counted_on() {
    let python = torch_python();
    let home = Home::new("probe");
    let job = home.write("job.toml", JOB);
    let script = home.write("train.py", SCRIPT);
    let output = home.run(&["probe", &job, "--rehearse", "--json", "--", &python, &script]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let probe: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(probe["by"], "rehearsed");
    let peak = |side: &str| probe[side]["peak_reserved_bytes"].as_f64().unwrap();
    // The longest rows came first, or it would be a third less.
    assert!((peak("rehearsed") / peak("predicted") - 1.0).abs() < 0.1, "{probe:#}");
    let kept = std::fs::read_to_string(home.path("home/corrections.json")).unwrap();
    assert!(kept.contains("a probe rehearsed "), "{kept}");
    let estimate = String::from_utf8(home.run(&["estimate", &job]).stdout).unwrap();
    assert!(estimate.contains("a probe rehearsed "), "{estimate}");
}

#[test]
fn what_was_seen_corrects_the_preflight() {
    let home = Home::new("probe-kept");
    let job = home.write("job.toml", JOB);
    let script = "exit 0";
    home.run(&["run", &job, "--", "sh", "-c", script]);
    let before = home.last();
    let values = before["record"]["job"]["values"].as_array().unwrap();
    let free = ["micro_batch_size", "gradient_accumulation_steps", "grpo.steps_per_generation", "gpu", "swarm.nodes"];
    let named: Vec<String> = values
        .iter()
        .map(|value| (value["key"].as_str().unwrap(), value["value"].as_str().unwrap()))
        .filter(|(key, _)| !free.contains(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let kept = serde_json::json!({named.join(" "): {
        "correction": {"offset_bytes": 20_u64 << 30, "evidence": "a probe measured 21.00 GiB reserved where 1.00 GiB was calculated"},
        "by": "measured", "micro_batch_size": 4, "calculated_bytes": 1_u64 << 30, "seen_bytes": 21_u64 << 30}});
    std::fs::write(home.path("home/corrections.json"), kept.to_string()).unwrap();
    assert_eq!(home.run(&["run", &job, "--", "sh", "-c", script]).status.code(), Some(1));
    let run = home.last();
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("(seen before: 20.00 GiB more than calculated)"), "{reason}");
    let estimate = String::from_utf8(home.run(&["estimate", &job]).stdout).unwrap();
    assert!(estimate.contains("a probe measured 21.00 GiB"), "{estimate}");
}

#[test]
fn what_a_probe_writes_for_its_command_is_in_a_folder_of_nobody_else() {
    let home = Home::new("probe-folder");
    let job = home.write("job.toml", JOB);
    let config = home.write("ds.json", "{\"train_micro_batch_size_per_gpu\": 1}");
    let temporary = home.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let script = "ls -ld \"$(dirname \"$2\")\"; echo \"$2\"";
    let words = ["probe", &job, "--rehearse", "--", "sh", "-c", script, "sh", "--deepspeed", &config];
    let output = home.command(&words).env("TMPDIR", &temporary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let told = said.lines().find(|line| line.starts_with(temporary.to_str().unwrap())).expect(&said);
    let name = std::path::Path::new(told).strip_prefix(&temporary).unwrap().iter().next().unwrap();
    // Six letters of mkdtemp, which nobody can guess: not the number of the process.
    let name = name.to_str().unwrap().strip_prefix("tonnage-").expect(told);
    assert!(name.len() == 6 && said.contains("drwx------"), "{said}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "it is removed at the end");
}
