//! `tonnage rehearse` with a shell in place of Python: what it hands on, how it reads records, what it answers.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{check, command, tonnage};

/// Rehearses a shell command; it can copy a record to where the shim would write one.
fn shell(options: &[&str], script: &str) -> Output {
    let args = [&["rehearse"], options, &["--", "/bin/sh", "-c", script]].concat();
    command(&args).env("PATH", "/usr/bin:/bin").output().unwrap()
}

/// A command that leaves the record `name`, and a trace where there is one.
fn leaves(name: &str) -> String {
    format!(
        "cp rehearsal/{name}.json $TONNAGE_REHEARSE_DIR/record-1.json; \
         cp rehearsal/grows.jsonl $TONNAGE_REHEARSE_DIR/trace-1-0.jsonl"
    )
}

/// The same, as if the script had not been stopped.
fn leaves_by_itself(name: &str) -> String {
    let ended = "s/\"reason\": \"steady\"/\"reason\": \"end\"/";
    format!("{}; sed -i '{ended}' $TONNAGE_REHEARSE_DIR/record-1.json", leaves(name))
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn help() {
    check("help_rehearse", &["rehearse", "--help"]);
}

#[test]
fn a_command_that_fails_for_its_own_reasons_comes_through() {
    let output = shell(&[], "echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("err\n") && said.contains("failed with exit code 7 before it used the GPU"), "{said}");
    let failed = shell(&[], &format!("{}; exit 5", leaves_by_itself("fits")));
    assert_eq!(failed.status.code(), Some(5));
    let screen = String::from_utf8_lossy(&failed.stdout);
    assert!(screen.contains("the command failed with exit code 5"));
    assert!(screen.contains("not known   reached ") && !screen.contains("fits"), "{screen}");
}

#[test]
fn a_launcher_that_takes_our_stop_for_a_crash_takes_no_verdict_away() {
    let output = shell(&["--gpu", "a100-80"], &format!("{}; exit 5", leaves("fits")));
    let screen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert!(
        screen.contains("fits") && screen.contains("ended with exit code 5 after its processes were stopped"),
        "{screen}"
    );
    // A rank that left no record may have failed.
    let of_two = "sed -i 's/\"world_size\": 1/\"world_size\": 2/' $TONNAGE_REHEARSE_DIR/record-1.json";
    let output = shell(&["--gpu", "a100-80"], &format!("{}; {of_two}; exit 5", leaves("fits")));
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_signal_is_told_as_a_shell_does() {
    assert_eq!(shell(&[], "kill -9 $$").status.code(), Some(137));
}

#[test]
fn a_signal_ends_all_that_was_started_and_leaves_no_folder() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let temporary = std::env::temp_dir().join(format!("tonnage-signal-{}-{code}", std::process::id()));
        std::fs::create_dir(&temporary).unwrap();
        // Signals are taken from when the command has started; a shell keeps SIGINT from what runs in its background.
        let args = ["rehearse", "--", "/bin/sh", "-c", "sleep 1; sleep 60 & echo $!; wait"];
        let mut started = command(&args);
        started.env("PATH", "/usr/bin:/bin").env("TMPDIR", &temporary).env("XDG_CACHE_HOME", temporary.join("cache"));
        let mut started = started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(started.stdout.take().unwrap()).read_line(&mut line).unwrap();
        kill(Pid::from_raw(started.id().cast_signed()), signal).unwrap();
        assert_eq!(started.wait().unwrap().code(), Some(code));
        let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["cache"]);
        std::fs::remove_dir_all(&temporary).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", line.trim())).unwrap_or_default();
        let is_gone = |state: &str| state.is_empty() || state.contains(") Z ");
        // On a busy machine what was killed takes a moment to go.
        for _ in 0..100 {
            if !is_gone(&state()) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(is_gone(&state()), "still there: {}", state());
    }
}

#[test]
fn signals_are_caught_before_the_command_begins_and_none_is_kept_from_it() {
    // What this process catches as soon as there is a command, and what the command is kept from.
    let output = shell(&[], "grep SigCgt /proc/$PPID/status; exec grep SigBlk /proc/self/status");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |line: &str| u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
    // Under `nohup` the terminal's end is not.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = read(own.lines().find(|line| line.starts_with("SigIgn")).unwrap()) & 1;
    let taken = [1, 2, 15].map(|signal| 1_u64 << (signal - 1)).iter().sum::<u64>() & !ignored;
    let masks: Vec<u64> = said.lines().map(|line| read(line) & taken).collect();
    assert_eq!(masks, [taken, 0], "{said}");
}

#[test]
fn what_nohup_started_outlives_its_terminal() {
    let program = env!("CARGO_BIN_EXE_tonnage");
    let script = format!("trap '' HUP; exec {program} rehearse -- /bin/sh -c 'kill -HUP $PPID; echo goes on'");
    let output = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("goes on") && output.status.code() != Some(129), "{said}: {}", output.status);
}

