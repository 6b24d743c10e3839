//! `tonnage train` of a folder that transformers wrote, of the knobs that a training has, and under `tonnage rehearse`. Ignored unless
//! asked for: `TONNAGE_TORCH_PYTHON` names a Python with PyTorch, transformers and peft.

use serde_json::Value;

use super::Home;
use super::train::{JOB, home, losses, python, rehearsed, repository, run, succeeded};

/// A small Qwen2 of random numbers with a tokenizer of bytes, as transformers saves them.
pub(super) const FOLDER: &str = r#"
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
torch.manual_seed(5)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["<|endoftext|>"]
tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained("base")
config = Qwen2Config(vocab_size=264, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=256, bos_token_id=None)
Qwen2ForCausalLM(config).save_pretrained("base")
"#;

/// Greedy tokens of what was trained, as transformers and peft load it.
const LOADED: &str = r#"
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
if len(sys.argv) > 2:
    from peft import PeftModel
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32), sys.argv[1])
else:
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
prompt = tokenizer("3 + 4 =", return_tensors="pt").input_ids
made = model.eval().generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, pad_token_id=256)
print(made[0, prompt.shape[1]:].tolist())
"#;

/// The example's own file over a folder of weights that is here, short enough for a test.
fn example(home: &Home, more: &str) {
    let text = std::fs::read_to_string(repository().join("examples/qwen2.5-0.5b-sft.toml")).unwrap();
    let text = text.replace("\"Qwen/Qwen2.5-0.5B\"", "\"base\"").replace("seq_len = 512", "seq_len = 32");
    let text = text.replace("save_steps = 50", "save_steps = 6\nlogging_steps = 1\nmax_steps = 12");
    let text = text.replace("learning_rate = 1e-5", "learning_rate = 1e-2");
    assert!(text.contains("model = \"base\"") && text.contains("max_steps = 12") && text.contains("1e-2"), "{text}");
    home.write("job.toml", &format!("{text}\n{more}"));
    std::fs::copy(repository().join("examples/sums.jsonl"), home.path("sums.jsonl")).unwrap();
}

