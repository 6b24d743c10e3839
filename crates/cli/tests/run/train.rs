//! `tonnage train` and `tonnage generate` over a real PyTorch, on the CPU and over a GPU that is not there. Ignored unless asked for:
//! `TONNAGE_TORCH_PYTHON` names a Python with PyTorch and transformers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Home, torch_python};

/// A GPT-2 of 120,000 parameters over bytes.
pub(super) const JOB: &str = r#"
framework = "loop"
micro_batch_size = 4
seq_len = 32
optimizer = "adamw"
clip_grad_norm = 1.0
learning_rate = 3e-3
lr_scheduler_type = "cosine"
warmup_steps = 2
max_steps = 24
save_steps = 3
save_total_limit = 8
logging_steps = 1
output_dir = "out"

[model]
model_type = "gpt2"
n_embd = 48
n_layer = 2
n_head = 4
n_positions = 32
vocab_size = 256
bos_token_id = 0
eos_token_id = 0

[data]
train_files = "stories.txt"
tokenizer = "bytes"
"#;

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A home with the job and the repository's text.
pub(super) fn home(name: &str, job: &str) -> Home {
    let home = Home::new(name);
    home.write("job.toml", job);
    let text = std::fs::read_to_string(repository().join("examples/stories.txt")).unwrap();
    home.write("stories.txt", &text);
    home
}

pub(super) fn command(home: &Home, words: &[&str]) -> Command {
    let mut command = home.command(words);
    command.env("TONNAGE_TORCH", torch_python());
    // The bridge to PyTorch is compiled once for all tests.
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("train-cache"));
    command.env("OMP_NUM_THREADS", "1");
    command
}

pub(super) fn run(home: &Home, words: &[&str]) -> Output {
    command(home, words).output().expect("the binary runs")
}

pub(super) fn succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

