//! How a command is told its batch: by `{templates}`, by the flags of a trainer it uses, by variables, by a file.
//!
//! One more trainer or launcher is one file here and one line in [`ADAPTERS`].

mod accelerate;
mod allocator;
mod deepspeed;
mod flags;
mod hf_trainer;
mod template;
mod torchrun;
mod trl;
#[cfg(test)]
mod walk;

use std::path::{Path, PathBuf};

use tonnage_core::job::keys::{GRADIENT_ACCUMULATION_STEPS, GRPO_STEPS_PER_GENERATION, MICRO_BATCH_SIZE};
use tonnage_core::record::{BatchRecord, ChangeRecord, JobRecord, NodeRecord};

pub use template::{check_placeholders, escape_value};

pub use allocator::{TorchVersion, allocator_environment, find_torch};

use crate::RunError;
use crate::store::write_for_now;

/// The values that an attempt is started with.
#[derive(Clone, Debug, Default)]
pub struct Injection<'a> {
    /// The batch, where the job has one.
    pub batch: Option<BatchRecord>,
    /// Other keys and their values.
    pub changes: &'a [ChangeRecord],
    /// The checkpoint to go on from.
    pub resume_from: Option<&'a str>,
    /// The process of a swarm.
    pub node: Option<&'a NodeRecord>,
    /// The job, whose other values templates may name.
    pub job: Option<&'a JobRecord>,
    pub attempt: u32,
    /// Where the attempt's files go.
    pub folder: PathBuf,
}

/// How values reach one trainer or launcher.
pub struct Adapter {
    pub name: &'static str,
    /// Whether the command uses it.
    pub matches: fn(&[String]) -> bool,
    /// Changes the command so that `key` is `value`; `false` where it has no way to say so.
    pub set: fn(&mut Vec<String>, key: &str, value: &str, folder: &Path) -> Result<bool, RunError>,
    /// What is done to every attempt, once its values are set.
    pub finish: fn(&mut Vec<String>, folder: &Path),
}

/// All of them. A trainer comes before the launchers that carry it: the flag of the script wins over the launcher's.
pub const ADAPTERS: &[&Adapter] =
    &[&trl::TRL, &hf_trainer::HF_TRAINER, &deepspeed::DEEPSPEED, &accelerate::ACCELERATE, &torchrun::TORCHRUN];

/// A command that is ready to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    pub argv: Vec<String>,
    /// Variables to set.
    pub environment: Vec<(String, String)>,
    /// What could not be written that a command can do without.
    pub warning: Option<String>,
}

/// Whether `key` can be given to the command: a template names it, or an adapter has a flag for it.
pub fn takes_key(command: &[String], key: &str) -> bool {
    if template::names_key(command, key) || allocator::takes_key(key) {
        return true;
    }
    // To ask is to try on a copy; what would be written goes nowhere.
    let knows = |adapter: &Adapter| matches!((adapter.set)(&mut command.to_vec(), key, "1", Path::new("")), Ok(true));
    ADAPTERS.iter().filter(|adapter| (adapter.matches)(command)).any(|adapter| knows(adapter))
}

/// Puts the values of an attempt into its command, environment and files.
///
/// # Errors
/// When a file that says it cannot be written.
pub fn inject(command: &[String], injection: &Injection<'_>) -> Result<Injected, RunError> {
    let overrides = injection.folder.join("overrides.json");
    let values = values(injection);
    // The variables say the same.
    let warning = write_for_now(&overrides, overrides_text(&values).as_bytes()).err().map(|error| error.to_string());
    let words = template::Words { values: &values, injection, overrides: &overrides };
    let mut argv = template::fill_placeholders(command, &words);
    for adapter in ADAPTERS.iter().filter(|adapter| (adapter.matches)(command)) {
        for (key, value) in values.iter().filter(|(key, _)| !template::names_key(command, key)) {
            (adapter.set)(&mut argv, key, value, &injection.folder)?;
        }
        (adapter.finish)(&mut argv, &injection.folder);
    }
    Ok(Injected { argv, environment: environment(injection, &values, &overrides), warning })
}

/// Keys and values in the words of a job.
fn values(injection: &Injection<'_>) -> Vec<(String, String)> {
    let mut values = Vec::new();
    if let Some(batch) = &injection.batch {
        values.push((MICRO_BATCH_SIZE.to_owned(), batch.micro_batch_size.to_string()));
        values.push((GRADIENT_ACCUMULATION_STEPS.to_owned(), batch.gradient_accumulation_steps.to_string()));
        let steps = batch.steps_per_generation.map(|steps| (GRPO_STEPS_PER_GENERATION.to_owned(), steps.to_string()));
        values.extend(steps);
    }
    values.extend(injection.changes.iter().map(|change| (change.key.clone(), change.value.clone())));
    values.extend(injection.resume_from.map(|path| (RESUME.to_owned(), path.to_owned())));
    values
}

