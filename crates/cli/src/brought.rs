//! Flags as other programs have them (`--per_device_train_batch_size 8`) in our words, before they are parsed; what means
//! something else here is refused with what to write instead.

use std::ffi::{OsStr, OsString};
use tonnage_config::Rule;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::keys;

use tonnage_core::job::words::{self, Meaning};
use tonnage_core::job::{Key, Kind, Override};

use crate::command::line::build_command;
use crate::failure::Failure;

/// The words of the command line, those of other programs replaced. What follows `--` is another program's.
///
/// # Errors
/// With a sentence, for a word that has no equal here.
pub fn translate_flags(typed: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let Some(own) = typed.get(1).and_then(|name| flags_of_job_command(name.to_str()?)) else { return Ok(typed) };
    let mut words = Vec::with_capacity(typed.len());
    let mut rest = typed.iter().cloned().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            words.push(word);
            words.extend(rest);
            break;
        }
        if let Some(failure) = half_of_a_switch(&word, rest.peek()) {
            return Err(failure);
        }
        let Some((name, value)) = foreign_flag(&word, &own) else {
            words.push(word);
            continue;
        };
        match words::meaning_of_name(&name) {
            // Ours is no flag but the first word.
            None if name == keys::MODEL => words.extend(value.map(OsString::from)),
            Some(Meaning::Key(keys::MODEL)) => words.extend(value.map(OsString::from)),
            // A number of GPUs is one of ranks; `4090` is a GPU.
            Some(Meaning::Key(keys::WORLD_SIZE)) if names_a_gpu(value.as_deref(), rest.peek()) => {
                words.push(flag_for(keys::GPU, value.as_deref()));
            }
            Some(Meaning::Key(key)) => words.push(flag_for(key, value.as_deref())),
            Some(Meaning::Says(_) | Meaning::Sentence(_)) if is_off(value.as_deref(), rest.peek()) => {
                rest.next_if(|_| value.is_none());
            }
            Some(Meaning::Says(says)) => {
                rest.next_if(|next| value.is_none() && is_truth(next));
                words.extend(says.iter().filter_map(|(key, text)| value_typed_for(key, text, &typed)));
            }
            Some(Meaning::Sentence(sentence)) => {
                return Err(Failure::bad_input(format!("`--{name}` is no flag here")).with_hint(sentence));
            }
            // A flag of ours with `_` for `-`, or one that nobody knows.
            None if own.contains(&name) => words.push(join_flag(&name, value.as_deref())),
            None => match said_of_configs(&name) {
                Some(hint) => return Err(Failure::bad_input(format!("`--{name}` is no flag here")).with_hint(hint)),
                None => words.push(join_flag(&name, value.as_deref())),
            },
        }
    }
    Ok(words)
}

/// A word behind a switch of ours that other programs have with values: `--device-map auto`, accelerate's `--mixed-precision bf16`
/// (a small GPT's switch here).
fn half_of_a_switch(word: &OsStr, next: Option<&OsString>) -> Option<Failure> {
    let word = word.to_str()?.replace('_', "-");
    let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
    let value = value.or_else(|| next?.to_str())?;
    let is_precision = || {
        let is_word = words::meaning_of_value(keys::PRECISION, &value.into()).is_some();
        is_word || Override::caller(keys::PRECISION, value).check().is_ok()
    };
    let meaning = match Key::find(name.strip_prefix("--")?).filter(|key| matches!(key.kind, Kind::Switch)) {
        Some(key) => words::meaning_of_value(key.name, &value.into()),
        None => words::meaning_of_name(name).filter(|_| name == "--mixed-precision" && is_precision()),
    };
    match meaning {
        Some(Meaning::Sentence(said)) => Some(Failure::bad_input(format!("`{name}` is a switch here")).with_hint(said)),
        _ => None,
    }
}

/// What to do with a key of a trainer's config that was typed as a flag.
fn said_of_configs(name: &str) -> Option<String> {
    let (kind, rule) = tonnage_config::Kind::with_key(&name.replace('-', "_"))?;
    let kind = kind.name();
    Some(match rule {
        Rule::Free(why) => format!("it costs no memory of the GPU ({why}): leave it out"),
        Rule::Notes(sentence, _) => format!("{sentence}: a config with it is read by `--from {kind} FILE`"),
        Rule::Sets(key) => format!("it is {} here", Key::find(key)?.flag()),
        Rule::Refuses(why) => format!("{why}; `tonnage rehearse --gpu GPU -- python train.py` runs your script"),
        _ => format!("no flag says it alone; a config with it is read: `--from {kind} FILE`"),
    })
}

/// The long flags of a command that takes a job; `None` of any other.
fn flags_of_job_command(name: &str) -> Option<Vec<String>> {
    let command = build_command(name)?;
    command.get_arguments().find(|argument| argument.get_id() == keys::MICRO_BATCH_SIZE)?;
    Some(command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned).collect())
}

/// Name and value of a flag that the command does not have as it was typed.
fn foreign_flag(word: &OsString, own: &[String]) -> Option<(String, Option<String>)> {
    let text = word.to_str()?.strip_prefix("--")?;
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
    let is_ours = |name: &str| own.iter().any(|flag| flag == name) || matches!(name, "help" | "version");
    (!is_ours(name)).then(|| (name.replace('_', "-"), value))
}

fn names_a_gpu(value: Option<&str>, next: Option<&OsString>) -> bool {
    let name = value.or_else(|| next.and_then(|next| next.to_str()));
    name.is_some_and(|name| Gpu::parse(name).is_ok())
}

fn join_flag(name: &str, value: Option<&str>) -> OsString {
    value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")).into()
}

