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
        Just("a\r\nb'\r\n".to_owned()),
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
        prop_assert!(!script.contains("\r\n"), "sbatch refuses it");
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
    let rendering = Rendering {
        plan: &plan,
        commands: &commands,
        elsewhere,
        limits: &limits,
        grace_seconds: 90,
        machine,
        place: None,
    };
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

/// Two nodes: a launcher is told where its processes meet, and a JobSet a run.
#[test]
fn runs_of_several_nodes_meet() {
    let elsewhere = Elsewhere { gpus: Some(16), gpus_per_node: Some(8), jobset: true, ..container() };
    let plan = plan("s", "c");
    let of = |engine: &str, elsewhere: &Elsewhere, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let limits = Limits { hours: Some(12.0), gpus: None };
        let machine = Machine { gpus: 1, usable_bytes: 0, slots: 1 };
        let commands = vec![words; 2];
        let rendering = Rendering {
            plan: &plan,
            commands: &commands,
            elsewhere,
            limits: &limits,
            grace_seconds: 90,
            machine,
            place: None,
        };
        let engine = ENGINES.iter().find(|one| one.name == engine).unwrap();
        (engine.render)(&rendering).map(|files| files.into_iter().map(|file| file.text).collect::<String>())
    };
    let torchrun = of("slurm", &elsewhere, &["torchrun", "--standalone", "t.py"]).unwrap();
    assert!(
        torchrun.contains("--nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=\"$SLURM_JOB_ID\""),
        "{torchrun}"
    );
    let module = of("slurm", &elsewhere, &["python3", "-m", "torch.distributed.run", "t.py"]).unwrap();
    assert!(module.contains("launcher=(\"$1\" \"$2\" \"$3\")\nshift 3\n"), "{module}");
    let accelerate = of("slurm", &elsewhere, &["accelerate", "launch", "t.py"]).unwrap();
    assert!(accelerate.contains("--num_machines=2 --num_processes=16"), "{accelerate}");
    // Who says itself where it meets, or is no launcher, is left as it is.
    for words in [
        &["torchrun", "--nnodes=2", "t.py"][..],
        &["accelerate", "launch", "--num_machines", "2", "t.py"],
        &["python", "t.py"],
    ] {
        let text = of("slurm", &elsewhere, words).unwrap();
        assert!(!text.contains("launcher=(") && text.contains("export MASTER_ADDR MASTER_PORT"), "{text}");
    }
    let sets = of("kubernetes", &elsewhere, &["torchrun", "t.py"]).unwrap();
    assert_eq!(sets.matches("kind: \"JobSet\"").count(), 2, "{sets}");
    assert!(
        sets.contains("MASTER_ADDR=$JOBSET_NAME-run-0-0.$JOBSET_NAME") && sets.contains("nvidia.com/gpu: 8"),
        "{sets}"
    );
    let jobs = Elsewhere { jobset: false, ..elsewhere };
    assert!(of("kubernetes", &jobs, &["torchrun", "t.py"]).unwrap_err().contains("jobset = true"));
}

/// On one node two trainings must not meet at one port.
#[test]
fn runs_on_one_node_meet_by_themselves() {
    let elsewhere = Elsewhere { gpus: Some(8), ..container() };
    let text = |words: &[&str]| {
        let plan = plan("s", "c");
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (limits, machine) = (Limits::default(), Machine { gpus: 1, usable_bytes: 0, slots: 1 });
        let rendering = Rendering {
            plan: &plan,
            commands: &vec![words; 2],
            elsewhere: &elsewhere,
            limits: &limits,
            grace_seconds: 90,
            machine,
            place: None,
        };
        slurm::job_script(&rendering, &rendering.shapes()[0]).unwrap()
    };
    assert!(text(&["torchrun", "t.py"]).contains("--rdzv-endpoint=localhost:0"));
    assert!(!text(&["torchrun", "--standalone", "t.py"]).contains("launcher=("));
}

/// Arrays are as long as SLURM takes them, and chains as long as the limit asks.
#[test]
fn long_suites_are_several_arrays_and_long_runs_are_chains() {
    let mut plan = plan("s", "c");
    plan.runs = (0..2500).map(|seed| PlannedRun { id: format!("id{seed}"), configuration: 0, seed }).collect();
    let commands = vec![vec!["python".to_owned()]; 2500];
    let (limits, machine) = (Limits { hours: Some(12.0), gpus: None }, Machine { gpus: 1, usable_bytes: 0, slots: 1 });
    let of = |elsewhere: &Elsewhere, seconds: Option<f64>| {
        let rendering = Rendering {
            plan: &plan,
            commands: &commands,
            elsewhere,
            limits: &limits,
            grace_seconds: 90,
            machine,
            place: None,
        };
        let shape = Shape { seconds, ..rendering.shapes().remove(0) };
        let parts: Vec<usize> =
            slurm::array_parts(&rendering, &shape, slurm::MOST_TASKS).iter().map(|part| part.runs.len()).collect();
        (parts, slurm::chain_links(&rendering, &shape))
    };
    let day = Some(40.0 * 3600.0);
    assert_eq!(of(&container(), day), (vec![1000, 1000, 500], 4));
    assert_eq!(of(&container(), Some(3600.0)).1, 1);
    assert_eq!(of(&container(), None).1, 1, "nothing says that it takes longer");
    let throttled = Elsewhere { throttle: Some(4), ..container() };
    assert_eq!(of(&throttled, day).1, 1, "requeueing keeps to the throttle");
    let asked = Elsewhere { goes_on: Some(crate::file::GoesOn::Chain), ..throttled };
    assert_eq!(of(&asked, day).1, 4);
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
    assert!(!Path::new("pwned").exists());
}
