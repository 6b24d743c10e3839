//! `tonnage rehearse` with real PyTorch; no GPU is used. Ignored unless asked for, because most machines have no PyTorch:
//! `TONNAGE_TORCH_PYTHON=.../bin/python cargo test -p tonnage -- --ignored`.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::{command, folder, tonnage, torch_python};

/// A script that must rehearse.
fn script(name: &str) -> PathBuf {
    folder("../../../testdata/rehearse/scripts").join(name)
}

/// Rehearses the script.
fn rehearse(name: &str, options: &[&str]) -> Output {
    rehearse_with(name, options, &[])
}

fn rehearse_with(name: &str, options: &[&str], variables: &[(&str, &str)]) -> Output {
    rehearse_words(&[name], options, variables)
}

/// Rehearses the script that is the first word, with the others as its arguments.
fn rehearse_words(words: &[&str], options: &[&str], variables: &[(&str, &str)]) -> Output {
    let python = torch_python();
    let script = script(words[0]);
    let command_line = ["--", &python, script.to_str().unwrap()];
    let args = [&["rehearse", "--json"], options, &command_line, &words[1..]].concat();
    let mut command = command(&args);
    command.env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).envs(variables.iter().copied());
    command.output().expect("the binary runs")
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_script_is_stopped_when_its_peak_is_steady_and_its_trace_replays_to_the_byte() {
    let path = std::env::temp_dir().join(format!("tonnage-torch-{}.jsonl", std::process::id()));
    let path = path.to_str().unwrap();
    let output = rehearse("nanogpt.py", &["--gpu", "h200", "--save-trace", path]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = document(&output);
    let process = &answer["processes"][0];
    assert_eq!((&process["stop"]["reason"], &process["steps"]), (&"steady".into(), &5.into()));
    let device = &process["devices"][0];
    let phases = device["peak_per_phase"].as_object().unwrap();
    for phase in ["0:load", "1:forward", "2:backward", "1:clip", "5:optimizer"] {
        assert!(phases.contains_key(phase), "{phase} is not among {phases:?}");
    }
    assert_eq!(phases.values().filter_map(Value::as_u64).max(), device["peak_allocated_bytes"].as_u64());
    assert!(device["peak_line"].as_str().unwrap().contains("nanogpt.py:"), "{device}");
    let replayed: Value = serde_json::from_slice(&tonnage(&["trace", "replay", path, "--json"]).stdout).unwrap();
    std::fs::remove_file(path).unwrap();
    for figure in ["peak_allocated_bytes", "peak_reserved_bytes"] {
        assert_eq!(replayed[figure], device[figure], "{figure}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn memory_runs_out_as_pytorch_says_it() {
    let output = rehearse("nanogpt.py", &["--gpu", "2GiB,sm_90,multiprocessors=132"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("torch.OutOfMemoryError: CUDA out of memory"));
    let judged = &document(&output)["gpus"][0];
    assert_eq!(judged["verdict"], "does_not_fit");
    assert!(judged["out_of_memory"]["line"].as_str().unwrap().contains("nanogpt.py:"), "{judged}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_loop_that_waits_for_the_device_is_named() {
    for (script, place) in [("waits.py", "waits.py:6"), ("samples.py", "samples.py:9")] {
        let output = rehearse(script, &["--patience", "2"]);
        assert_eq!(output.status.code(), Some(3));
        let answer = document(&output);
        assert!(answer["processes"][0]["stop"]["place"].as_str().unwrap().contains(place), "{answer}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_script_that_never_ends_is_stopped_after_seconds() {
    let output = rehearse("endless.py", &["--whole", "--seconds", "30"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = document(&output);
    let process = &answer["processes"][0];
    assert_eq!((&process["stop"]["reason"], &process["failure"]), (&"seconds".into(), &Value::Null));
    assert!(process["steps"].as_u64().unwrap() > 0, "a finite loss ends nothing: {process}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_phase_that_never_comes_again_is_not_waited_for() {
    let output = rehearse("endless.py", &[]);
    let answer = document(&output);
    let process = &answer["processes"][0];
    // Three steps without growth after the first: the forward pass before training is not waited for.
    assert_eq!((&process["stop"]["reason"], &process["steps"]), (&"steady".into(), &4.into()));
    let codes: Vec<_> = process["caveats"].as_array().unwrap().iter().map(|caveat| &caveat["code"]).collect();
    assert_eq!(codes, ["not_again"], "printing a loss is no question");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn more_events_than_pytorch_remembers_leave_the_peaks() {
    let output = rehearse_with("bare.py", &[], &[("TONNAGE_REHEARSE_TRACE_ENTRIES", "1000")]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = document(&output);
    let process = &answer["processes"][0];
    assert!(process["trace_ends"].as_str().unwrap().contains("buffer of 1000 entries overflowed"), "{process}");
    assert!(process["devices"][0]["peak_allocated_bytes"].as_u64().unwrap() > 64 << 20);
    let drained =
        document(&rehearse_with("many_steps.py", &["--whole"], &[("TONNAGE_REHEARSE_TRACE_ENTRIES", "1000")]));
    let process = &drained["processes"][0];
    assert_eq!(
        (&process["steps"], &process["trace_ends"]),
        (&500.into(), &Value::Null),
        "a step's end empties the buffer"
    );
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn ranks_without_a_launcher_are_told_apart() {
    let output = rehearse("spawned.py", &["--gpus", "2", "--whole"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = document(&output);
    let ranks: Vec<_> = answer["processes"].as_array().unwrap().iter().map(|process| &process["rank"]).collect();
    assert_eq!(ranks, [0, 1]);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_trace_replays_under_the_settings_of_its_run() {
    let path = std::env::temp_dir().join(format!("tonnage-torch-settings-{}.jsonl", std::process::id()));
    let path = path.to_str().unwrap();
    let settings = [("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
    let output = rehearse_with("nanogpt.py", &["--gpu", "h200", "--steps", "1", "--save-trace", path], &settings);
    let device = &document(&output)["processes"][0]["devices"][0];
    let replayed = |options: &[&str]| -> Value {
        let args = [&["trace", "replay", path, "--json"], options].concat();
        serde_json::from_slice(&tonnage(&args).stdout).unwrap()
    };
    assert_eq!(replayed(&[])["peak_reserved_bytes"], device["peak_reserved_bytes"]);
    assert_ne!(replayed(&["--allocator", ""])["peak_reserved_bytes"], device["peak_reserved_bytes"]);
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_job_that_cannot_be_read_is_told_before_the_command_runs() {
    let output = tonnage(&["rehearse", "--against", "nosuch", "--", "/nonexistent/python"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("model `nosuch`"));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn hand_written_experts_take_their_even_share() {
    let peaks = |form: &str| {
        let output = rehearse_words(&["experts.py", form], &["--gpu", "l4"], &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{form}: {error}");
        let device = document(&output)["processes"][0]["devices"][0].clone();
        (device["peak_allocated_bytes"].as_u64(), device["peak_reserved_bytes"].as_u64())
    };
    let forced = peaks("forced");
    assert_eq!(peaks("where"), forced);
    assert!(peaks("scattered") > forced, "it keeps its gates and the order of the tokens too");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn experts_that_are_sorted_drawn_recomputed_or_compiled_all_run() {
    for words in [
        &["ordered"][..],
        &["drawn"],
        &["any", "5", "checkpointed"],
        &["one_hot", "5", "compiled"],
        &["counts", "5", "compiled"],
    ] {
        let output = rehearse_words(&[&["experts.py"], words].concat(), &["--gpu", "l4"], &[]);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn training_that_a_value_left_out_has_no_verdict() {
    let output = rehearse_words(&["asks.py", "nothing_to_learn"], &["--gpu", "l4"], &[]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(document(&output)["processes"][0]["caveats"].to_string().contains("no backward pass ran"));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_worst_share_takes_more_and_is_said() {
    let output = rehearse_words(&["experts.py", "any"], &["--gpu", "l4", "--experts", "worst"], &[]);
    let even = rehearse_words(&["experts.py", "any"], &["--gpu", "l4"], &[]);
    let peak = |output: &Output| document(output)["processes"][0]["devices"][0]["peak_allocated_bytes"].as_u64();
    assert!(peak(&output) > peak(&even));
    let told = |output: &Output| document(output)["processes"][0]["caveats"].to_string();
    assert!(told(&output).contains("all tokens to the same experts") && told(&even).contains("an even share"));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_the_host_wrote_is_true_and_the_rest_valid() {
    let asks = "asks.py sampling boxes targets actions preferences periods pinned graphs inside samples curvature";
    for words in [&["values.py"][..], &asks.split(' ').collect::<Vec<_>>()] {
        let output = rehearse_words(words, &["--gpu", "l4", "--whole"], &[]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let without = rehearse("values.py", &["--gpu", "l4", "--no-values"]);
    assert_eq!(without.status.code(), Some(1), "everything is zero: {}", String::from_utf8_lossy(&without.stderr));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn what_the_host_decides_by_tables_of_the_device_is_told() {
    let lines =
        [("array", "taken.py:19"), ("range", "taken.py:22"), ("mask", "taken.py:25"), ("nothing", ""), ("sparse", "")];
    for (kind, line) in lines {
        let output = rehearse_words(&["taken.py", kind], &["--gpu", "l4"], &[]);
        let exit = if kind == "sparse" { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(exit), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
        let caveats = document(&output)["processes"][0]["caveats"].to_string();
        let told = if line.is_empty() { !caveats.contains("\"size\"") } else { caveats.contains(line) };
        assert!(told, "{kind}: {caveats}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn steps_without_an_optimizer_are_counted() {
    let answer = document(&rehearse_words(&["asks.py", "by_hand"], &["--gpu", "l4"], &[]));
    assert_eq!(answer["processes"][0]["stop"]["reason"], "steady", "{answer}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn rows_by_a_mask_allocate_the_same_without_values() {
    let peaks = [&[][..], &["--no-values"]].map(|options| {
        let output = rehearse("masks.py", &[&["--gpu", "l4", "--whole"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        let device = document(&output)["processes"][0]["devices"][0].clone();
        (device["peak_per_phase"].clone(), device["peak_reserved_per_phase"].clone())
    });
    assert!(peaks[0].0.is_object() && peaks[0] == peaks[1], "{peaks:?}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn experts_by_a_mask_run_whatever_form_asks_for_its_count() {
    let peak = |form: &str| {
        let output = rehearse_words(&["gated.py", form], &["--gpu", "l4"], &[]);
        assert_eq!(output.status.code(), Some(0), "{form}: {}", String::from_utf8_lossy(&output.stderr));
        let process = document(&output)["processes"][0].clone();
        assert!(process["caveats"].to_string().contains("\"branch\""), "{form}: {}", process["caveats"]);
        process["devices"][0]["peak_allocated_bytes"].as_u64().unwrap()
    };
    let any = peak("any");
    let forms = ["sum", "item", "fractions", "cast", "fraction", "rows", "row", "casted_rows"];
    for form in forms.into_iter().chain(["list", "host", "host_rows", "host_mask", "most"]) {
        assert_eq!(peak(form), any, "{form}");
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn the_longest_rows_first_reach_the_peak_of_the_whole_run() {
    let peak = |options: &[&str]| {
        let output = rehearse("ragged.py", &[&["--gpu", "l4"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        let process = document(&output)["processes"][0].clone();
        // Of what was asked for: blocks of other sizes that lie in the cache may serve it, and count as a whole.
        (process["devices"][0]["rounded512_peak_bytes"].as_u64().unwrap(), process["caveats"].to_string())
    };
    let [whole, longest, given] = [&["--whole"][..], &["--longest"], &["--row-length", "215"]].map(peak);
    assert_eq!((longest.0, given.0), (whole.0, whole.0), "the last batch has rows of 212 to 215");
    assert!(longest.1.contains("up to 215 elements; the shortest has 16"), "{}", longest.1);
    assert!(whole.1.contains("input 1 of Sequential 4 x 19 to 215; by the shortest"), "{}", whole.1);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_part_that_the_device_left_out_takes_the_verdict_away() {
    let output = rehearse("skips.py", &["--gpu", "l4"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = document(&output);
    assert_eq!(answer["gpus"][0]["verdict"], Value::Null);
    let caveats = answer["processes"][0]["caveats"].to_string();
    assert!(caveats.contains("1 modules with 4,160 parameters (sometimes)"), "{caveats}");
    assert!(caveats.contains("skips.py:13 in forward"), "{caveats}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn a_replaced_path_is_survived_and_of_an_ignored_one_the_driver_tells() {
    let (python, script) = (torch_python(), script("skips.py"));
    let script = script.to_str().unwrap();
    let run = |words: &[&str]| {
        let args = [&["rehearse", "--json", "--steps", "1", "--"], words].concat();
        command(&args).env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).output().unwrap()
    };
    let replaced = run(&["env", "PYTHONPATH=/nowhere", &python, script]);
    assert_eq!(document(&replaced)["processes"][0]["steps"], 1, "{}", String::from_utf8_lossy(&replaced.stderr));
    let ignored = run(&[&python, "-E", script]);
    assert_eq!(ignored.status.code(), Some(0), "{}", String::from_utf8_lossy(&ignored.stderr));
    let ignored = document(&ignored);
    assert_eq!(
        (&ignored["processes"], &ignored["fits_from"][0]["verdict"]),
        (&Value::Array(Vec::new()), &"fits".into())
    );
    let held = &ignored["unrecorded"][0]["devices"][0]["peak_bytes"];
    let reserved = replaced_reserved(&replaced);
    assert!(held.as_u64().unwrap() > reserved, "the context is beside it: {held} and {reserved}");
}

/// What PyTorch reserved in the process that left a record.
fn replaced_reserved(output: &Output) -> u64 {
    document(output)["processes"][0]["devices"][0]["peak_reserved_bytes"].as_u64().unwrap()
}

/// What `native.cpp` does.
const SAME_IN_PYTHON: &str = "import torch
rows = torch.empty(3, 1024, 1024, device='cuda')
for step in range(3):
    product = torch.mm(rows[0], rows[1])
    wide = torch.cat([product, product, product]).relu()
    del product, wide
";

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH_PYTHON"]
fn of_a_native_program_over_libtorch_the_reserved_bytes_are_pythons() {
    let python = torch_python();
    let output = Command::new(&python).args(["-c", "import torch; print(torch.__path__[0])"]).output().unwrap();
    let root = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let program = std::env::temp_dir().join(format!("tonnage-libtorch-{}", std::process::id()));
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-O0", "-o"])
        .arg(&program)
        .arg(folder("data/rehearsal/native.cpp"))
        .args([format!("-I{root}/include"), format!("-L{root}/lib"), format!("-Wl,-rpath,{root}/lib")])
        .args(["-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch_cpu", "-lc10"])
        .output()
        .expect("c++ starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = |words: &[&str]| {
        let args = [&["rehearse", "--json", "--gpu", "l4", "--whole", "--"], words].concat();
        let output = command(&args).env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        document(&output)["gpus"][0].clone()
    };
    let (native, in_python) = (run(&[program.to_str().unwrap()]), run(&[&python, "-c", SAME_IN_PYTHON]));
    std::fs::remove_file(program).unwrap();
    assert_eq!((&native["by"], &in_python["by"]), (&"driver".into(), &"run".into()));
    for figure in ["verdict", "peak_reserved_bytes", "total_bytes"] {
        assert_eq!(native[figure], in_python[figure], "{figure}");
    }
}
