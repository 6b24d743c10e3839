//! Real PyTorch over a GPU that is not there. Ignored unless asked for: `TONNAGE_TORCH_PYTHON` names a Python with PyTorch,
//! transformers and accelerate, `TONNAGE_TORCH_PRELOAD` the library that stands in for the driver; then
//! `cargo test -p tonnage -- --ignored`.

use super::{Home, torch_python};

/// A Trainer with a small GPT-2: micro-batch and accumulation by the Trainer's own flags.
const TRAINER: &str = include_str!("trainer.py");

const JOB: &str = r#"
model = "gpt2"
micro_batch_size = 32
seq_len = 512
precision = "amp-bf16"
gpu = "8GiB,sm_90"
"#;

/// A home with the script, and the words that start it.
fn trainer(name: &str, launcher: Option<&str>) -> (Home, Vec<String>) {
    let python = torch_python();
    let preload = std::env::var("TONNAGE_TORCH_PRELOAD").expect("TONNAGE_TORCH_PRELOAD names libtonnage_phantom.so");
    let home = Home::new(name);
    let script = home.write("trainer.py", TRAINER);
    // With two GPUs and no launcher, the Trainer would wrap its model in DataParallel and double the batch.
    let devices = vec!["name=Phantom,total=8589934592,cc=9.0,sms=132"; 1 + usize::from(launcher.is_some())].join(";");
    let mut words = vec![
        "env".to_owned(),
        format!("LD_PRELOAD={preload}"),
        format!("TONNAGE_PHANTOM_DEVICES={devices}"),
        "TORCH_CUDNN_SDPA_DEPRIORITIZED=1".to_owned(),
    ];
    // A launcher stands beside its Python.
    let program = launcher.map_or_else(|| python.clone(), |name| python.replace("bin/python", &format!("bin/{name}")));
    words.push(program);
    words.extend(launcher.iter().flat_map(|_| ["--standalone", "--nproc_per_node", "2"]).map(str::to_owned));
    words.push(script);
    (home, words)
}

/// A guarded function in a script that nobody can tell its batch.
const GUARDED: &str = include_str!("guarded.py");
/// A node of a swarm.
const NODE: &str = include_str!("node.py");