/// The flag of a key of ours; a switch stands for itself.
fn flag_for(key: &str, value: Option<&str>) -> OsString {
    let name = Key::find(key).map_or_else(|| key.to_owned(), |key| key.flag().trim_start_matches('-').to_owned());
    let is_switch = Key::find(key).is_some_and(|key| matches!(key.kind, Kind::Switch));
    let value = value.map(|value| if is_switch { value.to_lowercase() } else { value.to_owned() });
    join_flag(&name, value.as_deref())
}

/// What a switch of theirs says, unless the key's own flag was typed.
fn value_typed_for(key: &str, text: &str, typed: &[OsString]) -> Option<OsString> {
    let own = flag_for(key, None);
    let own = own.to_str()?;
    let means_it = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        let key_of = words::meaning_of_name(name).filter(|_| name.starts_with("--"));
        name == own || key_of == Some(Meaning::Key(Key::find(key).map_or("", |key| key.name)))
    };
    if typed.iter().filter_map(|word| word.to_str()).any(means_it) {
        return None;
    }
    Some(match key {
        // A switch for adapters: a file's rank stays.
        keys::LORA_R => "--set=use_lora=true".into(),
        _ => format!("{own}={text}").into(),
    })
}

fn is_truth(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| matches!(word.to_lowercase().as_str(), "true" | "false"))
}

fn is_off(value: Option<&str>, next: Option<&OsString>) -> bool {
    let word = value.or_else(|| next.and_then(|next| next.to_str()));
    word.is_some_and(|word| word.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<String, String> {
        let typed = text.split(' ').map(OsString::from);
        let said = translate_flags(typed).map_err(|failure| failure.hint.unwrap_or_default())?;
        Ok(said.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_that_mean_the_same_are_ours() {
        let cases = [
            ("--per-device-train-batch-size 8", "--micro-batch-size 8"),
            ("--per_device_train_batch_size=8", "--micro-batch-size=8"),
            ("--max_seq_length 512", "--seq-len 512"),
            ("--zero-stage 3", "--deepspeed-stage 3"),
            ("--zero3", "--parallel=deepspeed --deepspeed-stage=3"),
            ("--num-gpus 8", "--world-size 8"),
            ("--num-gpus 4090", "--gpu 4090"),
            ("--num-gpus=h100", "--gpu=h100"),
            ("--gradient_checkpointing", "--gradient-checkpointing"),
            ("--lora", "--set=use_lora=true"),
            ("--qlora", "--quantization=nf4 --set=use_lora=true"),
            ("--attn sdpa --liger --ga 4", "--attention sdpa --use-liger-kernel --gradient-accumulation-steps 4"),
            ("--double-quant", "--bnb-4bit-use-double-quant"),
            ("--amp-bf16", "--precision=amp-bf16"),
            ("--fp32", "--precision=fp32"),
            ("--transformers-version 4.50", "--transformers 4.50"),
            ("--vllm", "--grpo-rollout=vllm"),
            ("--use-lora True --lora-rank 16", "--lora-r 16"),
            ("--target-modules q_proj,v_proj", "--lora-targets q_proj,v_proj"),
            ("--model_name_or_path gpt2", "gpt2"),
            ("--model gpt2 --batch 4 --ctx 512", "gpt2 --micro-batch-size 4 --seq-len 512"),
            ("--model=gpt2", "gpt2"),
            ("--load_in_4bit False -b 4", "-b 4"),
            ("-- python t.py --batch_size 8", "-- python t.py --batch_size 8"),
        ];
        for (typed, meant) in cases {
            assert_eq!(
                words(&format!("tonnage plan {typed}")).as_deref(),
                Ok(format!("tonnage plan {meant}").as_str())
            );
        }
        assert_eq!(words("tonnage gpus --max_length 3").as_deref(), Ok("tonnage gpus --max_length 3"));
    }

    #[test]
    fn words_that_mean_something_else_are_answered() {
        let cases = [
            ("--quantization_bit 4", "--quantization nf4"),
            ("--bf16", "--precision amp-bf16"),
            ("--mixed-precision bf16", "--precision amp-bf16"),
            ("--mixed_precision=fp16", "--precision amp-bf16"),
            ("--peft lora", "--lora (rank 8)"),
            ("--adapter qlora", "--qlora"),
            ("--fp8", "fp8 is not simulated"),
            ("--use-flash-attn", "--attention flash"),
            ("--dp 2", "--parallel ddp"),
            ("--cp 2", "--fsdp2-context-parallel-size"),
            ("--ep 2", "tonnage rehearse"),
            ("--nodes 2", "--world-size"),
            ("--device_map auto", "tonnage rehearse"),
            ("--fp16 True", "--precision amp-fp16"),
            ("--torch-compile", "tonnage rehearse"),
            ("--cpu-offload", "tonnage rehearse"),
            ("--packing", "--seq-len"),
            ("--deepspeed ds.json", "--from deepspeed FILE"),
            ("--config_file accelerate.yaml", "--from accelerate FILE"),
            ("--config sft.yaml", "--from FILE"),
            ("--pp 2", "--parallel pipeline"),
            ("--vram 24", "--gpu 24GiB"),
            ("--bits 4", "--quantization nf4"),
            ("--gradient_checkpointing_kwargs {}", "use_reentrant"),
            ("--torch_dtype bfloat16", "--precision"),
            ("--dataloader_num_workers 4", "costs no memory"),
            ("--vllm_mode colocate", "--from trl-grpo FILE"),
            ("--neftune-noise-alpha=5", "--from trl-sft FILE"),
            ("--use_ipex", "tonnage rehearse"),
        ];
        for (typed, hint) in cases {
            let said = words(&format!("tonnage estimate gpt2 {typed}")).unwrap_err();
            assert!(said.contains(hint), "{typed}: {said}");
        }
    }
}
