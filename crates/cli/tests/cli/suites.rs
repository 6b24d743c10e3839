//! `tonnage suite plan` and `render`: the examples on the screen and as files.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::check_snapshot;
use crate::{command, json};

const EXAMPLES: &str = "../../../../examples/suites";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("the binary runs")
}

/// What is printed, without what differs from checkout to checkout.
fn printed(args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().map(|line| if line.starts_with("code: ") { "code: VERSION" } else { line });
    lines
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        .replace(&repository().display().to_string(), "/REPOSITORY")
}

fn check(name: &str, found: &str) {
    check_snapshot(&repository().join(format!("crates/cli/tests/expected/{name}.txt")), found);
}

/// A run's identity follows the commit: it is no part of a snapshot.
fn without_identities(text: &str, file: &str) -> String {
    let answer = json(&["suite", "plan", file, "--json"]);
    let mut text = text.to_owned();
    for (at, run) in answer["runs"].as_array().expect("runs").iter().enumerate() {
        text = text.replace(run["id"].as_str().expect("an identity"), &format!("IDENTITY-{at:02}"));
    }
    text
}

#[test]
fn plans_of_the_examples() {
    for name in ["sapo-gpt2", "hrm-arc", "policies", "lr-scan", "lilwill", "grpo-judge", "hrm-sudoku"] {
        check(
            &format!("suite_plan_{name}"),
            &printed(&["suite", "plan", &format!("{EXAMPLES}/{name}.toml"), "--limit", "24"]),
        );
    }
}

#[test]
fn files_of_every_engine() {
    let file = format!("{EXAMPLES}/lr-scan.toml");
    for engine in ["slurm", "compose", "kubernetes", "skypilot"] {
        let text = printed(&["suite", "render", &file, "--engine", engine, "--gpus", "8"]);
        check(&format!("suite_render_{engine}"), &without_identities(&text, &file));
    }
}

#[test]
fn what_does_not_hold_is_refused_with_its_place() {
    let file = format!("{EXAMPLES}/sapo-gpt2.toml");
    let problem = |words: &[&str]| String::from_utf8(run(words).stderr).expect("UTF-8");
    let odd = problem(&["suite", "plan", &file, "swarm.local_questions=9"]);
    assert!(
        odd.contains(
            "configuration `8/0`: `swarm.local_questions` 9 + `swarm.external_questions` 0 is 9, it must be 8"
        ),
        "{odd}"
    );
    let group = problem(&["suite", "plan", &file, "--suite", "9/9"]);
    assert!(group.contains("the suite has no `9/9`") && group.contains("8/0, 6/2, 4/4, 2/6"), "{group}");
    let field = problem(&["suite", "plan", &file, "model.H_cycles=2"]);
    assert!(field.contains("`model.H_cycles`: the config of a `gpt2` has no such field"), "{field}");
    let role = problem(&["suite", "render", &file, "--engine", "slurm"]);
    assert!(role.contains("`{role}` is filled in by `tonnage run` alone"), "{role}");
}

#[test]
fn ten_thousand_runs_are_planned() {
    let file = std::env::temp_dir().join(format!("tonnage-many-{}.toml", std::process::id()));
    let rates: Vec<String> = (1..=100).map(|rate| format!("{rate}e-5")).collect();
    let text = format!(
        "job = \"gpt2\"\nseeds = 100\n[parameters]\nlr = 1e-3\n[set]\ngpu = \"l4\"\nmax_steps = 100\n[[configuration]]\nlr = [{}]\n",
        rates.join(", ")
    );
    std::fs::write(&file, text).expect("a file");
    let answer = json(&["suite", "plan", &file.display().to_string(), "--gpus", "8", "--json"]);
    let runs = answer["runs"].as_array().expect("runs");
    let mut ids: Vec<&str> = runs.iter().filter_map(|run| run["id"].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((runs.len(), ids.len()), (10_000, 10_000), "every run is another");
    assert!(runs.iter().all(|run| run["place"]["end_seconds"].is_number()));
    std::fs::remove_file(&file).expect("removed");
}
