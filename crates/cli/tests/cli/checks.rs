//! `tonnage check`: a job held against a baseline file.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{check, command};

/// A folder of its own for a test, empty.
fn place(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Exit code, stdout and stderr of `tonnage check gpt2 ... --baseline memory.json`, in the folder.
fn run(folder: &PathBuf, words: &str) -> (i32, String, String) {
    let line = format!("check {words} --baseline memory.json");
    let output = command(&line.split(' ').collect::<Vec<_>>()).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_job_that_grows_fails_and_says_what_grew() {
    let folder = place("grows");
    let (code, _, said) = run(&folder, "gpt2 -s 64 --gpu l4");
    assert!(code == 2 && said.contains("--update"), "{code} {said}");
    assert_eq!(run(&folder, "gpt2 -s 64 --gpu l4 --update").0, 0);
    let (code, out, _) = run(&folder, "gpt2 -s 64 --gpu l4");
    assert!(code == 0 && out.contains("takes what the baseline says") && out.lines().count() == 1, "{out}");
    let (code, out, _) = run(&folder, "gpt2 -s 128 --gpu l4");
    assert!(code == 1 && out.contains("takes more than the baseline: total") && out.contains("activation"), "{out}");
    let (code, out, _) = run(&folder, "gpt2 -s 128 --gpu l4 --tolerance 900");
    assert!(code == 0 && out.contains("900 % more than the baseline"), "{out}");
    assert_eq!(run(&folder, "gpt2 -s 32 --gpu l4").0, 0, "less is no fault");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_job_that_does_not_fit_fails_whatever_the_baseline_says() {
    let folder = place("fits");
    let job = "gpt2-xl -b 4 -s 1024 --gpu t4";
    assert_eq!(run(&folder, &format!("{job} --update")).0, 1);
    let (code, out, _) = run(&folder, job);
    assert!(code == 1 && out.contains("does not fit") && out.contains("takes what the baseline says"), "{out}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn another_gpu_is_said() {
    let folder = place("gpu");
    run(&folder, "gpt2 -s 64 --gpu l4 --update");
    let (_, out, _) = run(&folder, "gpt2 -s 64 --gpu t4 --tolerance 5");
    assert!(out.contains("the baseline is of NVIDIA L4, this of NVIDIA T4"), "{out}");
    fs::remove_dir_all(folder).unwrap();
}

/// The pytest plugin keeps its tests in the same file.
#[test]
fn what_others_keep_in_the_file_stays() {
    let folder = place("others");
    let path = folder.join("memory.json");
    fs::write(&path, r#"{"version": 1, "tests": {"test_a.py::test_b": {"total_bytes": 1}}}"#).unwrap();
    assert_eq!(run(&folder, "gpt2 -s 64 --gpu l4 --name one --update").0, 0);
    assert_eq!(run(&folder, "gpt2 -s 32 --gpu l4 --name two --update").0, 0);
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(file["tests"]["test_a.py::test_b"]["total_bytes"], 1);
    assert!(file["jobs"]["one"]["total_bytes"].as_u64() > file["jobs"]["two"]["total_bytes"].as_u64());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    let (code, out, _) = run(&folder, "gpt2 -s 512 --gpu l4 --name two --json");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &answer["passed"], &answer["job"]), (1, &Value::Bool(false), &"two".into()));
    assert_eq!(answer["now"]["peak_allocated_bytes"].as_u64().unwrap(), {
        let estimate = super::json(&["estimate", "gpt2", "-s", "512", "--gpu", "l4", "--json"]);
        estimate["peak_allocated_bytes"].as_u64().unwrap()
    });
    fs::remove_dir_all(folder).unwrap();
}

/// A config with a key that nobody knows may take anything: that is more than what was known.
#[test]
fn a_config_that_becomes_less_known_fails() {
    let folder = place("config");
    let config = "model_name_or_path: gpt2\nmax_length: 64\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-5\n";
    fs::write(folder.join("sft.yaml"), config).unwrap();
    assert_eq!(run(&folder, "--from sft.yaml --gpu l4 --update").0, 0);
    assert_eq!(run(&folder, "--from sft.yaml --gpu l4").0, 0);
    fs::write(folder.join("sft.yaml"), format!("{config}extra_heads: 8\n")).unwrap();
    let (code, out, _) = run(&folder, "--from sft.yaml --gpu l4 --tolerance 5");
    assert!(code == 1 && out.contains("total at most") && out.contains("not known"), "{out}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn screens() {
    check("check", &["check", "job.toml", "--baseline=memory.json"]);
    check("error_check_none", &["check", "job.toml", "--baseline=none.json"]);
    check("error_check_name", &["check", "gpt2", "--gpu=l4", "--baseline=memory.json"]);
    check("error_check_version", &["check", "gpt2", "--gpu=l4", "--baseline=memory_of_later.json"]);
    check("error_check_tolerance", &["check", "gpt2", "--baseline=memory.json", "--tolerance=-1"]);
    check("error_check_no_gpu", &["check", "gpt2", "--baseline=memory.json", "--fail-on=tight"]);
}
