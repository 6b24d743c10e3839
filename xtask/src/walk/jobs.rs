//! The calls: a job of each task, each key and field with each value, through each command.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tonnage_core::job::KEYS;

use super::values;

/// One command line.
pub struct Call {
    pub words: Vec<String>,
    pub folder: PathBuf,
}

impl Call {
    /// The command line, long words cut.
    pub fn text(&self) -> String {
        let cut = |word: &String| match word.char_indices().nth(60) {
            Some((at, _)) => format!("{}…", &word[..at]),
            None => word.clone(),
        };
        let name = self.folder.display().to_string();
        self.words.iter().map(|word| cut(&word.replace(&format!("{name}/"), ""))).collect::<Vec<_>>().join(" ")
    }
}

/// Small models, each with what its task needs.
const LLAMA: &str = r#"model = { model_type = "llama", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, num_key_value_heads = 2, vocab_size = 500, max_position_embeddings = 4096 }"#;
const BERT: &str = r#"model = { model_type = "bert", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 128, num_attention_heads = 4, vocab_size = 500 }"#;
const GEMMA: &str = r#"model = { model_type = "gemma2", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 128, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16, vocab_size = 500, sliding_window = 64 }"#;
const HRM: &str = r#"model = { model_type = "hrm", vocab_size = 11 }"#;

/// A name, and the job's file.
fn job_texts() -> Vec<(&'static str, String)> {
    let with = |model: &str, rest: &str| format!("{model}\n{rest}\n");
    vec![
        ("train", with(LLAMA, "seq_len = 64")),
        ("lora", with(LLAMA, "seq_len = 64\nlora = { r = 4 }\nframework = \"trl\"")),
        ("ddp", with(LLAMA, "seq_len = 64\nworld_size = 4\nparallel = \"ddp\"")),
        ("fsdp2", with(LLAMA, "seq_len = 64\nworld_size = 4\nparallel = \"fsdp2\"\nframework = \"loop\"")),
        ("masked", with(BERT, "task = \"masked_lm\"\nseq_len = 64")),
        ("forward", with(GEMMA, "task = \"inference_forward\"\nseq_len = 64")),
        ("generate", with(GEMMA, "task = \"generate\"\nseq_len = 64\nmax_new_tokens = 8")),
        (
            "grpo",
            with(
                LLAMA,
                "task = \"grpo\"\nprompt_len = 8\ncompletion_len = 8\nnum_generations = 4\nmicro_batch_size = 4",
            ),
        ),
        ("dpo", with(LLAMA, "task = \"dpo\"\nprompt_len = 8\ncompletion_len = 8")),
        ("kto", with(LLAMA, "task = \"kto\"\nprompt_len = 8\ncompletion_len = 8\nmicro_batch_size = 4")),
        (
            "gkd",
            with(
                &LLAMA.replace("vocab_size = 500", "vocab_size = 50257"),
                "task = \"gkd\"\nprompt_len = 8\ncompletion_len = 8\ngkd.teacher_model = \"distilgpt2\"\ngkd.max_new_tokens = 8",
            ),
        ),
        ("ppo", with(LLAMA, "task = \"ppo\"\nprompt_len = 8\ncompletion_len = 8\nppo.reward_model = \"qwen2.5-0.5b\"")),
        ("orpo", with(LLAMA, "task = \"orpo\"\nprompt_len = 8\ncompletion_len = 8")),
        ("cpo", with(LLAMA, "task = \"cpo\"\nprompt_len = 8\ncompletion_len = 8")),
        ("rloo", with(LLAMA, "task = \"rloo\"\nprompt_len = 8\ncompletion_len = 8\nmicro_batch_size = 4")),
        ("reward", with(LLAMA, "task = \"reward\"\nseq_len = 64")),
        ("contrastive", "model = \"clip-vit-base-patch32\"\nmicro_batch_size = 2\n".to_owned()),
        ("embedding", with(BERT, "task = \"embedding\"\nseq_len = 64\nembedding.mini_batch_size = 1")),
        ("classes", with(LLAMA, "task = \"sequence_classification\"\nseq_len = 64")),
        ("swarm", with(LLAMA, "task = \"swarm\"\nprompt_len = 8\ncompletion_len = 8\nnum_generations = 4")),
        ("hrm", with(HRM, "task = \"hrm\"\nseq_len = 64")),
        // A model as people have it, of which every pass makes many events.
        ("large", "model = \"qwen2.5-7b\"\nseq_len = 1024\nprecision = \"bf16\"\n".to_owned()),
        ("large_grpo", "model = \"qwen2.5-7b\"\ntask = \"grpo\"\ncompletion_len = 64\n".to_owned()),
    ]
}

/// Fields of a config that make sizes.
const FIELDS: [&str; 10] = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
    "tie_word_embeddings",
];

/// Flags that are no keys, by command.
const FLAGS: [(&str, &str); 9] = [
    ("cost", "--price"),
    ("cost", "--train-tokens"),
    ("cost", "--max-steps"),
    ("plan", "--budget"),
    ("plan", "--train-tokens"),
    ("fit", "--rows"),
    ("fit", "--solve"),
    ("fit", "--gpus"),
    ("estimate", "--fail-on"),
];

/// Every call, in an order that is always the same.
pub fn make_calls(folder: &Path) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for (name, text) in job_texts() {
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, text)?;
        let file = file.display().to_string();
        let keys = KEYS.iter().map(|key| (key.name.to_owned(), values::of_key(key)));
        let fields = FIELDS.iter().map(|field| (format!("model.{field}"), values::of_field()));
        for (key, values) in keys.chain(fields) {
            for value in values {
                calls.push(make_call(folder, &["estimate", &file, "--set", &format!("{key}={value}")]));
                // The other commands in turn: they work on the same jobs.
                calls.push(match calls.len() / 2 % 4 {
                    0 => make_call(folder, &["estimate", &file, "--compare", &format!("{key}={value},1")]),
                    2 => make_call(folder, &["fit", &file, "--set", &format!("{key}={value}")]),
                    // These ask for a GPU, and end there without one.
                    at => {
                        let command = if at == 1 { "plan" } else { "cost" };
                        make_call(folder, &[command, &file, "--gpu", "h100", "--set", &format!("{key}={value}")])
                    }
                });
            }
        }
        for (command, flag) in FLAGS {
            for value in values::of_field() {
                calls.push(make_call(folder, &[command, &file, &format!("{flag}={value}")]));
            }
        }
    }
    Ok(calls)
}

fn make_call(folder: &Path, words: &[&str]) -> Call {
    Call { words: words.iter().map(|word| (*word).to_owned()).collect(), folder: folder.to_owned() }
}
