//! `tonnage doctor`: screens, folders, stdin, and logs that mean harm.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::{check, command, json, tonnage};

#[test]
fn screens() {
    check("doctor_memory", &["doctor", "logs/memory.log"]);
    check("doctor_job", &["doctor", "logs/memory.log", "--job", "job.toml"]);
    check("doctor_ranks", &["doctor", "logs/ranks"]);
    check("doctor_nothing", &["doctor", "job.toml"]);
    check("doctor_exit_status", &["doctor", "--exit-status", "137"]);
    check("doctor_json", &["doctor", "logs/ranks", "--json"]);
    check("help_doctor", &["doctor", "--help"]);
    check("error_doctor_no_log", &["doctor", "logs/none.log"]);
}

#[test]
fn a_log_that_ended_well_is_answered_so() {
    let mut doctor = command(&["doctor", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let log = b"step 9/9 loss 1.8\nTraining completed. Do not forget to share your model\n";
    doctor.stdin.take().unwrap().write_all(log).unwrap();
    let shown = String::from_utf8(doctor.wait_with_output().unwrap().stdout).unwrap();
    assert!(shown.starts_with("no known failure in 2 lines of 1 log\n"), "{shown}");
    assert!(shown.contains(":2 says that it ended well\n"), "{shown}");
}

#[test]
fn its_own_output_is_no_failure() {
    for args in [&["doctor", "logs/ranks"][..], &["doctor", "logs/ranks", "--json"], &["doctor", "logs/memory.log"]] {
        let own = tonnage(args).stdout;
        let mut doctor =
            command(&["doctor", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        doctor.stdin.take().unwrap().write_all(&own).unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&doctor.wait_with_output().unwrap().stdout).unwrap();
        assert!(answer["cause"].is_null() && answer["lines"].as_u64().unwrap() > 10, "{answer:#}");
    }
}

#[test]
fn nothing_of_a_log_reaches_the_terminal_unescaped() {
    let folder = std::env::temp_dir().join(format!("tonnage-doctor-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let log = folder.join("evil\u{1b}[31m\u{202e}.log");
    let line = b"\x1b[2J\x1b]0;title\x07RuntimeError: CUDA error: out of memory \x08\x9b31m\xff\xe2\x80\xae\x00\x7f\n";
    fs::write(&log, line).unwrap();
    for args in [&["doctor", "--json"][..], &["doctor"]] {
        let mut args: Vec<&str> = args.to_vec();
        args.push(folder.to_str().unwrap());
        let shown = String::from_utf8(tonnage(&args).stdout).unwrap();
        assert!(shown.contains("gpu_memory"), "{shown}");
        let harmless = |character: char| character == '\n' || !(character.is_control() || character == '\u{202e}');
        assert!(shown.chars().all(harmless), "{shown:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_log_of_many_megabytes_is_read_to_its_end() {
    let mut doctor = command(&["doctor", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut log = doctor.stdin.take().unwrap();
    let line = "{'loss': 1.8723, 'grad_norm': 0.8412, 'learning_rate': 1.9e-05, 'epoch': 0.01}\n".repeat(1000);
    for _ in 0..60 {
        log.write_all(line.as_bytes()).unwrap();
    }
    log.write_all(b"Killed").unwrap();
    drop(log);
    let answer: serde_json::Value = serde_json::from_slice(&doctor.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        (answer["cause"]["class"].as_str(), answer["cause"]["evidence"]["line"].as_u64()),
        (Some("killed"), Some(60_001))
    );
}

#[test]
fn ranks_are_named_by_folders() {
    let answer = json(&["doctor", "logs/ranks", "--json"]);
    assert_eq!(answer["first_rank"], 1);
    assert_eq!(answer["cause"]["class"], "gpu_memory");
}

#[test]
fn what_is_no_text_is_refused_and_utf_16_is_read() {
    let folder = std::env::temp_dir().join(format!("tonnage-doctor-kinds-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let doctor = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let output = tonnage(&["doctor", path.to_str().unwrap()]);
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for (bytes, word) in
        [(&b"\x1f\x8b\x08\0"[..], "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"\x7fELF\0\0\0\0", "binary")]
    {
        let (code, text) = doctor("a.log", bytes);
        assert!(code == Some(2) && text.contains(word), "{text}");
    }
    let wide: Vec<u8> =
        "\u{feff}RuntimeError: CUDA error: out of memory\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (code, text) = doctor("wide.log", &wide);
    assert!(code == Some(0) && text.contains("gpu_memory"), "{text}");
    let (code, text) =
        doctor("raised.log", b"Traceback (most recent call last):\n  File \"t.py\"\n    f()\nValueError: no\n");
    assert!(
        code == Some(0) && text.contains("raised.log:4 raised\n  > ValueError: no") && !text.contains("without a word"),
        "{text}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn statuses_of_shells_are_told_from_workers() {
    for (status, word) in
        [("127", "not found"), ("126", "chmod"), ("124", "timeout"), ("130", "Ctrl-C"), ("2", "usage")]
    {
        let text = String::from_utf8(tonnage(&["doctor", "--exit-status", status]).stdout).unwrap();
        assert!(text.contains(word) && !text.contains("torchrun --log-dir"), "{text}");
    }
    for status in ["0", "256", "-65", "x"] {
        assert_eq!(tonnage(&["doctor", "--exit-status", status]).status.code(), Some(2), "{status}");
    }
}

#[test]
fn a_job_on_another_gpu_is_told() {
    let text = String::from_utf8(tonnage(&["doctor", "logs/memory.log", "--job", "job.toml"]).stdout).unwrap();
    let other = json(&["doctor", "logs/memory.log", "--job", "job.toml", "--json"])["job"]["other_gpu_bytes"].clone();
    assert_eq!(text.contains("another GPU, or a slice of it"), !other.is_null(), "{text}");
}
