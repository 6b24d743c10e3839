//! Every option that is printed exists: the words of all frameworks for all changes, against lists of their options that
//! `testdata/frameworks/flags.py` read in the installed packages.

use serde_json::Value;
use tonnage_core::job::{Framework, JobSpec, Task, from_case};
use tonnage_core::plan::framework::Line;
use tonnage_core::plan::remedy::Change;

const FLAGS: &str = include_str!("../../../testdata/frameworks/flags.json");

/// What remedies and searches change, each with the values that they write.
const CHANGES: &[(&str, &[&str])] = &[
    ("micro_batch_size", &["2"]),
    ("gradient_accumulation_steps", &["4"]),
    ("gradient_checkpointing", &["true"]),
    ("optimizer", &["adamw_fused", "adamw8bit"]),
    ("precision", &["amp-bf16", "bf16"]),
    ("attention", &["sdpa"]),
    ("loss", &["liger"]),
    ("lora.r", &["16"]),
    ("lora.targets", &["all-linear"]),
    ("seq_len", &["512"]),
    ("completion_len", &["128"]),
    ("world_size", &["1", "2", "8"]),
    ("parallel", &["ddp", "zero1", "fsdp1", "fsdp2"]),
    ("ddp.gradient_as_bucket_view", &["true"]),
    ("fsdp1.cpu_offload", &["true"]),
    ("fsdp2.cpu_offload", &["true"]),
    ("deepspeed.offload_optimizer", &["true"]),
    ("grpo.steps_per_generation", &["4"]),
    ("grpo.beta", &["0"]),
    ("grpo.log_probs", &["fused"]),
    ("vllm.sleep_mode", &["true"]),
    ("vllm.gpu_memory_utilization", &["0.33"]),
    ("dpo.precompute_ref_log_probs", &["true"]),
    ("judge.weights", &["int8", "nf4"]),
    ("judge.place", &["offload", "other_gpu"]),
    ("swarm.nodes", &["4"]),
    ("swarm.lease", &["1"]),
    ("allocator.expandable_segments", &["true"]),
];
const FRAMEWORKS: [Framework; 6] = [
    Framework::Trl,
    Framework::Trainer,
    Framework::Accelerate,
    Framework::DeepSpeed,
    Framework::Loop,
    Framework::RlSwarm,
];

/// The lists in which a framework's arguments, its launcher's flags and its config's keys are.
fn lists(framework: Framework, job: &JobSpec) -> [&'static str; 3] {
    match (framework, &job.task) {
        (Framework::Trl, Task::Grpo(_)) => ["/trl_grpo", "/accelerate", ""],
        (Framework::Trl, Task::Dpo(_)) => ["/trl_dpo", "/accelerate", ""],
        (Framework::Trl, _) => ["/trl_sft", "/accelerate", ""],
        (Framework::Trainer, _) => ["/trainer", "/accelerate", ""],
        (Framework::Accelerate, _) => ["", "/accelerate", ""],
        (Framework::DeepSpeed, _) => ["", "/deepspeed/launcher", "/deepspeed/config"],
        (Framework::Loop, _) => ["", "/torchrun", ""],
        (Framework::RlSwarm, _) => ["", "", ""],
    }
}

/// Which tasks a key is for.
fn is_for(key: &str, job: &JobSpec) -> bool {
    match key.split('.').next().unwrap() {
        "grpo" | "vllm" | "judge" => matches!(job.task, Task::Grpo(_)),
        "dpo" => matches!(job.task, Task::Dpo(_)),
        "kto" => matches!(job.task, Task::Kto(_)),
        "gkd" => matches!(job.task, Task::Gkd(_)),
        "ppo" => matches!(job.task, Task::Ppo(_)),
        "cpo" => matches!(job.task, Task::Pairs(_)),
        "reward" => matches!(job.task, Task::Reward(_)),
        "embedding" => matches!(job.task, Task::Embedding(_)),
        "swarm" => matches!(job.task, Task::Swarm(_)),
        "completion_len" => !matches!(job.task, Task::CausalLm),
        "seq_len" => matches!(job.task, Task::CausalLm),
        _ => true,
    }
}

/// A swarm's node is no trainer of TRL, and the other way round.
fn trains(framework: Framework, job: &JobSpec) -> bool {
    matches!(job.task, Task::Swarm(_)) == (framework == Framework::RlSwarm)
}

