//! `tonnage rehearse` of a native program: what the phantom's driver gave it is an answer.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;
use tonnage_core::gpu::Gpu;
use tonnage_core::rehearsal::context_bytes;
use tonnage_core::units::MIB;

use super::{command, folder};

/// The program, compiled once by the compiler that links Rust's programs too.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("native-{}", std::process::id()));
    let source = folder("data/rehearsal/native.c");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source).arg("-ldl").output().expect("cc starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
});

fn rehearse(options: &[&str], words: &[&str]) -> Output {
    let program = PROGRAM.to_str().unwrap();
    let args = [&["rehearse"], options, &["--", program], words].concat();
    command(&args).env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).output().unwrap()
}

fn answer(options: &[&str], words: &[&str]) -> (Option<i32>, Value) {
    let output = rehearse(&[&["--json"], options].concat(), words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}")))
}

#[test]
fn what_was_taken_is_exact_and_an_answer_for_every_gpu() {
    // 300 MiB, all given back, then 200: the most is 300.
    let (code, answer) = answer(
        &["--gpu", "l4,1GiB,sm_90,multiprocessors=132,256MiB,sm_75,multiprocessors=1"],
        &["100", "200", "-", "200"],
    );
    assert_eq!(code, Some(0), "one of them carries it");
    let context = |text: &str| context_bytes(&Gpu::parse(text).unwrap());
    let on_gpu = &answer["gpus"][0];
    assert_eq!((&on_gpu["verdict"], &on_gpu["by"]), (&"fits".into(), &"driver".into()));
    assert_eq!(on_gpu["peak_reserved_bytes"], 300 * MIB);
    assert_eq!(on_gpu["total_bytes"], 300 * MIB + context("l4"));
    assert_eq!(answer["gpus"][1]["total_bytes"], 300 * MIB + context("1GiB,sm_90,multiprocessors=132"));
    assert_eq!(answer["gpus"][2]["verdict"], "does_not_fit");
    assert_eq!(answer["processes"], Value::Array(Vec::new()));
    assert_eq!(answer["unrecorded"][0]["devices"][0]["peak_bytes"], 300 * MIB + context("l4"));
}

#[test]
fn what_is_not_known_is_said() {
    let output = rehearse(&["--gpu", "l4"], &["100"]);
    let screen = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    for wanted in
        ["fits   326.0 MiB", "100.0 MiB taken from the driver", "how much of it was allocated is not", "zeros"]
    {
        assert!(screen.contains(wanted), "{wanted}: {screen}");
    }
    // Without a GPU that is named: who carries it.
    let screen = String::from_utf8_lossy(&rehearse(&[], &["100"]).stdout).into_owned();
    assert!(screen.contains("no GPU was named") && screen.contains("fits from:"), "{screen}");
    // What only a record could answer.
    for asked in [["--save-trace", "nowhere.jsonl"], ["--against", "job.toml"]] {
        let refused = rehearse(&asked, &["100"]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains(asked[0]) && error.contains("left a record"), "{error}");
    }
}

#[test]
fn a_refusal_is_no_fit_where_the_program_fails_and_tight_where_it_goes_on() {
    let small = ["--gpu", "1GiB,sm_75,multiprocessors=20"];
    let (code, failed) = answer(&small, &["300", "900"]);
    assert_eq!(code, Some(1));
    let oom = &failed["gpus"][0]["out_of_memory"];
    assert_eq!(failed["gpus"][0]["verdict"], "does_not_fit");
    assert_eq!((&oom["requested_bytes"], &oom["reserved_bytes"]), (&(900 * MIB).into(), &(300 * MIB).into()));
    assert_eq!(oom["allocated_bytes"], Value::Null);
    let screen = String::from_utf8_lossy(&rehearse(&small, &["300", "900"]).stdout).into_owned();
    assert!(screen.contains("does not fit   the driver refused 900.0 MiB beside the 300.0 MiB"), "{screen}");

    let (code, went_on) = answer(&small, &["300", "900?"]);
    assert_eq!((code, &went_on["gpus"][0]["verdict"]), (Some(0), &"tight".into()));
    assert_eq!(went_on["gpus"][0]["num_alloc_retries"], 1);
}

#[test]
fn a_program_that_fails_for_its_own_reasons_has_no_verdict() {
    let program = PROGRAM.to_str().unwrap();
    let script = format!("{program} 100; exit 9");
    let args = ["rehearse", "--json", "--gpu", "l4", "--", "/bin/sh", "-c", &script];
    let output = command(&args).env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).output().unwrap();
    assert_eq!(output.status.code(), Some(9));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["gpus"][0]["verdict"], Value::Null);
    assert_eq!(answer["gpus"][0]["peak_reserved_bytes"], 100 * MIB);
}

#[test]
fn programs_on_one_device_count_together_and_one_after_another_do_not() {
    let program = PROGRAM.to_str().unwrap();
    let run = |script: &str| {
        let args = ["rehearse", "--json", "--gpu", "l4", "--", "/bin/sh", "-c", script];
        let output = command(&args).env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        answer["gpus"][0]["peak_reserved_bytes"].as_u64().unwrap()
    };
    assert_eq!(run(&format!("{program} 100; {program} 200")), 200 * MIB);
    // The first waits, with what it holds, for the second to have ended: `wait` in the program would say the same.
    let fifo = std::env::temp_dir().join(format!("tonnage-native-{}", std::process::id()));
    let fifo = fifo.to_str().unwrap();
    let together = format!(
        "rm -f {fifo}; mkfifo {fifo}; {program} 100 w{fifo} & read line < {fifo}; {program} 200; echo go > {fifo}; wait; rm {fifo}"
    );
    assert_eq!(run(&together), 300 * MIB);
}
