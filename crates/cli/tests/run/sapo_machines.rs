//! A swarm over two machines, which are two mount namespaces here: each has its own mount of the shared folder and sees nothing else of the
//! other. And what nodes say that are one model under two names. Ignored unless asked for: `TONNAGE_TORCH_PYTHON` names a Python with PyTorch.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Home;
use super::sapo::{home, rounds_of, wait_until, words};
use super::train::{command, run, succeeded};

/// In a namespace of its own: mounts the first folder at the second, hides the first and the third, and runs the rest.
const MACHINE: &str =
    r#"mount --bind "$1" "$2" && mount -t tmpfs none "$1" && mount -t tmpfs none "$3" && shift 3 && exec "$@""#;

/// How a namespace of mounts is made here; `None` where it is not allowed.
fn namespace() -> Option<Vec<&'static str>> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let works = |way: &&&[&str]| {
        let mut tried = Command::new("unshare");
        tried.args(**way).args(["mount", "-t", "tmpfs", "none", "/tmp"]).stderr(Stdio::null());
        tried.status().is_ok_and(|status| status.success())
    };
    ways.iter().find(works).map(|way| way.to_vec())
}

/// `tonnage` on a machine of its own, which has `shared` mounted and does not see the home of `other`.
fn on_machine(way: &[&str], home: &Home, shared: &Path, other: &Home, words: &[&str]) -> Command {
    let plain = command(home, words);
    let mount = home.path("mnt");
    std::fs::create_dir_all(&mount).expect("room");
    let mut machine = Command::new("unshare");
    machine.args(way).args(["sh", "-c", MACHINE, "sh"]).args([shared, &mount, &other.path("")]);
    machine.arg(plain.get_program()).args(plain.get_args()).current_dir(home.path(""));
    machine.stdin(Stdio::null()).envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    machine
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn machines_that_share_a_mount_and_nothing_else_are_one_swarm() {
    let Some(way) = namespace() else {
        eprintln!("left out: this system allows no mount namespaces");
        return;
    };
    let (first, second) = (home("sapo-machine-1"), home("sapo-machine-2"));
    let shared = Home::new("sapo-machines").path("shared");
    std::fs::create_dir_all(&shared).expect("room");
    let folder = |home: &Home| format!("--set=swarm.folder={}", home.path("mnt").display());
    let (of_first, of_second) = (folder(&first), folder(&second));
    let begins = words("--max-steps=40", &[&of_first, "--set=swarm.nodes=2"]);
    let joins = words("--max-steps=40", &[&of_second, "--set=swarm.nodes=1", "--join"]);
    let mut begun =
        on_machine(&way, &first, &shared, &second, &begins).stdout(Stdio::null()).spawn().expect("it starts");
    wait_until("the first rounds", || shared.join("experiments/sapo/state/round_2.json").is_file());
    let joined = on_machine(&way, &second, &shared, &first, &joins).output().expect("it starts");
    succeeded(&joined);
    assert!(begun.wait().expect("it ends").success());
    let here = rounds_of(&second, "out/joined-0/node-0");
    let there = rounds_of(&first, "out/node-0");
    assert!(here.contains_key(&40) && here.len() < 40 && there.len() == 40, "{:?}", here.keys());
    // In rounds of both the first machine took groups of three nodes' and not of two: it chose among those of the second too.
    let pool = |round: &serde_json::Value| round["metrics"]["pool_groups"].as_f64().unwrap_or(0.0);
    assert!(here.keys().any(|round| pool(&there[round]) > 2.0), "nothing came over the mount");
    assert!(here.values().any(|round| round["metrics"]["chosen_groups"].as_f64() > Some(0.0)));
    // Neither left anything in the place of its mount.
    assert!([&first, &second].iter().all(|home| home.path("mnt").read_dir().expect("it is there").next().is_none()));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn nodes_that_stay_one_model_and_a_pool_that_is_too_small_are_said() {
    let home = home("sapo-identical");
    let more = [
        "--set=swarm.nodes=2",
        "--set=swarm.external_questions=3",
        "--set=swarm.foreign_advantages=both",
        "--set=swarm.specialties=false",
        "--set=grpo.questions=[\"addition\"]",
        // Below this some bytes are no text, so that what a node shares is not what it wrote.
        "--set=grpo.warm_start_reward=0.9",
        "--set=swarm.filter=zero_advantage",
        "--learning-rate=1e-3",
    ];
    let words = words("--max-steps=8", &more);
    let output = run(&home, &words);
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("foreign groups could be chosen and 3 were wanted"), "{said}");
    assert!(said.contains("node-1 had the same weights as this node"), "{said}");
    // Who learns from what is better than its group alone goes a way of its own.
    let apart = [&more[..2], &["--set=swarm.foreign_advantages=positive"], &more[3..], &["--overwrite"]].concat();
    let output = run(&home, &super::sapo::words("--max-steps=8", &apart));
    succeeded(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("the same weights"), "{said}");
}