/// Another process on the same GPU: it holds so many MiB until a file is there.
const NEIGHBOUR: &str = r#"
import os, sys, time, torch
held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
open("holds", "w").close()
while not os.path.exists("leave"): time.sleep(0.05)
"#;

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
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_script_too_big_ends_trained() {
    let (home, command) = trainer("torch-too-big", None);
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

/// The job says rows of 32 tokens, the script's have 512: what is missing grows with the rows.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_job_that_says_too_little_ends_trained() {
    let (home, command) = trainer("torch-misdescribed", None);
    let job = home.write("job.toml", &JOB.replace("seq_len = 512", "seq_len = 32"));
    let flags = ["--per_device_train_batch_size", "32", "--gradient_accumulation_steps", "1", "--max_steps", "3"];
    let (code, run) = run(&home, &[&job], &command, &flags);
    assert_eq!(code, Some(0), "{run:#}");
    assert_eq!((&run["effective_batch_size"], &run["effective_batch_is_equal"]), (&32.into(), &true.into()));
    let said = run["correction"]["evidence"].as_str().unwrap();
    assert!(said.contains("times what the job comes to"), "{said}");
    let log = String::from_utf8(home.run(&["logs"]).stdout).unwrap();
    assert!(log.contains("TRAINED rows per step 32 "), "{log}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_leak_is_told_from_a_script_too_big() {
    let (home, command) = trainer("torch-leak", None);
    let job = home.write("job.toml", &JOB.replace("= 32", "= 4"));
    let flags = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1", "--leak", "300"];
    let (code, run) = run(&home, &[&job], &command, &flags);
    assert_eq!(code, Some(1));
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1);
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("memory grows:"), "{:#}", run["result"]);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn two_ranks_end_trained_at_the_same_effective_batch() {
    let (home, command) = trainer("torch-ranks", Some("torchrun"));
    let job = home.write("job.toml", &format!("{}world_size = 2\nparallel = \"ddp\"\n", JOB.replace("= 32", "= 16")));
    let flags = ["--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "1", "--max_steps", "4"];
    let (code, run) = run(&home, &[&job, "--force", "--grace", "5"], &command, &flags);
    assert_eq!(code, Some(0), "{run:#}");
    assert_eq!((run["attempts"].as_array().unwrap().len(), &run["effective_batch_size"]), (2, &32.into()), "{run:#}");
    let ranks = home.path("home/runs").join(run["run"]["id"].as_str().unwrap()).join("attempt-2/ranks");
    assert!(ranks.exists(), "each rank has logs of its own");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_guarded_function_finds_its_batch_in_its_own_process() {
    let (home, mut command) = trainer("torch-guard", None);
    *command.last_mut().unwrap() = home.write("guarded.py", GUARDED);
    let job = home.write("job.toml", JOB);
    let (code, run) = run(&home, &[&job, "--force"], &command, &[]);
    assert_eq!(code, Some(0), "{run:#}");
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &run["effective_batch_size"]), (1, &32.into()), "{run:#}");
    assert_eq!(attempts[0]["rebatched"].as_array().unwrap().len(), 1, "computed, not halved: {run:#}");
    assert!(attempts[0]["measured"]["peak_reserved_bytes"].as_u64().unwrap() > 1 << 30, "{run:#}");
    let log = String::from_utf8(home.run(&["logs"]).stdout).unwrap();
    assert!(log.contains("tonnage: predicted ") && log.contains("tonnage: measured "), "{log}");
    let folder = home.path("home/runs").join(run["run"]["id"].as_str().unwrap()).join("attempt-1");
    let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    assert!(names.into_iter().any(|name| name.starts_with("out-of-memory-")), "no snapshot");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_neighbour_is_waited_for() {
    let (home, mut command) = trainer("torch-neighbour", None);
    command.insert(1, format!("TONNAGE_PHANTOM_LEDGER={}", home.path("ledger").display()));
    let script = home.write("neighbour.py", NEIGHBOUR);
    let at = command.iter().position(|word| word.ends_with("trainer.py")).unwrap();
    let mut neighbour = std::process::Command::new("env");
    neighbour.args(&command[1..at]).args([&script, "5500"]).current_dir(home.path("."));
    let mut neighbour = neighbour.stdin(std::process::Stdio::null()).spawn().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !home.path("holds").exists() {
        assert!(std::time::Instant::now() < until, "the neighbour does not start");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let job = home.write("job.toml", &JOB.replace("= 32", "= 4"));
    let flags = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1", "--max_steps", "3"];
    let mut words = vec!["run", &job, "--detach", "--wait", "4", "--"];
    words.extend(command.iter().map(String::as_str));
    words.extend(flags);
    assert!(home.run(&words).status.success());
    home.wait_for(240, "a failure", |run| run["attempts"][0]["failure"].is_object());
    std::fs::write(home.path("leave"), "").unwrap();
    neighbour.wait().unwrap();
    let run = home.wait_for(240, "an end", |run| run["result"].is_object());
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts[0]["failure"]["class"], "neighbour", "{run:#}");
    assert_eq!((attempts.len(), &run["result"]["outcome"]), (2, &"succeeded".into()), "{run:#}");
    assert_eq!(attempts[0]["attempt"]["batch"], attempts[1]["attempt"]["batch"], "its batch is not to blame");
}

/// Eight nodes of GPT-2 where four fit: refused with the arithmetic, then four at once on one phantom.
#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON, TONNAGE_TORCH_PRELOAD"]
fn a_swarm_is_refused_with_eight_nodes_and_runs_with_four() {
    let (home, mut command) = trainer("torch-swarm", None);
    // The context as the estimate has it for this GPU; all nodes are on one account.
    let device = format!("name=Phantom,total={},context=692060160,cc=9.0,sms=132", 24_u64 << 30);
    let devices = command.iter().position(|word| word.starts_with("TONNAGE_PHANTOM_DEVICES=")).unwrap();
    command[devices] = format!("TONNAGE_PHANTOM_DEVICES={device}");
    command.insert(1, format!("TONNAGE_PHANTOM_LEDGER={}", home.path("ledger").display()));
    *command.last_mut().unwrap() = home.write("node.py", NODE);
    command.extend(["--seed", "{seed}", "--role", "{role}"].map(str::to_owned));
    let job = format!(
        "model = \"gpt2\"\ntask = \"swarm\"\ngpu = \"24GiB,sm_90\"\nprecision = \"fp32\"\n\
         gradient_checkpointing = true\nprompt_len = 64\ncompletion_len = 64\nnum_generations = 8\n\n\
         [swarm]\nnodes = 8\n\n[run]\ncommand = {}\nroles = [\"coordinator\"]\nseed = 40\n",
        serde_json::to_string(&command).unwrap()
    );
    let file = home.write("swarm.toml", &job);
    assert_eq!(home.run(&["run", &file]).status.code(), Some(1));
    let refused = home.last();
    let reason = refused["result"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("8 nodes on a GPU need 42.") && reason.contains("; 4 would fit"), "{reason}");
    assert_eq!(home.run(&["run", &file, "--set", "swarm.nodes=4"]).status.code(), Some(0), "{:#}", home.last());
    let run = home.last();
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 4, "each was started once: {run:#}");
    let reserved = |attempt: &serde_json::Value| attempt["measured"]["peak_reserved_bytes"].as_u64().unwrap();
    let total: u64 = attempts.iter().map(reserved).sum();
    assert!(total > 18 << 30 && total < 24 << 30, "four share the GPU: {total}");
}
