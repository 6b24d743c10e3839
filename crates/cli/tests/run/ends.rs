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
    let class = run["attempts"][0]["failure"]["class"].as_str().unwrap();
    assert!(["program_error", "raised"].contains(&class), "{class}");
    assert_eq!(run["attempts"][0]["failure"]["at_start"], true);
    assert_eq!(run["result"]["outcome"], "failed");
}

#[test]
fn a_command_that_is_not_there_leaves_no_run() {
    let home = Home::new("missing");
    let plain = home.write("plain.txt", "no program");
    let cases = [
        ("no-such-command-at-all", "no such program in PATH"),
        ("./no/such/file", "no such file"),
        (plain.as_str(), "no program that may be executed"),
    ];
    for (command, wanted) in cases {
        for how in [&["run"][..], &["run", "--detach"]] {
            let output = home.run(&[how, &["--", command]].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("cannot start `{command}`: ")) && said.contains(wanted), "{said}");
        }
    }
    assert_eq!(home.run(&["list"]).stdout, b"no runs yet\n");
    // What only the kernel can refuse is a failed run that says so.
    std::fs::write(home.path("broken"), "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(home.path("broken"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(home.run(&["run", "--", "./broken"]).status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["attempts"][0]["failure"]["class"], "not_started");
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("cannot start `./broken`: no such file"), "{reason}");
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
    let failure = &home.last()["attempts"][0]["failure"];
    assert_eq!(failure["class"], "stalled");
    // What the process did is told: a name, its number, its state.
    assert!(failure["evidence"][0].as_str().unwrap().contains("sleep "), "{failure}");
    assert!(failure["evidence"][0].as_str().unwrap().contains(" sleeps"), "{failure}");
    wait_gone("sleep\u{0}7103");
}

/// A library that sets the time of day three days back, a second after a process first asks for it. The other clocks go on.
const CLOCK: &str = r#"
use std::sync::atomic::{AtomicI64, Ordering};
unsafe extern "C" { fn syscall(number: i64, clock: i64, time: *mut [i64; 2]) -> i64; }
static FIRST: AtomicI64 = AtomicI64::new(0);
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32 {
    let number = if cfg!(target_arch = "aarch64") { 113 } else { 228 };
    let code = unsafe { syscall(number, clock.into(), time) } as i32;
    if clock == 0 && code == 0 {
        let now = unsafe { (*time)[0] };
        let first = match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) { Ok(_) => now, Err(first) => first };
        if now > first { unsafe { (*time)[0] -= 3 * 86_400 } }
    }
    code
}
"#;

