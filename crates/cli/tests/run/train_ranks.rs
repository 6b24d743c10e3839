//! `tonnage train` over several ranks: the same training as in one process, to the byte what is estimated, and nothing lost by a rank
//! that dies. Ignored unless asked for: `TONNAGE_TORCH_PYTHON` names a Python with PyTorch.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::train::{GROWS, JOB, command, home, losses, run, same_files, succeeded};
use super::{Home, torch_python};

/// Twelve rows a step in any number of processes.
fn twelve_rows(home: &Home, ranks: &str, rows: &str, passes: &str, output: &str) -> Vec<f64> {
    let batch = ["--micro-batch-size", rows, "--gradient-accumulation-steps", passes, "--max-steps", "8"];
    let words = ["trainer", "job.toml", "--world-size", ranks, "--output-dir", output];
    succeeded(&run(home, &[words.as_slice(), batch.as_slice()].concat()));
    losses(home, &format!("{output}/metrics.jsonl"))
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn ranks_train_what_one_process_trains() {
    let job = JOB.replace("[model]", "[model]\nresid_pdrop = 0.0\nembd_pdrop = 0.0\nattn_pdrop = 0.0");
    let home = home("ranks-equal", &job);
    let alone = twelve_rows(&home, "1", "12", "1", "one");
    assert_eq!(alone.len(), 8);
    for (ranks, rows, passes) in [("2", "6", "1"), ("2", "3", "2"), ("3", "4", "1")] {
        let output = format!("by-{ranks}-{passes}");
        let together = twelve_rows(&home, ranks, rows, passes, &output);
        assert_eq!(together.len(), alone.len());
        for (together, alone) in together.iter().zip(&alone) {
            assert!((together / alone - 1.0).abs() < 1e-5, "{ranks} ranks: {together} beside {alone}");
        }
        let evaluated = |name: &str| {
            let text = std::fs::read_to_string(home.path(name).join("metrics.jsonl")).unwrap();
            let points = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            points.filter_map(|point| point["metrics"]["eval/loss"].as_f64()).next_back().unwrap()
        };
        assert!((evaluated(&output) / evaluated("one") - 1.0).abs() < 1e-5, "what is held out is shared out as well");
    }
}

/// A training without end, and the ranks that it has started.
fn begin(home: &Home, output: &str) -> Child {
    let words = ["trainer", "job.toml", "--world-size", "2", "--output-dir", output, "--max-steps", "1000000"];
    let mut command = command(home, &words);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The process of a rank that a launcher has started: its environment says which it is, once it runs this program.
pub(super) fn rank_of(launcher: u32, rank: u32) -> Option<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).map(Pid::from_raw).find(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has = |wanted: String| environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes());
        has(format!("RANK={rank}")) && has(format!("TONNAGE_RANKS_LAUNCHER={launcher}"))
    })
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn newest(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let steps = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("checkpoint-")?.parse().ok());
    steps.max().unwrap_or(0)
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_rank_that_dies_ends_all_and_nothing_is_lost() {
    let job = JOB.replace("\"cosine\"", "\"constant\"").replace("[model]", "[model]\nresid_pdrop = 0.1");
    let home = home("ranks-kills", &job);
    let killed = home.path("killed");
    for dying in [1, 0] {
        let before = newest(&killed);
        let launcher = begin(&home, "killed");
        wait_until("a checkpoint is written", || newest(&killed) > before);
        let [dies, _other] = [dying, 1 - dying].map(|rank| rank_of(launcher.id(), rank).expect("the rank runs"));
        kill(dies, Signal::SIGKILL).unwrap();
        let (id, output) = (launcher.id(), launcher.wait_with_output().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("rank {dying} of 2 was killed by SIGKILL; the others were ended")), "{said}");
        assert!(!output.status.success() && rank_of(id, 1 - dying).is_none());
    }
    let last = newest(&killed) + 3;
    let to_the_end = |output: &str| {
        let steps = last.to_string();
        let words = ["trainer", "job.toml", "--world-size", "2", "--output-dir", output, "--max-steps", &steps];
        succeeded(&run(&home, &words));
        home.path(output).join(format!("checkpoint-{last}"))
    };
    // Every rank has the weights of rank 0, and random numbers of its own, or these would differ.
    same_files(&to_the_end("killed"), &to_the_end("whole"));
    // Another number of ranks is another training.
    for (ranks, wanted) in [("3", "--ranks 2 goes on"), ("1", "1 process cannot go on")] {
        let refused = run(&home, &["train", "job.toml", "--world-size", ranks, "--output-dir", "whole", "--resume"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(wanted), "{said}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn torchrun_starts_it_too_and_a_polite_end_is_saved_by_all() {
    let home = home("ranks-torchrun", JOB);
    let mut torchrun = Command::new(torch_python());
    torchrun.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]);
    torchrun.arg(env!("CARGO_BIN_EXE_tonnage")).args([
        "train",
        "job.toml",
        "--max-steps",
        "6",
        "--output-dir",
        "theirs",
    ]);
    let environment = command(&home, &[]);
    torchrun.current_dir(home.path("")).envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
    succeeded(&torchrun.output().unwrap());
    let output = run(&home, &["train", "job.toml", "--max-steps", "6", "--ranks", "2", "--output-dir", "ours"]);
    succeeded(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("of each of 2 ranks"));
    same_files(&home.path("theirs/checkpoint-6"), &home.path("ours/checkpoint-6"));
    let launcher = begin(&home, "stopped");
    wait_until("a checkpoint is written", || newest(&home.path("stopped")) > 0);
    kill(Pid::from_raw(launcher.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = launcher.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let last = newest(&home.path("stopped"));
    assert!(said.contains(&format!("stopped after step {last}, which is saved")), "{said}");
}

/// Rehearses a job on ranks, each of which takes what is predicted.
pub(super) fn rehearsed_ranks(home: &Home, words: &[&str], ranks: usize) {
    let mut all = vec!["train"];
    all.extend(words);
    all.extend(["--rehearse", "--gpu", "h200", "--json"]);
    let output = run(home, &all);
    succeeded(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let found = answer["rehearsed_ranks"].as_array().expect("a figure for each rank");
    assert_eq!(found.len(), ranks);
    assert!(found.iter().all(|one| *one == answer["predicted"]), "{words:?}: {answer}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn every_rank_takes_what_is_estimated_to_the_byte() {
    let home = home("ranks-rehearse", JOB);
    let config = "vocab_size = 4000\nhidden_size = 512\nintermediate_size = 1280\nnum_hidden_layers = 6\nnum_attention_heads = 8\n";
    let model = format!("model_type = \"llama\"\n{config}num_key_value_heads = 2\n\n[data]");
    let (head, rest) = JOB.split_once("model_type").unwrap();
    let data = rest.split_once("[data]").unwrap().1;
    home.write("llama.toml", &format!("{head}{model}{data}"));
    let rehearsed = |words: &[&str], ranks: usize| rehearsed_ranks(&home, words, ranks);
    rehearsed(&["job.toml", "--ranks", "2"], 2);
    rehearsed(&["job.toml", "--ranks", "2", "--precision", "bf16", "--gradient-accumulation-steps", "2"], 2);
    // Buckets of several sizes.
    rehearsed(&["llama.toml", "--ranks", "3"], 3);
    rehearsed(&["llama.toml", "--ranks", "2", "--precision", "bf16", "--ddp-bucket-cap-mb", "4"], 2);
    let views = ["llama.toml", "--ranks", "2", "--precision", "amp-fp16", "--ddp-gradient-as-bucket-view"];
    rehearsed(&[views.as_slice(), &["--optimizer", "adamw_fused", "--gradient-checkpointing"]].concat(), 2);
    // The guide's small GPT in its own loop, with rows that grow too.
    home.write("grows.toml", GROWS);
    rehearsed(&["grows.toml", "--ranks", "2"], 2);
    home.write("flat.toml", &flat_rows());
    let accumulated = ["flat.toml", "--ranks", "3", "--precision", "amp-bf16", "--gradient-accumulation-steps", "2"];
    rehearsed(&accumulated, 3);
    rehearsed(&["flat.toml", "--ranks", "2", "--ddp-gradient-as-bucket-view", "--precision", "amp-fp16"], 2);
}

/// The guide's small GPT with rows of one length and without dropout.
fn flat_rows() -> String {
    let lines = GROWS
        .lines()
        .filter(|line| !["seq_len_", "model_dropout", "early_stop", "resume"].iter().any(|key| line.starts_with(key)));
    lines.collect::<Vec<_>>().join("\n") + "\nseq_len = 48\nmodel_dropout = 0.0\n"
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_guides_small_gpt_learns_on_ranks_what_it_learns_alone() {
    let home = home("ranks-guide", JOB);
    home.write("flat.toml", &flat_rows());
    let curve = |ranks: &str, rows: &str, passes: &str| {
        let output = format!("by-{ranks}-{passes}");
        let words = ["trainer", "flat.toml", "--set", "logging_steps=1", "--max-steps", "8", "--output-dir", &output];
        let spread = ["--micro-batch-size", rows, "--gradient-accumulation-steps", passes, "--world-size", ranks];
        succeeded(&run(&home, &[words.as_slice(), spread.as_slice()].concat()));
        losses(&home, &format!("{output}/metrics.jsonl"))
    };
    let alone = curve("1", "12", "1");
    assert_eq!(alone.len(), 8);
    for together in [curve("2", "6", "1"), curve("2", "3", "2"), curve("3", "4", "1")] {
        assert_eq!(together.len(), alone.len());
        for (together, alone) in together.iter().zip(&alone) {
            assert!((together / alone - 1.0).abs() < 1e-5, "{together} beside {alone}");
        }
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_several_ranks_cannot_do_is_said_with_what_can() {
    let home = home("ranks-wrong", JOB);
    for (words, wanted) in [
        (["--parallel", "fsdp2"], "torchrun --nproc-per-node 2 train.py"),
        (["--ddp-static-graph", "--dry-run"], "ddp.static_graph"),
        (["--ranks", "4"], "the job is of 2 ranks (world_size), and 4 are to train it"),
    ] {
        let output = run(&home, &[["train", "job.toml", "--world-size", "2"].as_slice(), words.as_slice()].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{said}");
    }
}

/// Two ranks that a test starts itself, each with words of its own: what each said, and whether it succeeded.
fn two_ranks(home: &Home, words: [&[&str]; 2]) -> [(bool, String); 2] {
    // Rank 0 is given the socket, so that nobody takes its port.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let start = |rank: usize| {
        let mut command = command(home, &[&["trainer", "job.toml"], words[rank]].concat());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1");
        command.env("MASTER_PORT", &port).env("TONNAGE_RANKS_LISTENER", listener.as_raw_fd().to_string());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let first = start(0);
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    [first, start(1)].map(|rank| {
        let output = rank.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn only_ranks_of_one_job_train_together() {
    let home = home("ranks-jobs", JOB);
    home.write("more.txt", &"Once upon a time there was a fox. ".repeat(100));
    for other in [["--learning-rate", "2e-3"], ["--data-train-files", "more.txt"]] {
        for (succeeded, said) in two_ranks(&home, [&[], &other]) {
            assert!(!succeeded && said.contains("rank 1 was started with another job than rank 0"), "{said}");
        }
    }
    // The GPU may be another on another machine.
    let [h100, a100] = [["--max-steps", "2", "--gpu", "h100"], ["--max-steps", "2", "--gpu", "a100-80"]];
    for (succeeded, said) in two_ranks(&home, [&h100, &a100]) {
        assert!(succeeded, "{said}");
    }
}