fn generated(home: &Home, folder: &str) -> String {
    let words = ["generate", folder, "3 + 4 =", "-n", "12", "--greedy", "--json"];
    let output = run(home, &words);
    succeeded(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    answer["tokens"].to_string().replace(',', ", ")
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_example_of_fine_tuning_trains_a_folder_of_transformers() {
    let home = Home::new("train-folder");
    python(&home, FOLDER, &[]);
    example(&home, "");
    let output = run(&home, &["train", "job.toml", "--no-rehearsal"]);
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("from the weights in"), "{said}");
    let curve = losses(&home, "runs/qwen2.5-0.5b-sft/metrics.jsonl");
    assert!(curve.len() == 12 && curve[11] < curve[0] - 0.5, "{curve:?}");
    let folder = "runs/qwen2.5-0.5b-sft/checkpoint-12";
    assert_eq!(generated(&home, folder), python(&home, LOADED, &[folder]).trim());
    assert_eq!(generated(&home, "runs/qwen2.5-0.5b-sft"), generated(&home, folder), "the newest is meant");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn an_adapter_is_trained_and_loaded_by_peft() {
    let home = Home::new("train-adapter");
    python(&home, FOLDER, &[]);
    example(&home, "[lora]\nr = 4\nalpha = 8\ntargets = [\"q_proj\", \"v_proj\", \"down_proj\"]\n");
    succeeded(&run(&home, &["train", "job.toml", "--no-rehearsal", "--output-dir", "adapter"]));
    let curve = losses(&home, "adapter/metrics.jsonl");
    assert!(curve[11] < curve[0] - 0.3, "{curve:?}");
    let tokens = python(&home, LOADED, &["adapter/checkpoint-12", "base"]);
    assert_eq!(generated(&home, "adapter"), tokens.trim());
    assert_ne!(generated(&home, "base"), tokens.trim(), "the adapter changes what is said");
    // Half the steps and then the rest are the whole, to the bit.
    succeeded(&run(&home, &["train", "job.toml", "--no-rehearsal", "--output-dir", "again"]));
    std::fs::remove_dir_all(home.path("again/checkpoint-12")).unwrap();
    succeeded(&run(&home, &["train", "job.toml", "--no-rehearsal", "--output-dir", "again", "--resume"]));
    for name in ["adapter_model.safetensors", "training_state.safetensors"] {
        let read = |folder: &str| std::fs::read(home.path(folder).join("checkpoint-12").join(name)).unwrap();
        assert!(read("adapter") == read("again"), "{name}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_published_model_is_not_begun_anew_unasked() {
    let home =
        home("train-weightless", &format!("model = \"Qwen/Qwen2.5-0.5B\"\n{}", JOB.split("[model]").next().unwrap()));
    let data = ["--data-train-files", "stories.txt", "--data-tokenizer", "bytes", "--dry-run"];
    let with = |words: &[&str]| {
        let mut command = super::train::command(&home, &[&["train", "job.toml"], &data[..], words].concat());
        command.env("HF_HOME", home.path("hub")).env_remove("HF_HUB_CACHE").output().expect("the binary runs")
    };
    let refused = with(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no weights of Qwen/Qwen2.5-0.5B") && said.contains("--init from_config"), "{said}");
    succeeded(&with(&["--init", "from_config"]));
    // By its short name, as the built-in table has it, too.
    let refused = with(&["--set", "model=gpt2"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("no weights of ") && said.contains("gpt2"), "{said}");
    succeeded(&with(&["--set", "model=gpt2", "--init", "from_config"]));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn each_knob_acts_or_is_refused_with_the_way_out() {
    let home = home("train-knobs", JOB);
    let peak = |words: &[&str]| rehearsed(&home, &[&["job.toml", "--micro-batch-size", "64"], words].concat());
    let plain = peak(&[]);
    assert!(peak(&["--gradient-checkpointing"]) < plain, "layers are recomputed");
    assert!(peak(&["--precision", "amp-bf16"]) < plain, "activations are halves");
    // Settings of the allocator reach the program: the peaks of what is reserved are equal too.
    peak(&["--set", "allocator.expandable_segments=true"]);
    peak(&["--set", "allocator.max_split_size_mb=32"]);
    // Accumulation: four passes of 4 rows are one of 16.
    let curve = |name: &str, words: &[&str]| {
        succeeded(&run(
            &home,
            &[&["trainer", "job.toml", "--max-steps", "6", "--dropout", "0.0", "--output-dir", name], words].concat(),
        ));
        losses(&home, &format!("{name}/metrics.jsonl"))
    };
    let parts = curve("parts", &["--gradient-accumulation-steps", "4"]);
    let whole = curve("whole", &["--micro-batch-size", "16"]);
    assert!(
        parts.len() == 6 && whole.iter().zip(&parts).all(|(a, b)| (a / b - 1.0).abs() < 1e-5),
        "{parts:?} {whole:?}"
    );
    let unclipped = curve("unclipped", &["--micro-batch-size", "16", "--clip-grad-norm", "0"]);
    assert!(unclipped[5] != whole[5], "clipping changes the steps");
    for (words, wanted) in [
        (&["--parallel", "data_parallel", "--world-size", "2"][..], "--ranks N"),
        (&["--set", "torch_empty_cache_steps=10"][..], "lowers no peak"),
        (&["--set", "auto_find_batch_size=true"][..], "tonnage fit"),
        (&["--set", "logits_to_keep=4"][..], "leave it out"),
        (&["--set", "transformers=4.48"][..], "tonnage run"),
    ] {
        let output = run(&home, &[&["train", "job.toml"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{words:?}: {said}");
    }
}

/// The whole path over a GPU that is not there: preflight, guard, trainer, and the verdict of what the trainer left.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_training_under_rehearse_has_the_verdict_and_the_peaks_of_its_estimate() {
    let home = home("train-under-rehearse", JOB);
    std::fs::create_dir(home.path("kept")).unwrap();
    home.write("kept/metrics.jsonl", "of another training\n");
    let tonnage = env!("CARGO_BIN_EXE_tonnage");
    let trained = ["--", tonnage, "train", "job.toml", "--gpu", "l4", "--output-dir", "kept"];
    let rehearsed = |options: &[&str], more: &[&str]| {
        let output = run(&home, &[&["rehearse", "--json"], options, &trained, more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        (output.status.code(), answer)
    };
    let estimated = |words: &[&str]| -> Value {
        let output = run(&home, &[&["estimate", "job.toml", "--gpu", "l4", "--json"], words].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let held = |answer: &Value, estimate: &Value| {
        for device in answer["processes"].as_array().unwrap().iter().map(|process| &process["devices"][0]) {
            for peak in ["peak_allocated_bytes", "peak_reserved_bytes"] {
                assert_eq!(device[peak], estimate[peak], "{peak}");
            }
        }
    };
    // Until no peak grows; another GPU by replaying the trace, which is saved.
    let (code, answer) = rehearsed(&["--gpu", "l4,a100-80", "--save-trace", "trace.jsonl"], &[]);
    assert_eq!((code, &answer["processes"][0]["stop"]["reason"]), (Some(0), &"steady".into()));
    held(&answer, &estimated(&[]));
    let verdicts: Vec<_> =
        answer["gpus"].as_array().unwrap().iter().map(|on_gpu| (&on_gpu["verdict"], &on_gpu["by"])).collect();
    assert_eq!(verdicts, [(&"fits".into(), &"replay".into()), (&"fits".into(), &"run".into())]);
    let replayed = run(&home, &["trace", "replay", "trace.jsonl", "--json"]);
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(replayed["peak_reserved_bytes"], answer["processes"][0]["devices"][0]["peak_reserved_bytes"]);
    // To its own end, as the guard saw it too.
    let (code, answer) = rehearsed(&["--gpu", "l4", "--whole"], &["--max-steps", "2", "--precision", "amp-bf16"]);
    assert_eq!((code, &answer["processes"][0]["steps"]), (Some(0), &2.into()));
    held(&answer, &estimated(&["--precision", "amp-bf16"]));
    let shown: Value = serde_json::from_slice(&run(&home, &["show", "last", "--json"]).stdout).unwrap();
    assert_eq!(shown["memory"]["predicted"], shown["memory"]["measured"]);
    // Two ranks.
    let (code, answer) = rehearsed(&["--gpu", "l4", "--gpus", "2", "--steps", "3"], &["--ranks", "2"]);
    assert_eq!((code, answer["processes"].as_array().unwrap().len()), (Some(0), 2), "{answer}");
    held(&answer, &estimated(&["--set", "world_size=2"]));
    // Nothing was kept, and nothing that was there is gone.
    let left: Vec<_> = std::fs::read_dir(home.path("kept")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["metrics.jsonl"]);
    assert_eq!(std::fs::read_to_string(home.path("kept/metrics.jsonl")).unwrap(), "of another training\n");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_training_that_runs_out_under_rehearse_does_not_fit() {
    let home = home("train-rehearse-full", JOB);
    let tonnage = env!("CARGO_BIN_EXE_tonnage");
    let small = "1GiB,sm_90,multiprocessors=132";
    let words = ["rehearse", "--gpu", small, "--json", "--", tonnage, "train", "job.toml"];
    let large =
        ["--micro-batch-size", "64", "--seq-len", "256", "--set", "model.n_positions=256", "--set", "model.n_embd=768"];
    let output = run(&home, &[&words[..], &large].concat());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &answer["gpus"][0]["verdict"]), (Some(1), &"does_not_fit".into()));
    let oom = &answer["gpus"][0]["out_of_memory"];
    assert!(oom["requested_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{oom}");
    assert!(answer["processes"][0]["failure"]["message"].as_str().unwrap().contains("CUDA out of memory"), "{answer}");
    // On the CPU there is nothing to rehearse.
    let output = run(&home, &["rehearse", "--gpu", "l4", "--", tonnage, "train", "job.toml", "--device", "cpu"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("has nothing to rehearse"), "{said}");
}
