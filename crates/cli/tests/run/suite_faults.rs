//! Suites when things go wrong: supervisors that die, a disk that is full, a journal that is cut, another machine.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::suites::{lines, made, status, suite, text, wait};
use super::{Home, wait_gone};

/// The supervisors of a home's runs.
fn supervisors(home: &Home) -> Vec<i32> {
    let place = home.path("home/runs").display().to_string();
    let is_supervisor = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("\0supervise\0")
    };
    super::processes(&place).into_iter().filter(is_supervisor).collect()
}

/// A file anywhere below a folder.
fn found(folder: &std::path::Path, name: &str) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_entry = |path: std::path::PathBuf| match path.is_dir() {
        true => found(&path, name),
        false => Vec::from_iter((path.file_name() == Some(name.as_ref())).then_some(path)),
    };
    entries.flat_map(|entry| of_entry(entry.path())).collect()
}

/// Its own supervisor, stopped by the script's last deed, so that it cannot hear of the success, and killed.
const UNHEARD: &str = "echo $1 $2 >> done\nguardian=$(ps -o ppid= -p $PPID)\nkill -STOP $(ps -o ppid= -p $guardian)\n";

#[test]
fn a_success_that_no_supervisor_lived_to_hear_of_is_not_made_again() {
    for outlives in [true, false] {
        let home = made(&format!("suite-unheard-{outlives}"), &suite(1).replace("[1, 2]", "[1]"), UNHEARD);
        let mut runner = home.command(&["suite", "run", "s.toml"]).stderr(Stdio::null()).spawn().unwrap();
        wait(|| !found(&home.path("home/runs"), "exit.json").is_empty());
        if !outlives {
            runner.kill().unwrap();
        }
        supervisors(&home).iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
        let ended = runner.wait().unwrap();
        assert_eq!(ended.success(), outlives);
        if !outlives {
            let again = home.run(&["suite", "run", "s.toml"]);
            assert!(again.status.success(), "{}", text(&again));
        }
        assert_eq!(lines(&home, "done"), ["1 0"], "made once");
        assert_eq!(status(&home)["succeeded"], 1);
        assert!(text(&home.run(&["show", "last"])).contains("done, while its supervisor died"));
    }
}

/// One that was asked to end, saved and said 0 has not finished.
#[test]
fn what_ended_because_its_supervisor_died_is_made_again() {
    let script = "[ -e go ] && { echo $1 $2 >> done; exit 0; }\ntrap 'exit 0' TERM\ntouch waits\nsleep 60 & wait $!\n";
    let home = made("suite-asked", &suite(1).replace("[1, 2]", "[1]"), script);
    let runner = home.command(&["suite", "run", "s.toml"]).stderr(Stdio::piped()).spawn().unwrap();
    wait(|| home.path("waits").exists());
    home.write("go", "");
    supervisors(&home).iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
    let output = runner.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output).contains("another takes it up"), "{}", text(&output));
    assert_eq!(lines(&home, "done"), ["1 0"]);
}

#[test]
fn supervisors_killed_at_random_lose_nothing() {
    let asked = std::env::var("TONNAGE_SUITE_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs: usize = asked.unwrap_or(16);
    let kills = if runs >= 200 { 20 } else { 6 };
    let script = "sleep 0.4\nexec sh -c \"echo $1 $2 >> done\"\n";
    let home = made("suite-dead-supervisors", &suite(runs / 2), script);
    let mut runner = home.command(&["suite", "run", "s.toml", "--slots", "2"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut moment = 11_u64;
    let mut killed = 0;
    while killed < kills {
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((moment >> 33) % 400));
        if runner.try_wait().unwrap().is_some() {
            // All is done already.
            break;
        }
        let living = supervisors(&home);
        let Some(pid) = living.get((moment >> 40) as usize % living.len().max(1)) else { continue };
        // One that has just ended needs no kill.
        killed += usize::from(kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok());
    }
    assert!(killed > 0, "nothing was killed");
    let first = runner.wait_with_output().unwrap();
    // One whose supervisors died again and again is left to the next runner; what is done is not made again.
    let output = home.run(&["suite", "run", "s.toml", "--slots", "2"]);
    assert!(output.status.success(), "{}{}", text(&first), text(&output));
    let mut expected: Vec<String> =
        (1..=2).flat_map(|a| (0..runs / 2).map(move |seed| format!("{a} {seed}"))).collect();
    expected.sort();
    // Whose supervisor dies between its last deed and its exit has not finished and is made again; who finished is not.
    let mut done = lines(&home, "done");
    done.dedup();
    assert_eq!(done, expected);
    let finished = found(&home.path("home/runs"), "exit.json").into_iter().filter(|path| {
        let seen: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        seen["exit"]["code"] == 0 && seen["asked"] == false
    });
    assert_eq!(finished.count(), runs, "made again");
    assert_eq!(status(&home)["succeeded"], runs);
    wait_gone("suite-dead-supervisors/t.sh");
}

/// Power loss: whatever byte the journal ends at, what it says to be done is not done again, and what a run's own record says neither.
#[test]
fn a_journal_cut_at_any_byte_makes_nothing_twice() {
    let home = made("suite-cut", &suite(1), "echo $1 $2 >> done\n");
    assert!(home.run(&["suite", "run", "s.toml", "--slots", "1"]).status.success());
    let path = home.path("home/suites/s/journal.log");
    let whole = fs::read(&path).unwrap();
    // The last started run has a line for its start, which was on the disk before it was started.
    let text_of = String::from_utf8(whole.clone()).unwrap();
    let last_start = text_of.rfind("\"started\"").unwrap();
    let begins = text_of[last_start..].find('\n').unwrap() + last_start + 1;
    for cut in (begins..whole.len()).step_by(23).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..cut]).unwrap();
        let again = home.run(&["suite", "run", "s.toml"]);
        assert!(again.status.success(), "cut at {cut}: {}", text(&again));
        assert_eq!(lines(&home, "done").len(), 2, "cut at {cut}");
        assert_eq!(status(&home)["succeeded"], 2, "cut at {cut}");
    }
    // Anything before, and it is at least said that lines could not be read.
    for cut in (0..begins).step_by(41) {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(home.run(&["suite", "status"]).status.success(), "cut at {cut}");
    }
}

