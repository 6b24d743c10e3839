//! What a shell makes of what is rendered.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::plan::{Planned, PlannedRun};

/// The output of `script` in a real bash.
fn bash(script: &str) -> Vec<u8> {
    let mut shell = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    shell.wait_with_output().unwrap().stdout
}

/// Words that a shell might take for something else.
fn words() -> impl Strategy<Value = Vec<String>> {
    let hostile = prop_oneof![
        Just("$(echo pwned)".to_owned()),
        Just("`echo pwned`".to_owned()),
        Just("-n".to_owned()),
        Just(String::new()),
        Just("a'b\"c\\".to_owned()),
        Just("\n;echo pwned\n".to_owned()),
        Just("$HOME ~ * ? [a] {b,c} !x #y".to_owned()),
        "[^\u{0}]{0,12}",
    ];
    prop::collection::vec(hostile, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bash_reads_every_word_back(commands in prop::collection::vec(words(), 1..4), at in 0usize..4) {
        let at = at % commands.len();
        let slices: Vec<&[String]> = commands.iter().map(Vec::as_slice).collect();
        let ids: Vec<String> = (0..commands.len()).map(|id| format!("id{id}")).collect();
        let names: Vec<String> = commands.iter().map(|words| words.join(" ")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let script = format!(
            "INDEX={at}\n{}printf '%s\\0' \"$TONNAGE_RUN\" \"$TONNAGE_NAME\" \"$@\"\n",
            cases("\"$INDEX\"", &slices, &ids, &names)
        );
        let mut expected: Vec<String> = vec![ids[at].to_owned(), names[at].clone()];
        expected.extend(commands[at].iter().cloned());
        let expected: Vec<u8> = expected.iter().flat_map(|word| word.bytes().chain([0])).collect();
        prop_assert_eq!(bash(&script), expected);
    }
}

fn plan(suite: &str, name: &str) -> Plan {
    Plan {
        suite: suite.to_owned(),
        directory: "/home/a b/$x".to_owned(),
        configurations: vec![Planned { name: name.to_owned(), groups: vec![name.to_owned()], ..Planned::default() }],
        runs: (0..2).map(|seed| PlannedRun { id: format!("id{seed}"), configuration: 0, seed }).collect(),
        ..Plan::default()
    }
}

fn rendered(engine: &str, elsewhere: &Elsewhere, name: &str) -> Result<Vec<Rendered>, String> {
    let plan = plan("s", name);
    let commands = vec![vec!["python".to_owned(), name.to_owned()], vec!["python".to_owned(), "x".to_owned()]];
    let limits = Limits { hours: Some(36.5), gpus: None };
    let machine = Machine { gpus: 1, usable_bytes: 0, slots: 1 };
    let rendering =
        Rendering { plan: &plan, commands: &commands, elsewhere, limits: &limits, grace_seconds: 90, machine };
    let engine = ENGINES.iter().find(|one| one.name == engine).unwrap();
    (engine.render)(&rendering)
}

fn container() -> Elsewhere {
    Elsewhere { container: Some("image:1".to_owned()), gpu_type: Some("h100".to_owned()), ..Elsewhere::default() }
}

#[test]
fn what_a_directive_cannot_hold_is_refused() {
    let wrong = [
        Elsewhere { account: Some("a\n#SBATCH --uid=0".to_owned()), ..container() },
        Elsewhere { partition: Some("a b".to_owned()), ..container() },
        Elsewhere { directives: vec!["--x\n/bin/evil".to_owned()], ..container() },
        Elsewhere { directives: vec!["echo".to_owned()], ..container() },
        Elsewhere { container_engine: Some("docker".to_owned()), ..container() },
    ];
    assert!(wrong.iter().all(|elsewhere| rendered("slurm", elsewhere, "c").is_err()));
    let secret = Elsewhere { secrets: vec!["TOKEN=abc".to_owned()], ..container() };
    assert!(rendered("compose", &secret, "c").unwrap_err().contains("values do not belong here"));
    assert!(rendered("compose", &Elsewhere::default(), "c").unwrap_err().contains("container"));
}

#[test]
fn every_engine_renders_hostile_names_and_bash_takes_its_scripts() {
    let name = "$(touch pwned) `x` 'q' \"d\"\n- a: b\u{1f600}";
    for engine in ENGINES {
        for file in rendered(engine.name, &container(), name).unwrap() {
            if !file.is_script {
                // A line that a name began would stand at the margin.
                assert!(
                    file.text.lines().all(|line| !line.starts_with("- a: b") || engine.name == "slurm"),
                    "{}",
                    file.text
                );
                continue;
            }
            let mut shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(file.text.as_bytes()).unwrap();
            assert!(shell.wait().unwrap().success(), "{}", file.text);
            assert!(file.text.contains("#SBATCH --time=1-12:30:00") && file.text.contains("cd -- '/home/a b/$x'"));
        }
    }
    assert!(!std::path::Path::new("pwned").exists());
}
