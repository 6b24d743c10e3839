//! `tonnage train` of a swarm over a real PyTorch, on the CPU and over a GPU that is not there. Ignored unless asked for:
//! `TONNAGE_TORCH_PYTHON` names a Python with PyTorch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Home;
use super::train::{command, rehearsed, repository, run, succeeded};

/// Three nodes whose new models know nothing: what they share and take, and not what they learn.
pub(super) const SHORT: &[&str] = &[
    "--set=swarm.local_questions=2",
    "--set=swarm.external_questions=2",
    "--set=swarm.round_seconds=20",
    "--set=grpo.question_level=1",
    "--set=grpo.warm_start_reward=0.0",
    "--set=swarm.filter=none",
    "--set=grpo.eval_questions=16",
    "--eval-steps=4",
    "--save-steps=2",
    "--logging-steps=1",
];
/// A round is waited for so long.
const PATIENCE: Duration = Duration::from_secs(400);

pub(super) fn home(name: &str) -> Home {
    let home = Home::new(name);
    let job = fs::read_to_string(repository().join("examples/sapo-arithmetic.toml")).expect("the example is there");
    home.write("job.toml", &job.replace("nodes = 4", "nodes = 3"));
    home
}

pub(super) fn words<'a>(rounds: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let key = |word: &'a str| word.rsplit_once('=').map(|(key, _)| key);
    let short = SHORT.iter().copied().filter(|word| more.iter().all(|other| key(other) != key(word)));
    let begin = ["train", "job.toml", "--no-rehearsal", "--output-dir", "out", rounds];
    begin.into_iter().chain(short).chain(more.iter().copied()).collect()
}

/// The points of a node's curve, by step.
pub(super) fn rounds_of(home: &Home, folder: &str) -> BTreeMap<u64, Value> {
    let text = fs::read_to_string(home.path(&format!("{folder}/metrics.jsonl"))).unwrap_or_default();
    let points = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a whole line"));
    let mut all = BTreeMap::new();
    for point in points.filter(|point| point["metrics"]["reward/on_policy"].is_f64()) {
        let step = point["step"].as_f64().expect("a number") as u64;
        assert!(all.insert(step, point).is_none(), "{folder}: round {step} counts twice");
    }
    all
}

pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(20));
    }
}

