//! `tonnage suite run` and its kin, with scripts of a shell: what is done stays done, whatever dies.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Home, wait_gone};

/// A suite of two configurations, whose script is told configuration and seed.
pub fn suite(seeds: usize) -> String {
    format!(
        "name = \"s\"\ncommand = [\"sh\", \"t.sh\", \"{{a}}\", \"{{seed}}\"]\nseeds = {seeds}\n\
         metrics = [\"step {{step}} loss {{loss}}\"]\n[parameters]\na = 0\n[[configuration]]\nname = \"c\"\na = [1, 2]\n"
    )
}

/// A home with it, and its script.
pub fn made(name: &str, suite: &str, script: &str) -> Home {
    let home = Home::new(name);
    home.write("s.toml", suite);
    home.write("t.sh", script);
    home
}

/// The sorted lines of a file.
pub fn lines(home: &Home, file: &str) -> Vec<String> {
    let text = fs::read_to_string(home.path(file)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The suite's status.
pub fn status(home: &Home) -> Value {
    serde_json::from_slice(&home.run(&["suite", "status", "--json"]).stdout).unwrap_or(Value::Null)
}

/// All that a command said.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Until something is so that must come, however slow the machine is.
pub fn wait(is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < until, "it takes too long");
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn a_suite_runs_once_and_its_report_is_there() {
    let script = "echo step 1 loss 0.5; echo step 2 loss 0.$2; echo $1 $2 >> done\n";
    let home = made("suite-once", &suite(2).replace("name = \"s\"", "name = \"s\"\ncode = [\"t.sh\"]"), script);
    let output = home.run(&["suite", "run", "s.toml", "--slots", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(lines(&home, "done"), ["1 0", "1 1", "2 0", "2 1"]);
    let again = home.run(&["suite", "run", "s.toml"]);
    assert!(again.status.success() && text(&again).contains("4 done, 0 failed, 0 missing"), "{}", text(&again));
    assert_eq!(lines(&home, "done").len(), 4, "what is done is not done again");
    let more = home.run(&["suite", "run", "s.toml", "a=1,2,3"]);
    assert!(more.status.success(), "{}", text(&more));
    assert_eq!(lines(&home, "done").len(), 6, "only what is missing");
    let found = status(&home);
    assert_eq!((&found["succeeded"], &found["waiting"], &found["is_run"]), (&6.into(), &0.into(), &false.into()));
    let report = text(&home.run(&["report", "s"]));
    assert!(report.contains("6 runs of 3 configurations") && report.contains("Asked about: `loss`"), "{report}");
    let exported = home.run(&["suite", "export", "s", "--to", "tensorboard", "--out", "events"]);
    assert!(exported.status.success(), "{}", text(&exported));
    let events = text(&home.run(&["report", "events"]));
    assert!(events.contains("6 runs") && events.contains("`loss`"), "{events}");
    assert!(home.run(&["suite", "export", "--to", "csv", "--out", "tables"]).status.success());
    let table = fs::read_to_string(home.path("tables/metrics.csv")).unwrap();
    assert!(table.contains("\"c a=1\",1,2,\"loss\",0.1\n"), "{table}");
    // The code is another: so are all runs.
    home.write("t.sh", "echo other $1 $2 >> done\n");
    let other = home.run(&["suite", "run", "s.toml"]);
    assert!(other.status.success(), "{}", text(&other));
    assert_eq!(lines(&home, "done").len(), 10);
}

/// What was typed may be all that told two configurations apart: a run is not made twice under two names.
#[test]
fn runs_that_differ_in_nothing_are_made_once() {
    let suite = "name = \"s\"\ncommand = [\"sh\", \"t.sh\", \"{a}\"]\n[parameters]\na = 0\n\
                 [[configuration]]\nname = \"x\"\na = 1\n[[configuration]]\nname = \"y\"\na = 2\nseeds = [0, 1]\n";
    let home = made("suite-twins", suite, "echo $1 >> done\n");
    for command in ["plan", "run"] {
        let output = home.run(&["suite", command, "s.toml", "a=5"]);
        let said = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 run is one of `x` under the name `y`, which differs in nothing"), "{said}");
    }
    assert_eq!(lines(&home, "done"), ["5", "5"], "seed 0 once, seed 1 of the second");
    assert_eq!(status(&home)["succeeded"], 2);
    assert!(!text(&home.run(&["suite", "plan", "s.toml"])).contains("differs in nothing"));
}

#[test]
fn failures_pause_the_suite_and_are_retried_by_class() {
    let script = "[ -e mended ] || { echo no >&2; exit 3; }\necho $1 $2 >> done\n";
    let home = made("suite-retry", &suite(4).replace("name = \"s\"", "name = \"s\"\ncode = [\"t.sh\"]"), script);
    let output = home.run(&["suite", "run", "s.toml", "--slots", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("paused: 3 runs failed alike at their start"), "{}", text(&output));
    let found = status(&home);
    assert_eq!((&found["failed"], &found["waiting"]), (&3.into(), &5.into()), "{found}");
    let classes: BTreeMap<String, u64> = serde_json::from_value(found["failures"].clone()).unwrap();
    let (class, count) = classes.first_key_value().unwrap();
    assert_eq!(*count, 3);
    home.write("mended", "");
    let none = home.run(&["suite", "retry", "--class", "gpu_memory"]);
    assert_eq!(none.status.code(), Some(1), "{}", text(&none));
    assert!(!home.path("done").exists());
    let retried = home.run(&["suite", "retry", "s", "--class", class, "--slots", "4"]);
    assert!(retried.status.success(), "{}", text(&retried));
    assert_eq!(lines(&home, "done").len(), 8);
    let unknown = home.run(&["suite", "status", "nothing"]);
    assert!(text(&unknown).contains("there is no suite `nothing`"), "{}", text(&unknown));
}

#[test]
fn no_value_is_read_by_a_shell_or_as_a_name() {
    let hostile =
        ["$(touch pwned)", "`touch pwned`", "a b\n-c", "'\\\"'", "{seed} {a} {overrides}", "--", "ü😀", ";touch pwned"];
    let list: Vec<String> = hostile.iter().map(|value| serde_json::to_string(value).unwrap()).collect();
    let suite = format!(
        "name = \"s\"\ncommand = [\"sh\", \"t.sh\", \"{{v}}\", \"x{{v}}\"]\n[parameters]\nv = \"\"\n[[configuration]]\nv = [{}]\n",
        list.join(", ")
    );
    let script = "printf '%s\\0%s\\0' \"$1\" \"$2\" >> done\ncat \"$TONNAGE_PARAMETERS\" >> parameters\n";
    let home = made("suite-hostile", &suite, script);
    let output = home.run(&["suite", "run", "s.toml"]);
    assert!(output.status.success(), "{}", text(&output));
    let words = fs::read_to_string(home.path("done")).unwrap();
    let mut found: Vec<&str> = words.split_terminator('\0').collect();
    let mut expected: Vec<String> =
        hostile.iter().flat_map(|value| [(*value).to_owned(), format!("x{value}")]).collect();
    found.sort_unstable();
    expected.sort();
    assert_eq!(found, expected);
    assert!(!home.path("pwned").exists());
    let values = fs::read_to_string(home.path("parameters")).unwrap();
    assert!(list.iter().all(|value| values.contains(value.as_str())), "{values}");
    home.write("s.toml", &suite.replace(&list[0], "\"{{seed}}\""));
    let refused = home.run(&["suite", "run", "s.toml"]);
    assert!(!refused.status.success() && text(&refused).contains("doubled braces"), "{}", text(&refused));
}

#[test]
fn stop_ends_runs_and_run_goes_on_with_them() {
    let script = "trap 'exit 143' TERM\n[ -e go ] || { sleep 60 & wait $!; }\necho $1 $2 >> done\n";
    let home = made("suite-stop", &suite(1), script);
    let mut runner = home.command(&["suite", "run", "s.toml", "--slots", "2"]).stderr(Stdio::null()).spawn().unwrap();
    wait(|| status(&home)["running"] == 2);
    let held = home.run(&["suite", "run", "s.toml"]);
    assert!(text(&held).contains("suite s is run already"), "{}", text(&held));
    let stopped = home.run(&["suite", "stop", "s"]);
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert_eq!(runner.wait().unwrap().code(), Some(1));
    let found = status(&home);
    assert_eq!((&found["running"], &found["waiting"]), (&0.into(), &2.into()), "{found}");
    assert_eq!(home.run(&["suite", "stop", "s"]).status.code(), Some(1), "nothing runs");
    home.write("go", "");
    let again = home.run(&["suite", "run", "s.toml", "--slots", "2"]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(lines(&home, "done"), ["1 0", "2 0"]);
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let home = made("suite-unwritable", &suite(1), "echo $1 $2 >> done\n");
    home.write("home", "a file where the folder should be");
    for command in ["run", "submit"] {
        let refused = home.run(&["suite", command, "s.toml"]);
        let said = text(&refused).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("home/suites/s") && said.contains("TONNAGE_HOME names the folder"), "{said}");
    }
    assert!(!home.path("done").exists(), "nothing was started");
}

/// Ctrl-C asks runs to end, and tells of no time that is left.
#[test]
fn ctrl_c_asks_once_and_then_insists() {
    let script = "trap 'echo $2 >> asked; [ -e stays ] || exit 143' TERM\n: > up-$2\n[ -e go ] || while :; do sleep 0.1; done\n\
                  echo $1 $2 >> done\n";
    let home = made("suite-ctrl-c", &suite(2).replace("[1, 2]", "[1]"), script);
    let interrupted = |times: usize| {
        let runner = home.command(&["suite", "run", "s.toml", "--slots", "1"]).stderr(Stdio::piped()).spawn().unwrap();
        wait(|| home.path("up-0").exists());
        for time in 1..=times {
            kill(Pid::from_raw(runner.id().cast_signed()), Signal::SIGINT).unwrap();
            wait(|| time < times || status(&home)["running"] == 0);
            // The second finds a run that was asked and stays.
            wait(|| time == times || home.path("asked").exists());
        }
        let output = runner.wait_with_output().unwrap();
        fs::remove_file(home.path("up-0")).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        text(&output)
    };
    let said = interrupted(1);
    assert!(said.contains("c seed 0 stopped") && !said.contains(" left"), "{said}");
    assert_eq!(lines(&home, "asked"), ["0"]);
    home.write("stays", "");
    fs::remove_file(home.path("asked")).unwrap();
    interrupted(2);
    assert_eq!(status(&home)["waiting"], 2);
    home.write("go", "");
    assert!(home.run(&["suite", "run", "s.toml"]).status.success());
    assert_eq!(lines(&home, "done"), ["1 0", "1 1"]);
}

/// Killed with -9 at many moments and started again: every result once, none lost. `TONNAGE_SUITE_RUNS=200` makes the whole of it.
#[test]
fn a_runner_killed_at_any_moment_loses_nothing() {
    let asked = std::env::var("TONNAGE_SUITE_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: usize = asked.unwrap_or(16);
    let kills = if runs >= 200 { 20 } else { 5 };
    let script = "sleep 0.1\necho $1 $2 >> done\n# suite-kill-marker\n";
    let home = made("suite-kills", &suite(runs / 2), script);
    let mut moment = 7_u64;
    for _ in 0..kills {
        let mut runner: Child =
            home.command(&["suite", "run", "s.toml", "--slots", "2"]).stderr(Stdio::null()).spawn().unwrap();
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(30 + (moment >> 33) % 900));
        // One that is done already has no need of it.
        let _ = runner.kill();
        runner.wait().unwrap();
    }
    let output = home.run(&["suite", "run", "s.toml", "--slots", "2"]);
    assert!(output.status.success(), "{}", text(&output));
    let expected = (1..=2).flat_map(|a| (0..runs / 2).map(move |seed| format!("{a} {seed}")));
    let mut expected: Vec<String> = expected.collect();
    expected.sort();
    assert_eq!(lines(&home, "done"), expected);
    assert_eq!(status(&home)["succeeded"], runs);
    wait_gone("suite-kills/t.sh");
}

/// Jobs of a GPU that nothing tells of: what is promised at once never exceeds it, and two share it.
#[test]
fn runs_share_a_gpu_by_their_predicted_bytes() {
    // The first waits for a second one, which comes only where two may share the GPU.
    let script = "echo + $1 $2 >> log\nfor i in $(seq 600); do [ $(grep -c + log) -ge 2 ] && break; sleep 0.1; done\n\
                  sleep 0.5\necho - $1 $2 >> log\n";
    let suite = "name = \"s\"\njob = \"gpt2\"\ncommand = [\"sh\", \"t.sh\", \"{micro_batch_size}\", \"{seed}\"]\n\
        seeds = 3\n[run]\nstagger_seconds = 0.1\n[set]\ngpu = \"24GiB,sm_86\"\nseq_len = 512\n\
        [[configuration]]\nname = \"c\"\nmicro_batch_size = [1, 2]\n";
    let home = made("suite-pack", suite, script);
    let output = home.run(&["suite", "run", "s.toml", "--gpus", "0"]);
    assert!(output.status.success(), "{}", text(&output));
    let plan: Value = serde_json::from_slice(&fs::read(home.path("home/suites/s/plan.json")).unwrap()).unwrap();
    let predicted = |rows: &str| {
        let configurations = plan["configurations"].as_array().unwrap();
        let name = format!("c micro_batch_size={rows}");
        let one = &configurations.iter().find(|one| one["name"] == name.as_str()).unwrap()["predicted"];
        (one["total_bytes"].as_u64().unwrap(), one["usable_bytes"].as_u64().unwrap())
    };
    let (mut promised, mut at_once, mut most) = (0, 0_usize, 0);
    for line in fs::read_to_string(home.path("log")).unwrap().lines() {
        let mut words = line.split(' ');
        let (sign, rows) = (words.next().unwrap(), words.next().unwrap());
        let (bytes, usable) = predicted(rows);
        (promised, at_once) =
            if sign == "+" { (promised + bytes, at_once + 1) } else { (promised - bytes, at_once - 1) };
        assert!(promised <= usable, "{promised} of {usable}");
        most = at_once.max(most);
    }
    assert!(most >= 2, "{most} at once");
}