#[test]
fn a_command_that_ends_whoever_started_it_at_once_does_not_outlive_it() {
    for _ in 0..20 {
        assert_eq!(shell(&[], "kill -TERM $PPID; exec sleep 60").status.code(), Some(143));
    }
}

#[test]
fn what_was_seen_until_a_signal_is_told() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let script = format!("{}; echo there; sleep 60 & wait", leaves("fits"));
    let mut started = command(&["rehearse", "--gpu", "a100-80", "--", "/bin/sh", "-c", &script]);
    let started =
        started.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut started = started.spawn().unwrap();
    let mut out = BufReader::new(started.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "there\n", "the record lies there before the signal");
    kill(Pid::from_raw(started.id().cast_signed()), Signal::SIGTERM).unwrap();
    let screen: Vec<String> = out.lines().map(Result::unwrap).collect();
    assert_eq!(started.wait().unwrap().code(), Some(143));
    let screen = screen.join("\n");
    assert!(screen.contains("not known   reached "), "{screen}");
}

#[test]
fn a_process_that_writes_its_figures_outlives_the_shell_that_a_signal_ends() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let record = "sleep 1; cp rehearsal/fits.json $TONNAGE_REHEARSE_DIR/record-$$.json; exit";
    let used = "echo 0 5 5 1 0 0 0 > $TONNAGE_REHEARSE_DIR/used-$$";
    let script =
        format!("/bin/sh -c 'trap \"{record}\" TERM; {used}; echo there; while :; do sleep 0.1; done' & wait; exit 0");
    let mut started = command(&["rehearse", "--gpu", "a100-80", "--", "/bin/sh", "-c", &script]);
    let started =
        started.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut started = started.spawn().unwrap();
    let mut out = BufReader::new(started.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    kill(Pid::from_raw(started.id().cast_signed()), Signal::SIGTERM).unwrap();
    let screen: Vec<String> = out.lines().map(Result::unwrap).collect();
    assert_eq!(started.wait().unwrap().code(), Some(143));
    assert!(screen.join("\n").contains("not known   reached 2.53 GiB"), "{screen:?}");
}

#[test]
fn a_model_that_left_parts_out_has_no_verdict() {
    let skip = format!(
        "{}; sed -i 's/\"caveats\": \\[/&{{\"code\":\"skipped\",\"text\":\"3 modules\",\"line\":null,\"times\":1}}/' $TONNAGE_REHEARSE_DIR/record-1.json",
        leaves("fits")
    );
    let output = shell(&["--gpu", "a100-80", "--json"], &skip);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(document(&output)["gpus"][0]["verdict"], Value::Null);
    let screen = shell(&["--gpu", "a100-80"], &skip);
    let text = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(text.contains("not known   reached ") && text.contains("3 modules"), "{text}");
    assert_eq!(document(&shell(&["--json"], &skip))["fits_from"], Value::Null, "nothing is said to carry it");
}