fn decided(home: &Home, round: u64) -> Option<Value> {
    let path = home.path(&format!("out/swarm/experiments/sapo/state/round_{round}.json"));
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn nodes_share_what_they_wrote_and_another_joins_by_name() {
    let home = home("sapo-join");
    let mut first = command(&home, &words("--max-steps=40", &[])).stdout(Stdio::null()).spawn().expect("it starts");
    wait_until("the first rounds", || decided(&home, 2).is_some());
    let joined = run(&home, &words("--max-steps=40", &["--join", "--set=swarm.nodes=1"]));
    succeeded(&joined);
    assert!(first.wait().expect("it ends").success());
    let said = String::from_utf8_lossy(&joined.stderr).into_owned() + &String::from_utf8_lossy(&joined.stdout);
    assert!(said.contains("node-3 takes part from round"), "{said}");
    for node in ["out/node-0", "out/node-1", "out/node-2"] {
        let rounds = rounds_of(&home, node);
        assert_eq!((rounds.len(), rounds.keys().next_back()), (40, Some(&40)), "{node}");
        let chosen: f64 = rounds.values().filter_map(|point| point["metrics"]["chosen_groups"].as_f64()).sum();
        assert!(chosen > 0.0, "{node} took nothing of the others");
    }
    let late = rounds_of(&home, "out/joined-0/node-0");
    let last = late.values().next_back().expect("it took part");
    assert!(late.len() < 40 && late.contains_key(&40), "{:?}", late.keys());
    assert_eq!(last["metrics"]["lost_rounds"].as_f64().unwrap() as usize, 40 - late.len());
    // Of 40 rounds the last ten are kept.
    let kept = fs::read_dir(home.path("out/swarm/experiments/sapo/rollouts")).unwrap().count();
    assert!(kept <= 12, "{kept} rounds are kept");
    // Begun again without a word it is refused.
    let again = run(&home, &words("--max-steps=40", &[]));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("--resume"), "{said}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_node_that_is_killed_comes_back_and_nothing_counts_twice() {
    let home = home("sapo-kill");
    let mut run = command(&home, &words("--max-steps=30", &[])).stdout(Stdio::null()).spawn().expect("it starts");
    // The coordinator first, then a worker, each in the middle of a round.
    for (node, round) in [(0, 3), (2, 8)] {
        wait_until("a round", || decided(&home, round).is_some());
        let killed = processes_of(home.path("out").as_path(), node);
        assert!(!killed.is_empty(), "node {node} runs");
        for pid in killed {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .expect("it is there");
        }
    }
    assert!(run.wait().expect("it ends").success());
    for node in 0..3 {
        let rounds = rounds_of(&home, &format!("out/node-{node}"));
        let last = rounds.values().next_back().expect("it took part");
        let lost = last["metrics"]["lost_rounds"].as_f64().unwrap() as usize;
        assert!(rounds.contains_key(&30), "node {node}: {:?}", rounds.keys());
        assert_eq!(rounds.len() + lost, 30, "node {node}: every round counts once, or is said to be lost");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_hostile_folder_costs_nothing_but_a_count() {
    let home = home("sapo-hostile");
    let mut run = command(&home, &words("--max-steps=12", &[])).stdout(Stdio::null()).spawn().expect("it starts");
    let root = home.path("out/swarm/experiments/sapo");
    wait_until("the experiment", || root.join("peers/node-2.json").is_file());
    for name in (0..10_000).map(|number| format!("stranger-{number}")) {
        fs::write(root.join(format!("peers/{name}.json")), "{\"peer_id\": \"torn").expect("room");
    }
    // One that is registered properly, and publishes what is far too large, of the future, torn or of another peer.
    let peer = json!({"peer_id": "hostile", "node_role": "worker", "joined_round": 1_000_000, "left": true});
    fs::write(root.join("peers/hostile.json"), peer.to_string()).expect("room");
    for round in 0..12 {
        let place = root.join(format!("rollouts/round_{round}/stage_0"));
        fs::create_dir_all(&place).expect("room");
        let text = match round % 3 {
            0 => "x".repeat(5 << 20),
            1 => "{\"rollouts\": {\"a\": [".to_owned(),
            _ => json!({"peer_id": "node-0", "round": 99, "timestamp": 1e12, "rollouts": {}}).to_string(),
        };
        fs::write(place.join("hostile.json"), text).expect("room");
    }
    assert!(run.wait().expect("it ends").success());
    for node in 0..3 {
        let rounds = rounds_of(&home, &format!("out/node-{node}"));
        let last = rounds.values().next_back().expect("it took part");
        assert!(rounds.contains_key(&12) && last["metrics"]["ignored_files"].as_f64().unwrap() > 0.0, "{last}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_is_estimated_of_a_node_is_what_runs_to_the_byte() {
    let home = home("sapo-rehearsed");
    let variants: [&[&str]; 6] = [
        &[],
        &["--set=swarm.local_questions=8", "--set=swarm.external_questions=0", "--set=swarm.empty_cache=false"],
        &["--set=swarm.log_probs=chunked_head", "--set=swarm.logits_to_keep=false"],
        &["--gradient-checkpointing=true", "--precision=amp-bf16", "--set=swarm.log_probs=chunked"],
        &["--precision=bf16", "--optimizer=adamw_fused"],
        &[
            "--prompt-len=100",
            "--completion-len=156",
            "--set=model.n_positions=256",
            "--set=model.vocab_size=5000",
            "--set=swarm.local_questions=2",
            "--set=swarm.external_questions=6",
        ],
    ];
    for variant in variants {
        rehearsed(&home, &[&["job.toml"], variant].concat());
    }
}

/// Trainers of a node of the run that writes to `output`, by their command lines.
fn processes_of(output: &Path, node: u64) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("a system with /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let output = output.canonicalize().expect("it is there");
    let is_node = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
        let is_trainer = words.get(1).is_some_and(|word| word == "trainer");
        let writes_there = words.iter().any(|word| *word == format!("output_dir={}", output.display()));
        is_trainer && writes_there && words.windows(2).any(|pair| pair[0] == "--node" && pair[1] == node.to_string())
    };
    pids.filter(is_node).collect()
}
