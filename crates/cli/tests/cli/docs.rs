//! The commands of README.md and docs/*.md: their flags exist, also of those within sentences; `tests/run/pages.rs` executes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tonnage_core::job::words::meaning_of_name;

use super::support::pages::{all_lines, pages, repository, split_words};

/// A folder in which the repository's paths exist and written files do no harm.
fn place_of(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("docs-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["examples", "testdata", "docs", "crates"] {
        std::os::unix::fs::symlink(repository().join(name), folder.join(name)).expect("a link");
    }
    folder
}

fn run(words: &[String], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tonnage"));
    command.args(words).current_dir(folder).env_clear().env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
    command.output().expect("the binary runs")
}

/// Fails where the program has no such command, or the command no such flag.
fn check_flags(place: &str, words: &[String]) {
    let folder = repository();
    let name = words[0].clone();
    let mut help = vec![name.clone()];
    help.extend(words.get(1).filter(|_| name == "trace" || name == "suite").cloned());
    help.push("--help".to_owned());
    let output = run(&help, &folder);
    assert_eq!(output.status.code(), Some(0), "{place}: there is no `tonnage {name}`");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = words.iter().take_while(|word| *word != "--");
    for flag in own.filter(|word| word.starts_with("--")) {
        let flag = flag.split('=').next().unwrap_or_default();
        let is_listed = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).any(|word| word == flag);
        // A word of another program, which commands that take a job read.
        let is_known = meaning_of_name(flag).is_some() && text.contains("--micro-batch-size");
        assert!(is_listed || is_known, "{place}: `tonnage {name}` has no {flag}");
    }
}

#[test]
fn flags_of_all_commands_of_the_pages_exist() {
    for line in all_lines() {
        let words = line.words();
        if !words.is_empty() {
            check_flags(&line.place, &words);
        }
    }
}

/// The commands that a page's sentences name between backticks.
fn named_commands(text: &str) -> Vec<String> {
    let sentences = text.split("```").step_by(2).flat_map(str::lines);
    let quoted = sentences.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    quoted.filter_map(|code| code.strip_prefix("tonnage ").map(str::to_owned)).collect()
}

#[test]
fn commands_within_sentences_exist() {
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for command in named_commands(&text) {
            let words = split_words(&command);
            let is_a_name = words.first().is_some_and(|word| word.chars().all(|c| c.is_ascii_lowercase()));
            if is_a_name {
                count += 1;
                check_flags(&format!("{}: `tonnage {command}`", page.display()), &words);
            }
        }
    }
    assert!(count > 50, "{count} were found");
}

/// Lines of code without those that documentation hides.
fn shown_code(text: &str, fence: &str) -> Vec<String> {
    let block = text.split(fence).nth(1).and_then(|rest| rest.split("```").next()).expect("a block of Rust");
    let lines = block.lines().map(|line| line.trim_start_matches("//!").trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with("# ")).map(str::to_owned).collect()
}

#[test]
fn the_librarys_page_shows_what_its_doctest_runs() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).expect("a file");
    let page = shown_code(&read("docs/library.md"), "```rust\n");
    assert_eq!(page, shown_code(&read("crates/core/src/lib.rs"), "//! ```\n"));
}

#[test]
fn the_readmes_plot_is_what_its_command_draws() {
    let folder = place_of("plot");
    let words = "estimate gpt2 --micro-batch-size 8 --seq-len 1024 --gpu a100-80 --svg step.svg".split(' ');
    let output = run(&words.map(str::to_owned).collect::<Vec<_>>(), &folder);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read_to_string(folder.join("step.svg")).expect("a plot");
    let committed = repository().join("docs/images/step.svg");
    if std::env::var_os("TONNAGE_BLESS").is_some() {
        std::fs::write(&committed, &drawn).expect("the plot is written");
    }
    assert!(drawn == std::fs::read_to_string(&committed).expect("the committed plot"), "draw it anew: TONNAGE_BLESS=1");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Words between backticks.
fn quoted_words(page: &str) -> BTreeSet<&str> {
    let is_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
    let quoted = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.flat_map(|code| code.split(move |c| !is_of_a_name(c))).collect()
}

/// The keys of a document, but those that are a job's or a message's own.
fn keys_of(value: &Value, found: &mut BTreeSet<String>) {
    const THEIRS: [&str; 3] = ["changes", "figures", "record"];
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                found.insert(key.clone());
                if !THEIRS.contains(&key.as_str()) && !key.ends_with("_at_peak") && !key.ends_with("per_phase") {
                    keys_of(below, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys_of(value, found)),
        _ => {}
    }
}

#[test]
fn every_key_of_an_answer_is_on_its_page() {
    let page = std::fs::read_to_string(repository().join("docs/json.md")).unwrap();
    let known = quoted_words(&page);
    let commands = [
        "gpus",
        "models",
        "keys",
        "estimate gpt2",
        "estimate gpt2 --gpu l4",
        "estimate gpt2 --gpu l4 --compare seq_len=8,16",
        "estimate examples/sapo-gpt2-swarm.toml --gpu a100-80",
        "fit gpt2 --gpus l4,t4",
        "fit gpt2 --gpus l4 --solve seq_len",
        "plan gpt2 --gpu t4 --max-steps 10",
        "plan gpt2 --max-steps 10 --gpus h100 --budget 10",
        "cost gpt2 --gpu l4 --max-steps 10",
        "trace replay testdata/snapshots/mid_training.pickle.gz",
        "doctor testdata/failures/slurm-oom.txt",
        "doctor testdata/failures",
    ];
    for command in commands {
        let words = split_words(&format!("{command} --json"));
        let output = run(&words, &repository());
        let answer: Value = serde_json::from_slice(&output.stdout).expect(command);
        let mut keys = BTreeSet::new();
        keys_of(&answer, &mut keys);
        let unknown: Vec<&String> = keys.iter().filter(|key| !known.contains(key.as_str())).collect();
        assert!(unknown.is_empty(), "`tonnage {command} --json` has keys that docs/json.md does not name: {unknown:?}");
    }
}