#[test]
fn a_process_without_a_recorder_is_not_called_idle() {
    let used = "echo 0 3221225472 3221225472 1 0 0 0 > $TONNAGE_PHANTOM_USAGE/used-77";
    let output = shell(&["--gpu", "h100"], used);
    let screen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert!(screen.contains("fits   3.00 GiB of") && screen.contains("-E, -I or -S"), "{screen}");
    assert_eq!(shell(&[], &format!("{used}; exit 7")).status.code(), Some(7));
    let beside = shell(&["--gpu", "a100-80"], &format!("{used}; {}", leaves("fits")));
    assert!(String::from_utf8_lossy(&beside.stdout).contains("left no record"));
}

#[test]
fn what_cannot_work_is_refused_before_the_command_runs() {
    for (options, problem) in [
        (["--gpu", "500MiB"], "`--gpu`: of 500.0 MiB nothing is left beside the CUDA context, which takes 660.0 MiB"),
        (["--save-trace", "/no/such/folder/t.jsonl"], "`--save-trace`: /no/such/folder/t.jsonl: no such file"),
    ] {
        let output = shell(&options, "echo ran");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), b"".as_slice()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn nothing_to_see_is_an_error() {
    let output = shell(&[], "true");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no process of the command used the GPU"));
    let missing = tonnage(&["rehearse", "--", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("`/no/such/program` cannot be started"));
}

#[test]
fn the_answer_is_json_and_what_the_command_prints_goes_to_stderr() {
    let output = shell(&["--gpu", "a100-80", "--json"], &format!("echo loss 1.0; {}", leaves("fits")));
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("loss 1.0"));
    let answer = document(&output);
    assert_eq!((&answer["version"], &answer["gpus"][0]["verdict"]), (&1.into(), &"fits".into()));
    let device = &answer["processes"][0]["devices"][0];
    assert_eq!(device["peak_allocated_bytes"], 1_920_808_960_u64);
    assert_eq!(device["peak_per_phase"].as_object().unwrap().keys().next().unwrap(), "0:load");
}

#[test]
fn without_a_gpu_there_are_sizes_and_who_carries_them() {
    let output = shell(&["--json"], &leaves("grows"));
    assert_eq!(output.status.code(), Some(0));
    let answer = document(&output);
    assert_eq!(answer["gpus"], Value::Array(Vec::new()), "nobody named one");
    let carriers = answer["fits_from"].as_array().unwrap();
    assert!(carriers.iter().any(|carrier| carrier["id"] == "h100" && carrier["verdict"] == "fits"), "{carriers:?}");
    let screen = String::from_utf8(shell(&[], &leaves("grows")).stdout).unwrap();
    assert!(screen.contains("no GPU was named") && screen.contains("fits from:"), "{screen}");
    assert!(!screen.contains("to spare"), "{screen}");
    let named = document(&shell(&["--gpu", "h100", "--json"], &leaves("grows")));
    assert_eq!(named["fits_from"], Value::Null);
    // What ran out there may run elsewhere: nothing is said to carry it.
    let ran_out = shell(&["--json"], &format!("{}; exit 1", leaves("out_of_memory")));
    assert_eq!((ran_out.status.code(), &document(&ran_out)["fits_from"]), (Some(1), &Value::Null));
}

#[test]
fn what_a_command_that_failed_would_have_asked_for_is_not_known() {
    let output = shell(&["--gpu", "a100-80,7GiB", "--json"], &format!("{}; exit 5", leaves_by_itself("grows")));
    assert_eq!(output.status.code(), Some(5));
    let answer = document(&output);
    let verdicts = [&answer["gpus"][0]["verdict"], &answer["gpus"][1]["verdict"]];
    assert_eq!(verdicts, [&Value::Null, &"does_not_fit".into()], "too little memory is known all the same");
}

#[test]
fn out_of_memory_is_a_verdict() {
    let output = shell(&["--gpu", "a100-80", "--json"], &format!("{}; exit 1", leaves("out_of_memory")));
    assert_eq!(output.status.code(), Some(1));
    let judged = &document(&output)["gpus"][0];
    assert_eq!(judged["verdict"], "does_not_fit");
    assert_eq!(judged["out_of_memory"]["line"], "train.py:41 in main");
}

#[test]
fn smaller_gpus_are_judged_by_replaying_the_trace() {
    let output = shell(&["--gpu", "l4,a100-80,12GiB,7GiB", "--json"], &leaves("grows"));
    assert_eq!(output.status.code(), Some(0));
    let answer = document(&output);
    assert_eq!(answer["gpu"]["id"], "a100-80");
    let told: Vec<_> = answer["gpus"].as_array().unwrap().iter().map(|gpu| (&gpu["verdict"], &gpu["by"])).collect();
    let text = |verdict: &str, by: &str| (Value::from(verdict), Value::from(by));
    let expected =
        [text("fits", "replay"), text("fits", "run"), text("tight", "replay"), text("does_not_fit", "replay")];
    assert_eq!(told, expected.iter().map(|(verdict, by)| (verdict, by)).collect::<Vec<_>>());
    let screen = shell(&["--gpu", "7GiB,a100-80"], &leaves("grows"));
    let text = String::from_utf8(screen.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("out of memory in 1:backward"), "{text}");
}

#[test]
fn a_loop_that_waits_has_an_exit_code_of_its_own() {
    let output = shell(&[], &format!("{}; exit 3", leaves("waits")));
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("train.py:6 in main has read values"));
}

