//! Kills of job and supervisor at any moment: no record is lost, no process left, and the run goes on.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Home, wait_gone};

/// A job that counts in a file, so that every start goes on from where it was, in steps of a few milliseconds.
const COUNTS: &str = r#"
    sleep 7104 &
    n=$(cat count 2>/dev/null || echo 0)
    while [ "$n" -lt 40 ]; do
        n=$((n + 1)); echo "$n" > count.tmp; mv count.tmp count; echo "step $n/40"; sleep 0.01
    done"#;

/// Numbers that look random and are the same in every run of the test.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // The constants of Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn many_kills_lose_nothing() {
    let home = Home::new("kills");
    let mut dice = Dice(7);
    let first = ["run", "--grace", "0", "--max-attempts", "50", "--", "sh", "-c", COUNTS];
    let again = ["run", "--resume", "last", "--grace", "0"];
    let kills = std::env::var("TONNAGE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(25);
    for _ in 0..kills {
        let words: &[&str] = if is_unfinished(&home) { &again } else { &first };
        let mut supervisor = home.command(words).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice.below(250)));
        let victim = match dice.below(3) {
            0 => job_pid(&home).unwrap_or(supervisor.id().cast_signed()),
            _ => supervisor.id().cast_signed(),
        };
        // One that has just ended by itself needs no kill.
        let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
        if victim == supervisor.id().cast_signed() {
            supervisor.wait().unwrap();
            wait_gone("sleep\u{0}7104");
        } else {
            let status = supervisor.wait().unwrap();
            assert!(status.success(), "a killed job is started again: {}", home.last());
            std::fs::write(home.path("count"), "0").unwrap();
        }
        assert_eq!(home.run(&["list", "--json"]).status.code(), Some(0));
    }
    let output = home.run(if is_unfinished(&home) { &again } else { &first });
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(home.path("count")).unwrap(), "40\n");
    let run = home.last();
    assert_eq!(run["result"]["outcome"], "succeeded");
    wait_gone("sleep\u{0}7104");
}

/// Whether there is a run to go on with: a supervisor may have been killed before it made one.
fn is_unfinished(home: &Home) -> bool {
    let run = serde_json::from_slice::<serde_json::Value>(&home.run(&["show", "last", "--json"]).stdout);
    run.is_ok_and(|run| run["result"]["outcome"] != "succeeded")
}

fn job_pid(home: &Home) -> Option<i32> {
    let output = home.run(&["show", "last", "--json"]);
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let last = run["attempts"].as_array()?.last()?.clone();
    if !last["exit"].is_null() {
        return None;
    }
    i32::try_from(last["pid"].as_i64()?).ok()
}

#[test]
fn a_killed_keeper_leaves_nothing() {
    let home = Home::new("keeper");
    let script = "setsid sleep 7105 & sleep 7105";
    home.run(&["run", "--detach", "--grace", "1", "--max-attempts", "1", "--", "sh", "-c", script]);
    home.wait("started", |run| run["attempts"][0]["pid"].is_u64());
    std::thread::sleep(Duration::from_millis(300));
    let keepers: Vec<i32> = super::processes("sleep 7105").into_iter().filter(|pid| is_keeper(*pid)).collect();
    assert_eq!(keepers.len(), 1);
    kill(Pid::from_raw(keepers[0]), Signal::SIGKILL).unwrap();
    home.wait("ended", |run| !run["result"].is_null());
    wait_gone("sleep\u{0}7105");
}

fn is_keeper(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"keep")
}
