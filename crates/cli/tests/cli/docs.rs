//! The commands of README.md and docs/*.md: those that need nothing but the repository run, the flags of the others exist.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What runs without a script, a GPU or a place for runs.
const RUNS: [&str; 12] =
    ["estimate", "check", "fit", "plan", "cost", "trace", "models", "gpus", "keys", "schema", "completions", "doctor"];

/// A command of a page.
struct Line {
    place: String,
    words: Vec<String>,
    /// What the page shows of its output.
    shown: Vec<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// README.md and the pages.
fn pages() -> Vec<PathBuf> {
    let pages =
        std::fs::read_dir(repository().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = pages.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.push(repository().join("README.md"));
    pages.sort();
    pages
}

/// The commands in a page's blocks of shell, without remarks and without what a pipe follows.
fn lines(page: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(page).expect("a page");
    let mut lines: Vec<Line> = Vec::new();
    let mut block = "";
    for (number, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            block = if block.is_empty() { fence } else { "" };
            continue;
        }
        let command = match block {
            "sh" => line.strip_prefix("tonnage "),
            "console" => line.strip_prefix("$ tonnage "),
            _ => continue,
        };
        let place = format!("{}:{}", page.display(), number + 1);
        match command {
            Some(command) => lines.push(Line { place, words: words(command), shown: Vec::new() }),
            None if block == "console" && !line.starts_with('$') => {
                if let Some(last) = lines.last_mut() {
                    last.shown.push(line.to_owned());
                }
            }
            None => {}
        }
    }
    lines.into_iter().filter(|line| !line.words.is_empty()).collect()
}

/// The words of a command up to a remark, a pipe or a second command; quotes hold words together.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ' ') => {
                if matches!(word.as_str(), "#" | "|" | ">" | "&&" | "2>&1") {
                    return words;
                }
                if word.ends_with(';') {
                    words.push(word.trim_end_matches(';').to_owned());
                    return words;
                }
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

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

/// Whether the lines stand in `text`, in this order.
fn stand_in(shown: &[String], text: &str) -> bool {
    let mut left = text.lines();
    shown
        .iter()
        .filter(|line| !line.trim().is_empty())
        .all(|line| left.any(|other| other.trim_end() == line.trim_end()))
}

#[test]
fn commands_of_the_pages_that_need_nothing_run() {
    let folder = place_of("commands");
    let mut count = 0;
    for line in pages().iter().flat_map(|page| lines(page)) {
        let is_plan =
            ["plan", "render"].iter().any(|name| line.words.starts_with(&["suite".to_owned(), (*name).to_owned()]));
        let runs = (is_plan || RUNS.contains(&line.words[0].as_str()))
            && !line.words.iter().any(|word| is_a_placeholder(word));
        if !runs {
            continue;
        }
        count += 1;
        let output = run(&line.words, &folder);
        let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {:?}\n{out}{errors}", line.place, line.words);
        assert!(
            stand_in(&line.shown, &out),
            "{}: the page shows\n{}\nand it prints\n{out}",
            line.place,
            line.shown.join("\n")
        );
    }
    assert!(count >= 30, "{count} commands were found");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A file that a reader has and the repository has not.
fn is_a_placeholder(word: &str) -> bool {
    let own =
        ["job.toml", "train.log", "config.json", "logs/", "snapshot.pickle", "swarm.toml", "DIR", "FILE", "suite.toml"];
    own.iter().any(|name| word.ends_with(name)) && !word.contains("examples/") && !word.contains("testdata/")
}

#[test]
fn flags_of_all_commands_of_the_pages_exist() {
    let folder = repository();
    for line in pages().iter().flat_map(|page| lines(page)) {
        let name = line.words[0].clone();
        let mut help = vec![name.clone()];
        help.extend(line.words.get(1).filter(|_| name == "trace" || name == "suite").cloned());
        help.push("--help".to_owned());
        let output = run(&help, &folder);
        assert_eq!(output.status.code(), Some(0), "{}: there is no `tonnage {name}`", line.place);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = line.words.iter().take_while(|word| *word != "--");
        for flag in own.filter(|word| word.starts_with("--")) {
            let flag = flag.split('=').next().unwrap_or_default();
            let is_listed =
                text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).any(|word| word == flag);
            assert!(is_listed, "{}: `tonnage {name}` has no {flag}", line.place);
        }
    }
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