/// A home of two mebibytes that fills while the suite runs: what was said to be done stays done, the rest is made once there is room.
#[test]
fn a_full_disk_loses_nothing_that_was_said() {
    let fills = "echo $1 $2 >> done\n[ $(wc -l < done) = 3 ] && head -c 3000000 /dev/zero > home/fill\nexit 0\n";
    let home = made("suite-full", &suite(4), fills);
    fs::create_dir_all(home.path("home")).unwrap();
    let tonnage = env!("CARGO_BIN_EXE_tonnage");
    let script = format!(
        "mount -t tmpfs -o size=2m none home || exit 99; {tonnage} suite run s.toml --slots 1; first=$?; \
         {tonnage} suite status --json > before.json; cp done done-before; \
         sleep 1; rm home/fill; {tonnage} suite run s.toml --slots 1; second=$?; {tonnage} suite status --json > after.json; \
         echo $first $second > codes; exit 10"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(home.path(".")).stdin(Stdio::null());
    command.env("TONNAGE_HOME", home.path("home")).env("COLUMNS", "200");
    let Ok(output) = command.output() else { return };
    if output.status.code() != Some(10) {
        // This user may not mount anything.
        return;
    }
    let said = text(&output);
    let read =
        |name: &str| serde_json::from_str::<serde_json::Value>(&fs::read_to_string(home.path(name)).unwrap()).unwrap();
    let (before, after) = (read("before.json"), read("after.json"));
    assert!(before["succeeded"].as_u64().unwrap() >= 2, "{said}");
    assert_eq!(fs::read_to_string(home.path("codes")).unwrap().trim().split(' ').next_back(), Some("0"), "{said}");
    assert_eq!(after["succeeded"], 8, "{said}");
    // Those that were said to be done were made once; one whose end found no room may have been made again.
    let counted = |run: &serde_json::Value| {
        let configuration = run["configuration"].as_str().unwrap().rsplit('=').next().unwrap().to_owned();
        let line = format!("{configuration} {}", run["seed"]);
        lines(&home, "done").iter().filter(|made| **made == line).count()
    };
    for run in before["runs"].as_array().unwrap().iter().filter(|run| run["state"] == "succeeded") {
        assert_eq!(counted(run), 1, "{run}: {said}");
    }
}

#[test]
fn runs_of_another_machine_are_not_taken_for_dead() {
    let home = made(
        "suite-hosts",
        &suite(1).replace("[1, 2]", "[1]"),
        "[ -e go ] || { : > begun; sleep 60; exit 9; }\necho $1 $2 >> done\n",
    );
    let mut runner = home.command(&["suite", "run", "s.toml"]).stderr(Stdio::null()).spawn().unwrap();
    // Not when it is said to run: its supervisor may be between fork and exec then, where no one finds it by its words.
    wait(|| home.path("begun").exists());
    runner.kill().unwrap();
    runner.wait().unwrap();
    supervisors(&home).iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
    wait_gone("suite-hosts/t.sh");
    // Whoever ended the command for the dead supervisor may hold the run for a moment longer.
    wait(|| {
        let said = text(&home.run(&["suite", "status"])).split_whitespace().collect::<Vec<_>>().join(" ");
        said.contains("1 of these have no supervisor any more")
    });
    let path = home.path("home/suites/s/journal.log");
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let text_of = fs::read_to_string(&path).unwrap();
    assert!(text_of.contains(&format!("\"host\":\"{}\"", own.trim())), "{text_of}");
    fs::write(&path, text_of.replace(&format!("\"host\":\"{}\"", own.trim()), "\"host\":\"node7\"")).unwrap();
    home.write("go", "");
    let refused = home.run(&["suite", "run", "s.toml"]);
    let said = text(&refused).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        !refused.status.success() && said.contains("were started on node7") && said.contains("--take-over"),
        "{said}"
    );
    assert!(!home.path("done").exists());
    let taken = home.run(&["suite", "run", "s.toml", "--take-over"]);
    assert!(taken.status.success(), "{}", text(&taken));
    assert_eq!(lines(&home, "done"), ["1 0"]);
}

#[test]
fn the_first_failure_may_end_the_suite() {
    let home = made("suite-fail-fast", &suite(3), "echo $1 $2 >> done\n[ $2 = 1 ] && exit 3\nexit 0\n");
    let output = home.run(&["suite", "run", "s.toml", "--slots", "1", "--fail-fast", "a=1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("paused: a run failed"), "{}", text(&output));
    let found = status(&home);
    assert_eq!(
        (&found["succeeded"], &found["failed"], &found["waiting"]),
        (&1.into(), &1.into(), &1.into()),
        "{found}"
    );
    // The file is another now: what it still says of runs that were done counts, what it no longer says is left alone.
    let other = suite(3).replace("name = \"c\"", "name = \"renamed\"").replace("seeds = 3", "seeds = 1");
    home.write("s.toml", &other);
    let edited = home.run(&["suite", "run", "s.toml", "--slots", "1", "a=1"]);
    assert!(edited.status.success(), "{}", text(&edited));
    assert_eq!(lines(&home, "done"), ["1 0", "1 1"], "a run is what it does, whatever it is called");
}