#[test]
fn the_trace_can_be_saved_and_replayed() {
    let path = std::env::temp_dir().join(format!("tonnage-saved-{}.jsonl", std::process::id()));
    let path = path.to_str().unwrap();
    let saved = shell(&["--gpu", "a100-80", "--save-trace", path], &leaves("grows"));
    assert_eq!(saved.status.code(), Some(0));
    let replayed = tonnage(&["trace", "replay", path, "--capacity", "7GiB", "--json"]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(replayed.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(document["out_of_memory"]["requested_bytes"], 8_u64 << 30);
}

#[test]
fn an_estimate_stands_beside_it() {
    let output = shell(&["--gpu", "a100-80", "--against", "gpt2", "--json"], &leaves("grows"));
    let against = &document(&output)["against"];
    assert_eq!(against["rehearsal"]["peak_allocated_bytes"], 8_u64 << 30);
    assert!(against["estimate"]["peak_allocated_bytes"].as_u64().unwrap() > 0);
    assert_eq!(against["equal_allocations"], 0);
    assert!(against["first_difference"].as_str().unwrap().contains("predicted"));
}

#[test]
fn without_a_home_the_library_is_of_no_shared_folder() {
    use std::os::unix::fs::PermissionsExt;

    let temporary = std::env::temp_dir().join(format!("tonnage-homeless-{}", std::process::id()));
    // What another user could have left where everybody's folder would be.
    std::fs::create_dir_all(temporary.join("tonnage")).unwrap();
    std::fs::set_permissions(temporary.join("tonnage"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let args = ["rehearse", "--", "/bin/sh", "-c", "echo $PYTHONPATH; ls -ld ${PYTHONPATH%/installed/python*}"];
    let output = command(&args).env("PATH", "/usr/bin:/bin").env("TMPDIR", &temporary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let folder = said.split("/installed/python").next().unwrap();
    assert!(folder.starts_with(temporary.join("tonnage-").to_str().unwrap()), "{said}");
    assert!(said.lines().nth(1).unwrap().starts_with("drwx------"), "{said}");
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().map(|entry| entry.file_name()).collect();
    std::fs::remove_dir_all(&temporary).unwrap();
    assert_eq!(left, ["tonnage"]);
}