#[test]
fn a_clock_that_jumps_back_hides_no_hang() {
    let home = Home::new("jumps");
    let (source, library) = (home.write("clock.rs", CLOCK), home.path("clock.so"));
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = std::process::Command::new(compiler);
    let compiled = compile.args(["--edition", "2024", "--crate-type", "cdylib", &source, "-o"]).arg(&library).output();
    let compiled = compiled.expect("rustc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let words = ["run", "--stall", "2", "--grace", "1", "--max-attempts", "1", "--", "sleep", "7104"];
    let output = home.command(&words).env("LD_PRELOAD", &library).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(home.last()["attempts"][0]["failure"]["class"], "stalled");
    // The clock did jump: the journal's last entry is from before its first.
    let mut runs = std::fs::read_dir(home.path("home/runs")).unwrap().flatten().map(|entry| entry.path());
    let journal = runs.find_map(|run| Some(run.join("events.jsonl")).filter(|path| path.exists())).unwrap();
    let times = std::fs::read_to_string(journal).unwrap();
    let times = times.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["at_ms"].as_u64());
    let times: Vec<_> = times.collect();
    assert!(times.last() < times.first(), "{times:?}");
    wait_gone("sleep\u{0}7104");
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
fn logs_are_json_lines_with_whole_lines() {
    let home = Home::new("logs-json");
    home.run(&["run", "--", "sh", "-c", "echo a; printf '\\033[31mred \\377' >&2; printf 'b\\nno end'"]);
    let text = home.run(&["logs", "--json"]).stdout;
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut found: Vec<(String, String)> = lines
        .map(|line| {
            let object: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert_eq!((&object["attempt"], &object["run"]), (&1.into(), &home.last()["run"]["id"]));
            (object["stream"].as_str().unwrap().to_owned(), object["line"].as_str().unwrap().to_owned())
        })
        .collect();
    found.sort();
    let expected = [("stderr", "\u{1b}[31mred \u{fffd}"), ("stdout", "a"), ("stdout", "b"), ("stdout", "no end")];
    assert_eq!(found, expected.map(|(stream, line)| (stream.to_owned(), line.to_owned())));
}

/// Every file below the home, as text.
fn files(home: &Home) -> Vec<(std::path::PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![home.path("home")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                files.push((entry.path(), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
    }
    files
}

#[test]
fn secrets_are_in_no_file() {
    let home = Home::new("secrets");
    let script = "echo \"$HF_TOKEN $1\" | wc -c; echo \"refused: $1\" >&2; exit 1";
    let words =
        ["env", "WANDB_API_KEY=very_secret_1", "sh", "-c", script, "sh", "very_secret_2", "--api-key", "very_secret_3"];
    for how in [&["run", "--"][..], &["run", "--detach", "--"]] {
        let mut command = home.command(&[how, &words].concat());
        command.env("HF_TOKEN", "hf_very_secret").env("MY_PASSWORD", "very_secret_2");
        command.output().unwrap();
        home.wait("an end", |run| run["result"].is_object());
        // The command had them all the same: 14 letters, a space, 13 letters, a line's end.
        assert_eq!(home.run(&["logs", "--attempt", "1"]).stdout, b"29\nrefused: very_secret_2\n");
        let run = home.last();
        assert!(
            run["attempts"][0]["failure"]["evidence"][0].as_str().unwrap().contains("{secret:MY_PASSWORD}"),
            "{run:#}"
        );
    }
    // What the command writes is its own.
    for (path, text) in files(&home).iter().filter(|(path, _)| !path.ends_with("stderr.log")) {
        assert!(!text.contains("very_secret"), "{}: {text}", path.display());
    }
    let output = home.run(&["run", "--resume", "last"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is not recorded: set it as a variable"), "{said}");
}

#[test]
fn names_that_nothing_fills_in_are_refused_before_the_start() {
    let home = Home::new("names");
    let refused = |words: &[&str]| {
        let output = home.run(&[&["run", "--", "echo"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["{micro_batch_size}"]).contains("needs a job"));
    assert!(refused(&["{gpu}"]).contains("needs a job"));
    assert!(refused(&["--from={resume_from_checkpiont}"]).contains("is it `{resume_from_checkpoint}`?"));
    assert_eq!(home.run(&["list"]).stdout, b"no runs yet\n");
    let output = home.run(&["run", "--", "echo", "${attempt}", "{{attempt}}", "{attempt}", "{\"a\": {}}", "{x}"]);
    assert_eq!(output.stdout, b"$1 {attempt} 1 {\"a\": {}} {x}\n");
}

#[test]
fn a_schedulers_warning_reaches_who_takes_it() {
    let home = Home::new("warned");
    let script = "trap 'echo saved > saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    for (script, exit) in [(script, (Some(0), None)), ("echo ready; sleep 7107", (None, Some(15)))] {
        let mut supervisor = home.command(&["run", "--grace", "2", "--", "sh", "-c", script]).spawn().unwrap();
        home.wait("ready", |run| run["attempts"][0]["pid"].is_u64() && run["result"].is_null());
        std::thread::sleep(Duration::from_millis(300));
        let pid = nix::unistd::Pid::from_raw(supervisor.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).unwrap();
        assert_eq!(supervisor.wait().unwrap().code(), Some(1));
        let run = home.last();
        assert_eq!((run["attempts"].as_array().unwrap().len(), &run["result"]["outcome"]), (1, &"stopped".into()));
        let ended = &run["attempts"][0]["exit"];
        assert_eq!((ended["code"].as_i64(), ended["signal"].as_i64()), exit, "{run:#}");
    }
    assert_eq!(std::fs::read_to_string(home.path("saved")).unwrap(), "saved\n");
    wait_gone("sleep\u{0}7107");
}

#[test]
fn words_of_the_command_reach_no_shell() {
    let home = Home::new("shell");
    let output = home.run(&["run", "--", "printf", "%s|", "$(touch pwned)", "; touch pwned", "{attempt}"]);
    assert_eq!(output.stdout, b"$(touch pwned)|; touch pwned|1|");
    assert!(!home.path("pwned").exists());
}

/// Gigabytes, and the disk does not fill: `TONNAGE_OUTPUT_GIB=4 cargo test -p tonnage --test run gigabytes`. CI writes one.
#[test]
fn gigabytes_of_output_are_bounded_and_their_end_is_kept() {
    let home = Home::new("gigabytes");
    let gib: u64 = std::env::var("TONNAGE_OUTPUT_GIB").ok().and_then(|gib| gib.parse().ok()).unwrap_or(1);
    let script = format!(
        "yes 'a line of output that says nothing' | head -c {}; echo; echo ValueError: last >&2; exit 1",
        gib << 30
    );
    let output = home.command(&["run", "--json", "--", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let kept: u64 = files_of_attempt(&home).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(kept < 600 << 20, "{kept} bytes kept of {gib} GiB");
    assert_eq!(home.last()["attempts"][0]["failure"]["evidence"][0], "ValueError: last");
}

fn files_of_attempt(home: &Home) -> Vec<std::path::PathBuf> {
    let id = home.last()["run"]["id"].as_str().unwrap().to_owned();
    let folder = home.path("home/runs").join(id).join("attempt-1");
    std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect()
}