pub(super) fn python(home: &Home, script: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(torch_python());
    command.args(["-c", script]).args(arguments).current_dir(home.path("")).env("OMP_NUM_THREADS", "1");
    let output =
        command.env("TRANSFORMERS_VERBOSITY", "error").env("HF_HUB_OFFLINE", "1").output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The losses of a metrics file, by step.
pub(super) fn losses(home: &Home, name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(home.path(name)).unwrap();
    let points = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    points.filter_map(|point| point["metrics"]["loss"].as_f64()).collect()
}

pub(super) fn same_files(a: &Path, b: &Path) {
    for name in ["model.safetensors", "training_state.safetensors"] {
        let (left, right) = (std::fs::read(a.join(name)).unwrap(), std::fs::read(b.join(name)).unwrap());
        assert!(left == right, "{name} differs between {} and {}", a.display(), b.display());
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_small_gpt_learns_under_guard_and_leaves_its_records() {
    let home = home("train-learns", JOB);
    let output = run(&home, &["train", "job.toml", "--json"]);
    succeeded(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!((&answer["outcome"], &answer["reason"]), (&"succeeded".into(), &"done".into()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("on the CPU") && said.contains("estimate for a GPU"), "{said}");
    let losses = losses(&home, "out/metrics.jsonl");
    assert_eq!(losses.len(), 24);
    assert!(losses[23] < losses[0] - 1.0, "{losses:?}");
    let metrics = std::fs::read_to_string(home.path("out/metrics.jsonl")).unwrap();
    assert!(metrics.starts_with("{\"record\":\"run\"") && metrics.trim_end().ends_with('}'));
    assert!(metrics.lines().last().unwrap().contains("\"record\":\"end\""), "{metrics}");
    succeeded(&run(&home, &["report", "out/metrics.jsonl"]));
    // Predicted, rehearsed and measured lie beside each other in the run's record.
    let shown: Value = serde_json::from_slice(&run(&home, &["show", "last", "--json"]).stdout).unwrap();
    let memory = &shown["memory"];
    assert!(memory["predicted"]["peak_reserved_bytes"].as_u64().unwrap() > 1 << 20, "{memory}");
    assert_eq!(memory["predicted"], memory["rehearsed"]);
    assert!(memory["measured_host_bytes"].as_u64().unwrap() > 1 << 24, "{memory}");
    let shown = String::from_utf8(run(&home, &["show", "last"]).stdout).unwrap();
    assert!(shown.contains("predicted") && shown.contains("rehearsed") && shown.contains("of host memory"), "{shown}");
    // The same folder is not written over without a word.
    let again = run(&home, &["train", "job.toml"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn kills_at_any_moment_lose_nothing_beyond_the_last_checkpoint() {
    let job = JOB.replace("[model]", "[model]\nresid_pdrop = 0.1");
    let home = home("train-kills", &job);
    succeeded(&run(&home, &["trainer", "job.toml", "--output-dir", "whole"]));
    let last = |folder: &str| home.path(folder).join("checkpoint-24");
    for milliseconds in [300, 900, 1300, 1700, 2100, 2500, 2900] {
        let mut child = command(&home, &["trainer", "job.toml", "--output-dir", "killed"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    succeeded(&run(&home, &["trainer", "job.toml", "--output-dir", "killed"]));
    same_files(&last("whole"), &last("killed"));
    assert_eq!(losses(&home, "whole/metrics.jsonl"), losses(&home, "killed/metrics.jsonl"));
    // A polite end is saved at once, and gone on with as well.
    let mut child =
        command(&home, &["trainer", "job.toml", "--output-dir", "stopped"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2000));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    child.wait().unwrap();
    succeeded(&run(&home, &["trainer", "job.toml", "--output-dir", "stopped"]));
    same_files(&last("whole"), &last("stopped"));
}

/// Loads a checkpoint with transformers: greedy tokens of a prompt, and the mean loss of the held-out end of the text.
const HUGGING_FACE: &str = r#"
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
prompt = torch.tensor([list(b"Once")])
beams = int(sys.argv[2])
tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, num_beams=beams,
                        pad_token_id=0)[0, 4:].tolist()
print(tokens)
model.save_pretrained("back")
"#;

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_checkpoint_is_transformers_own_and_back() {
    let home = home("train-transformers", JOB);
    succeeded(&run(&home, &["trainer", "job.toml"]));
    let generated = |folder: &str, beams: &str| {
        let output = run(&home, &["generate", folder, "Once", "-n", "20", "--greedy", "--beam", beams, "--json"]);
        succeeded(&output);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["tokens"].to_string().replace(',', ", ")
    };
    for beams in ["1", "3"] {
        let theirs = python(&home, HUGGING_FACE, &["out/checkpoint-24", beams]);
        assert_eq!(generated("out", beams), theirs.trim(), "{beams} beams");
    }
    assert_eq!(generated("back", "1"), generated("out", "1"), "what transformers wrote is read");
    // A seed decides what is drawn, another draws another.
    let drawn = |seed: &str| run(&home, &["generate", "out", "Once", "--temperature", "1.5", "--seed", seed]).stdout;
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    let refused = run(&home, &["generate", "out", "Once", "--beam", "2", "--temperature", "1"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// The same training in Python: transformers' model from the same weights, torch's AdamW, rows in the same order.
const TWIN: &str = r#"
import math, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
if sys.argv[1] == "make":
    torch.manual_seed(3)
    config = GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=32, vocab_size=256, bos_token_id=0, eos_token_id=0,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    GPT2LMHeadModel(config).save_pretrained("first")
    sys.exit()
MASK = (1 << 64) - 1
class Random:
    def __init__(self, seed): self.state = seed
    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        return mixed ^ (mixed >> 31)
text = list(open("stories.txt", "rb").read())
text = text[:len(text) - int(len(text) * 0.05)]
order = list(range((len(text) - 1) // 31))
random = Random(42)
for last in range(len(order) - 1, 0, -1):
    other = (random.next() * (last + 1)) >> 64
    order[last], order[other] = order[other], order[last]
model = GPT2LMHeadModel.from_pretrained("first").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
for step in range(24):
    share = step / 2 if step < 2 else max(0, 0.5 * (1 + math.cos(math.pi * (step - 2) / 22)))
    for group in optimizer.param_groups: group["lr"] = 3e-3 * share
    ids = torch.tensor([text[31 * row:31 * row + 32] for row in order[4 * step:4 * step + 4]])
    loss = model(ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"#;

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_curve_is_that_of_the_same_training_in_python() {
    let home = home("train-twin", &format!("model = \"first\"\n{}", JOB.split("[model]").next().unwrap()));
    python(&home, TWIN, &["make"]);
    let words = ["trainer", "job.toml", "--data-train-files", "stories.txt", "--data-tokenizer", "bytes"];
    succeeded(&run(&home, &words));
    let theirs: Vec<f64> = python(&home, TWIN, &["train"]).lines().map(|line| line.parse().unwrap()).collect();
    let ours = losses(&home, "out/metrics.jsonl");
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert!((ours / theirs - 1.0).abs() < 1e-3, "{ours} beside {theirs}");
    }
}

/// Every key of the guide's file that a training goes by, over rows that grow.
pub(super) const GROWS: &str = r#"
model_positions = 48
model_embd = 32
model_layer = 2
model_head = 2
model_activation = "gelu"
model_dropout = 0.1
vocab_size = 256
batch_size = 64
seq_len_start = 8
seq_len_end = 48
use_amp = false
use_compile = false
sources = ["stories.txt"]
tokenizer = "bytes"
model_name = "grown"
epochs = 4
learning_rate = 1e-3
early_stop_patience = 3
device = "cpu"
resume = ""
max_length = 12
temperature = 0.8
beam_size = 2
model_seed = "Once "
max_context_length = 48
lr_scheduler_type = "constant"
num_workers = 2
pin_memory = true
save_steps = 7
"#;

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_guides_keys_act() {
    let home = home("train-guide", JOB);
    home.write("grows.toml", GROWS);
    let text = std::fs::read_to_string(home.path("stories.txt")).unwrap();
    home.write("stories.txt", text.get(..12_000).unwrap());
    let output = run(&home, &["train", "grows.toml"]);
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // 11,400 tokens in epochs of 8, 21, 34 and 48 tokens a row.
    let steps = [8, 21, 34, 48_u64].map(|tokens| (11_399 / (tokens - 1)).div_ceil(64)).iter().sum::<u64>();
    let last = format!("trained/grown/checkpoint-{steps}");
    assert!(home.path(&last).is_dir(), "{steps}: {said}");
    // It goes on in the middle of an epoch as if it had never stopped, by the checkpoint that a file names too.
    let words = ["trainer", "grows.toml", "--output-dir", "again", "--max-steps"];
    succeeded(&run(&home, &[&words[..], &["20"]].concat()));
    let other = ["--output-dir", "other", "--resume-from-checkpoint", "again"];
    succeeded(&run(&home, &[&["trainer", "grows.toml"], &other[..]].concat()));
    same_files(&home.path(&last), &home.path(&format!("other/checkpoint-{steps}")));
    // What stands before every text, beams, and how long.
    let output = run(&home, &["generate", "trained/grown", "upon", "--json"]);
    succeeded(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let how = &answer["generation"];
    assert_eq!((&how["prompt"], &how["num_beams"], &how["max_new_tokens"]), (&"Once ".into(), &2.into(), &12.into()));
    assert_eq!(answer["prompt_tokens"], 9);
    // Nothing is learnt at this rate: patience ends it, and going on is of no use.
    let set = ["--learning-rate", "0", "--dropout", "0", "--set", "seq_len_start=48", "--num-train-epochs", "10"];
    let idle = ["trainer", "grows.toml", "--output-dir", "idle", "--early-stopping-patience", "1"];
    let idle = [&idle[..], &set[..]].concat();
    let first = run(&home, &idle);
    succeeded(&first);
    assert!(String::from_utf8_lossy(&first.stdout).contains("no lower loss in 1 epochs"));
    let checkpoints = || {
        let entries = std::fs::read_dir(home.path("idle")).unwrap().flatten();
        entries.map(|entry| entry.file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = checkpoints();
    succeeded(&run(&home, &idle));
    assert_eq!(checkpoints(), before);
    let refused =
        run(&home, &["train", "grows.toml", "--set", "resume_from_checkpoint=trained/grown.pt", "--overwrite"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no checkpoint of `tonnage train`"));
}

/// Predicted and rehearsed peaks of a job, which are equal.
pub(super) fn rehearsed(home: &Home, words: &[&str]) -> u64 {
    let mut all = vec!["train"];
    all.extend(words);
    all.extend(["--rehearse", "--gpu", "h200", "--json"]);
    let output = run(home, &all);
    succeeded(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(answer["predicted"], answer["rehearsed"], "{words:?}");
    let peak = answer["rehearsed"]["peak_allocated_bytes"].as_u64().unwrap();
    assert!(peak > 1 << 20);
    peak
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_is_estimated_is_what_runs_to_the_byte() {
    let home = home("train-rehearse", JOB);
    rehearsed(&home, &["job.toml"]);
    rehearsed(&home, &["job.toml", "--precision", "amp-fp16", "--use-cache=false"]);
    rehearsed(
        &home,
        &["job.toml", "--precision", "amp-bf16", "--gradient-checkpointing", "--optimizer", "adamw_fused"],
    );
    rehearsed(
        &home,
        &["job.toml", "--gradient-accumulation-steps", "3", "--clip-grad-norm", "0", "--optimizer", "sgd_momentum"],
    );
    rehearsed(&home, &["job.toml", "--precision", "bf16", "--keep-outputs", "--optimizer", "adamw_forloop"]);
    // Labels of prompts and completions lie beside the tokens: so the estimate has them, of the data's first line.
    let rows = "{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}\n".repeat(64);
    home.write("rows.jsonl", &rows);
    let pairs = ["job.toml", "--data-train-files", "rows.jsonl", "--micro-batch-size", "48"];
    rehearsed(&home, &pairs);
    rehearsed(&home, &[&pairs[..], &["--use-cache=false", "--precision", "amp-bf16"]].concat());
    let kept = |words: &[&str]| rehearsed(&home, &[&pairs[..], words].concat());
    assert!(kept(&["--set", "own_labels=true"]) > rehearsed(&home, &["job.toml", "--micro-batch-size", "48"]));
    // Rows of the guide's small GPT that grow from epoch to epoch.
    home.write("grows.toml", GROWS);
    rehearsed(&home, &["grows.toml"]);
    rehearsed(&home, &["grows.toml", "--precision", "amp-fp16", "--gradient-accumulation-steps", "2"]);
}

/// Every file of examples/ that trains, at its own size and on its own ranks: what is not rehearsed is refused for what it is, so that
/// a new example is either held here or says why not.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn byte_equality_of_every_example() {
    let home = home("train-examples", JOB);
    let folder = repository().join("examples");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_str().unwrap().to_owned())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let mut trained = Vec::new();
    for name in &names {
        let example = folder.join(name).display().to_string();
        // An example that names no text of its own gets one.
        let text = ["--data-train-files", "stories.txt", "--data-tokenizer", "bytes"];
        let own = run(&home, &["train", &example, "--rehearse", "--gpu", "h200", "--json"]);
        let output = if String::from_utf8_lossy(&own.stderr).contains("no text is named to train on") {
            run(&home, &[&["train", &example, "--rehearse", "--gpu", "h200", "--json"], &text[..]].concat())
        } else {
            own
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(2) {
            assert!(said.contains("hint: "), "{name} is refused without a way out: {said}");
            continue;
        }
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {said}"));
        assert_eq!(answer["predicted"], answer["rehearsed"], "{name}");
        trained.push(name.as_str());
    }
    for wanted in [
        "lilwill-cpu.toml",
        "lilwill.toml",
        "qwen2.5-0.5b-sft.toml",
        "gpt2-a100.toml",
        "small-llama.toml",
        "llama-8b-ddp.toml",
    ] {
        assert!(trained.contains(&wanted), "{wanted} is not among {trained:?}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_goes_wrong_is_said_and_loses_nothing() {
    let home = home("train-wrong", JOB);
    let refused = |words: &[&str], wanted: &str| {
        let output = run(&home, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{words:?}: {said}");
    };
    refused(
        &[
            "trainer",
            "job.toml",
            "--learning-rate",
            "900",
            "--clip-grad-norm",
            "0",
            "--output-dir",
            "nan",
            "--lr-scheduler-type",
            "constant",
            "--optimizer",
            "sgd",
        ],
        "the training has diverged; the checkpoint of step",
    );
    assert!(home.path("nan/checkpoint-3/model.safetensors").exists());
    refused(&["train", "job.toml", "--set", "model.vocab_size=200"], "it is of another model");
    refused(&["train", "job.toml", "--data-train-files", "nowhere.txt"], "nowhere.txt");
    refused(&["train", "job.toml", "--data-tokenizer", "tiktoken"], "tokenizer.json");
    refused(&["train", "job.toml", "--optimizer", "lion"], "adamw_fused");
    refused(&["train", "job.toml", "--resume"], "no checkpoint");
    refused(&["train", "job.toml", "--torch", "/nowhere"], "holds no PyTorch");
    refused(&["generate", "nowhere", "a"], "no such folder");
    // A file that a crash of another program tore.
    succeeded(&run(&home, &["trainer", "job.toml", "--max-steps", "3"]));
    let weights = home.path("out/checkpoint-3/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    refused(&["generate", "out", "Once"], "where its header tells of");
    refused(&["trainer", "job.toml", "--max-steps", "6"], "where its header tells of");
    // A disk without room: files may not grow beyond 100 KiB.
    let program = env!("CARGO_BIN_EXE_tonnage");
    let script = format!("trap '' XFSZ; ulimit -f 100; exec {program} trainer job.toml --output-dir full");
    let full = command(&home, &[]);
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &script])
        .current_dir(home.path(""))
        .envs(full.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("full/"), "{said}");
    let left: Vec<_> = std::fs::read_dir(home.path("full")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "metrics.jsonl"), "{left:?}");
}
