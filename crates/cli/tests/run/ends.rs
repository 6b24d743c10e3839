//! How commands end, and what is left of them: nothing.

use std::time::{Duration, Instant};

use super::{Home, processes, wait_gone};

#[test]
fn success_and_failure_are_told_and_recorded() {
    let home = Home::new("ends");
    let output = home.run(&["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"out\n");
    let logs = home.run(&["logs"]);
    assert_eq!(logs.stdout, b"out\nerr\n");
    let output = home.run(&["run", "--", "sh", "-c", "echo ValueError: no >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(run["attempts"][0]["exit"]["code"], 3);
    assert_eq!(run["attempts"][0]["failure"]["class"], "program_error");
    assert_eq!(run["attempts"][0]["failure"]["at_start"], true);
    assert_eq!(run["result"]["outcome"], "failed");
}

#[test]
fn a_command_that_is_not_there_is_said_once() {
    let home = Home::new("missing");
    let output = home.run(&["run", "--", "no-such-command-at-all"]);
    assert_eq!(output.status.code(), Some(1));
    let run = home.last();
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("cannot start `no-such-command-at-all`: no such file"), "{reason}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn grandchildren_do_not_outlive_the_command() {
    let home = Home::new("grandchildren");
    // One in the group, one in a session of its own, one whose parent is gone.
    let script = "sleep 7101 & setsid sleep 7101 & (setsid sleep 7101 &) ; sleep 0.3; echo done";
    let output = home.run(&["run", "--grace", "1", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(processes("sleep\u{0}7101"), Vec::<i32>::new());
}

#[test]
fn who_ignores_signals_is_killed_after_the_grace() {
    let home = Home::new("ignores");
    let script = "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done # 7102";
    let id = home.run(&["run", "--detach", "--grace", "1", "--", "sh", "-c", script]);
    assert!(id.status.success());
    home.wait("ready", |run| run["attempts"][0]["pid"].is_u64());
    let began = Instant::now();
    assert_eq!(home.run(&["stop"]).status.code(), Some(0));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(home.last()["result"]["outcome"], "stopped");
    assert_eq!(home.last()["attempts"][0]["exit"]["signal"], 9);
    wait_gone("# 7102");
}

#[test]
fn a_signal_is_passed_on_and_the_command_may_save() {
    let home = Home::new("saves");
    let script = "trap 'echo saved > saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    home.run(&["run", "--detach", "--", "sh", "-c", script]);
    home.wait("ready", |run| run["attempts"][0]["pid"].is_u64());
    std::thread::sleep(Duration::from_millis(200));
    home.run(&["stop"]);
    assert_eq!(std::fs::read_to_string(home.path("saved")).unwrap(), "saved\n");
}

#[test]
fn who_hangs_is_ended_and_said_to_hang() {
    let home = Home::new("hangs");
    let output = home.run(&["run", "--stall", "2", "--grace", "1", "--max-attempts", "1", "--", "sleep", "7103"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(home.last()["attempts"][0]["failure"]["class"], "stalled");
    wait_gone("sleep\u{0}7103");
}

#[test]
fn who_works_in_silence_does_not_hang() {
    let home = Home::new("works");
    let script = "end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do :; done";
    let output = home.run(&["run", "--stall", "2", "--grace", "1", "--max-attempts", "1", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", home.last());
}

#[test]
fn much_output_and_partial_lines_are_kept_whole() {
    let home = Home::new("output");
    let script = "head -c 30000000 /dev/zero | tr '\\0' x; printf 'no end'";
    let output = home.run(&["run", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout.len(), 30_000_006);
    assert_eq!(home.run(&["logs"]).stdout, output.stdout);
}

#[test]
fn secrets_are_in_no_file() {
    let home = Home::new("secrets");
    let mut command = home.command(&["run", "--", "true"]);
    command.env("HF_TOKEN", "hf_very_secret").env("WANDB_API_KEY", "hf_very_secret");
    assert!(command.output().unwrap().status.success());
    let mut folders = vec![home.path("home")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(!String::from_utf8_lossy(&bytes).contains("very_secret"), "{}", entry.path().display());
            }
        }
    }
}

#[test]
fn words_of_the_command_reach_no_shell() {
    let home = Home::new("shell");
    let output = home.run(&["run", "--", "printf", "%s|", "$(touch pwned)", "; touch pwned", "{micro_batch_size}"]);
    assert_eq!(output.stdout, b"$(touch pwned)|; touch pwned|{micro_batch_size}|");
    assert!(!home.path("pwned").exists());
}