fn jobs() -> Vec<JobSpec> {
    let kinds = [
        serde_json::json!({"micro_batch": 4}),
        serde_json::json!({"kind": "trl_grpo", "batch": 8, "num_generations": 4}),
        serde_json::json!({"kind": "swarm_node"}),
    ];
    let mut jobs: Vec<JobSpec> = kinds.iter().map(|case| from_case(case).unwrap()).collect();
    let dpo = "model = \"gpt2\"\ntask = \"dpo\"\nprompt_len = 8\ncompletion_len = 8\n";
    let dpo = tonnage_core::job::JobSource::from_file("job.toml", dpo).resolve(&[]);
    jobs.push(dpo.unwrap().job);
    jobs
}

/// The options of a line that are in none of the framework's lists.
fn unknown(flags: &Value, framework: Framework, job: &JobSpec, line: &Line) -> Vec<String> {
    let [arguments, launcher, config] = lists(framework, job);
    let names = |list: &str| flags.pointer(list).and_then(Value::as_array).cloned().unwrap_or_default();
    let is_in = |list: &str, name: &str| names(list).iter().any(|known| known == name);
    let dashed = |list: &str, text: &str| -> Vec<String> {
        text.split(' ').filter(|word| word.starts_with("--") && !is_in(list, word)).map(str::to_owned).collect()
    };
    match line {
        Line::Argument(text) => dashed(arguments, text),
        Line::Launcher(text) => dashed(launcher, text),
        Line::Config(text) => {
            let name = text.split('"').nth(1).unwrap();
            if is_in(config, name) { Vec::new() } else { vec![name.to_owned()] }
        }
        Line::Environment(_) | Line::Code(_) | Line::Remark(_) => Vec::new(),
    }
}

#[test]
fn every_printed_option_exists() {
    let flags: Value = serde_json::from_str(FLAGS).unwrap();
    let (mut wrong, mut options) = (Vec::new(), 0);
    for job in &jobs() {
        for framework in FRAMEWORKS.into_iter().filter(|framework| trains(*framework, job)) {
            for (key, values) in CHANGES.iter().filter(|(key, _)| is_for(key, job)) {
                for value in *values {
                    let changes: [Change; 1] = [(*key, (*value).to_owned())];
                    let patch = framework.patch(job, &changes);
                    options +=
                        patch.lines.iter().filter(|line| matches!(line.place(), "argument" | "launcher")).count();
                    for name in patch.lines.iter().flat_map(|line| unknown(&flags, framework, job, line)) {
                        wrong.push(format!("{framework:?}: {key} = {value}: {name}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(options > 80, "{options}");
}

#[test]
fn every_printed_value_is_one_of_the_options() {
    let flags: Value = serde_json::from_str(FLAGS).unwrap();
    let choices = [("--optim", "/optim"), ("--mixed_precision", "/mixed_precision")];
    let mut seen = 0;
    for job in &jobs() {
        for framework in FRAMEWORKS.into_iter().filter(|framework| trains(*framework, job)) {
            for (key, values) in CHANGES.iter().filter(|(key, _)| is_for(key, job)) {
                for value in *values {
                    let changes: [Change; 1] = [(*key, (*value).to_owned())];
                    let text = framework.patch(job, &changes).command(framework);
                    let words: Vec<&str> = text.split(' ').collect();
                    for (option, list) in choices {
                        let Some(at) = words.iter().position(|word| *word == option) else { continue };
                        let known = flags.pointer(list).unwrap().as_array().unwrap();
                        assert!(known.iter().any(|choice| choice == words[at + 1]), "{text}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(seen >= 6, "{seen}");
}

/// rl-swarm reads overrides of a config that says which groups there are (rgym_exp/config/rg-swarm.yaml).
#[test]
fn overrides_of_the_swarm_are_of_its_config() {
    const GROUPS: [&str; 3] =
        ["training.dtype", "game_manager.trainer.config.max_new_tokens", "game_manager.trainer.models.0."];
    for job in jobs().iter().filter(|job| matches!(job.task, Task::Swarm(_))) {
        for (key, values) in CHANGES.iter().filter(|(key, _)| is_for(key, job)) {
            let changes: [Change; 1] = [(*key, values[0].to_owned())];
            for line in Framework::RlSwarm.patch(job, &changes).lines {
                if let Line::Argument(text) = line {
                    let name = text.trim_start_matches('+').split('=').next().unwrap().to_owned();
                    assert!(GROUPS.iter().any(|group| name.starts_with(group)), "{text}");
                }
            }
        }
    }
}