/// The key of the checkpoint to go on from; no key of a job.
pub const RESUME: &str = "resume_from_checkpoint";

fn overrides_text(values: &[(String, String)]) -> String {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::from(text));
    let fields: serde_json::Map<_, _> = values.iter().map(|(key, text)| (key.clone(), value(text))).collect();
    format!("{:#}\n", serde_json::Value::Object(fields))
}

/// `TONNAGE_` and the key in capitals, for every value.
fn environment(injection: &Injection<'_>, values: &[(String, String)], overrides: &Path) -> Vec<(String, String)> {
    let mut environment: Vec<_> = values.iter().map(|(key, value)| (variable(key), value.clone())).collect();
    let mut set = |name: &str, value: String| environment.push((name.to_owned(), value));
    set("TONNAGE_OVERRIDES", overrides.display().to_string());
    set("TONNAGE_ATTEMPT", injection.attempt.to_string());
    set("TONNAGE_ATTEMPT_DIR", injection.folder.display().to_string());
    if let Some(node) = injection.node.filter(|node| !node.name.is_empty()) {
        set("TONNAGE_NODE", node.index.to_string());
        set("TONNAGE_NODE_NAME", node.name.clone());
        set("TONNAGE_ROLE", node.role.clone());
        set("TONNAGE_SEED", node.seed.to_string());
    }
    if let Some(gpu) = injection.node.and_then(|node| node.gpu.clone()) {
        set("CUDA_VISIBLE_DEVICES", gpu);
    }
    environment
}

fn variable(key: &str) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    format!("TONNAGE_{}", last.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn injected(command: &str, resume_from: Option<&str>) -> Injected {
        let folder = std::env::temp_dir().join(format!("tonnage-tell-{}-{}", std::process::id(), command.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let batch = BatchRecord {
            micro_batch_size: 4,
            gradient_accumulation_steps: 8,
            steps_per_generation: None,
            world_size: 1,
            effective_batch_size: 32,
        };
        let injection =
            Injection { batch: Some(batch), resume_from, attempt: 2, folder: folder.clone(), ..Injection::default() };
        let injected = inject(&words(command), &injection).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        injected
    }

    #[test]
    fn every_way_to_be_told() {
        let hf = "python t.py --per_device_train_batch_size 16 --gradient_accumulation_steps=2";
        let cases = [
            ("train --b={micro_batch_size} {gradient_accumulation_steps}x", None, "train --b=4 8x"),
            (hf, None, "python t.py --per_device_train_batch_size 4 --gradient_accumulation_steps=8"),
            (
                hf,
                Some("out/checkpoint-3"),
                "python t.py --per_device_train_batch_size 4 --gradient_accumulation_steps=8 --resume_from_checkpoint \
                 out/checkpoint-3",
            ),
            ("t --from {resume_from_checkpoint} -x", None, "t -x"),
            ("t --from {resume_from_checkpoint} -x", Some("c"), "t --from c -x"),
            ("t --from={resume_from_checkpoint}", None, "t"),
            ("t {unknown} {\"json\":1} ${x}", None, "t {unknown} {\"json\":1} ${x}"),
            ("t {{attempt}} {{}} a{{x}} {attempt} {{atempt}}", None, "t {attempt} {{}} a{{x}} 2 {atempt}"),
        ];
        for (command, resume_from, wanted) in cases {
            assert_eq!(injected(command, resume_from).argv, words(wanted), "{command}");
        }
    }

    #[test]
    fn values_are_words_not_shell() {
        assert_eq!(injected("t {resume_from_checkpoint}", Some("a b; rm *")).argv, ["t", "a b; rm *"]);
    }

    #[test]
    fn variables_say_it_too() {
        let environment = injected("anything", None).environment;
        assert!(environment.contains(&("TONNAGE_MICRO_BATCH_SIZE".to_owned(), "4".to_owned())));
        assert!(environment.contains(&("TONNAGE_GRADIENT_ACCUMULATION_STEPS".to_owned(), "8".to_owned())));
    }

    #[test]
    fn what_a_command_can_be_told() {
        assert!(takes_key(&words("t {micro_batch_size}"), "micro_batch_size"));
        assert!(!takes_key(&words("t"), "micro_batch_size"));
        assert!(takes_key(&words("t --per_device_train_batch_size 3"), "gradient_checkpointing"));
        assert!(!takes_key(&words("t --per_device_train_batch_size 3"), "lora.r"));
        assert!(takes_key(&words("anything"), "allocator.expandable_segments"));
    }
}
