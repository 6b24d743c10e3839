//! Fit tables: what fits where, sweeps, and what programs read of them.

use std::path::PathBuf;

use super::{check, command, json, tonnage};

const HRM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hrm-arc.toml");
const SWARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sapo-gpt2-swarm.toml");

#[test]
fn screens() {
    check("fit", &["fit", "job.toml", "--gpus=h100,l4,t4,small.toml", "--rows=1,8,24"]);
    check("fit_variants", &["fit", "job.toml", "--seq-len=256,512", "--rows=8,16", "--gpu=l4,t4"]);
    check("fit_nowhere", &["fit", "job.toml", "--gpus=1GiB", "--no-largest"]);
    check("error_fit_gpu", &["fit", "job.toml", "--gpus=h1000"]);
    check("error_fit_live", &["fit", "job.toml", "--gpus=live"]);
    check("error_fit_many", &["fit", "job.toml", "--rows=0"]);
}

/// Rows are those of a rank: what that makes of the training is said.
#[test]
fn other_numbers_of_ranks_are_told_apart() {
    let output = command(&["fit", HRM, "--world-size=1,8"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("world_size=1 96 x 1 96") && text.contains("world_size=8 96 x 1 768"), "{text}");
    assert!(text.contains("of all ranks has 96 to 768, by line: these are different trainings"), "{text}");
    let table = json(&["fit", HRM, "--world-size=1,8", "--json"]);
    let steps: Vec<_> = table["rows"].as_array().unwrap().iter().map(|row| row["rows_per_step"].as_u64()).collect();
    assert_eq!(steps, [Some(96), Some(768)]);
}

#[test]
fn nodes_of_a_swarm_are_counted_on_every_gpu() {
    let table = json(&["fit", SWARM, "--gpus=all", "--json"]);
    let cells = table["rows"][0]["gpus"].as_array().unwrap();
    assert!(cells.len() > 20);
    let usable: Vec<_> = cells.iter().map(|cell| cell["usable_bytes"].as_u64().unwrap()).collect();
    assert!(usable.is_sorted_by(|a, b| a >= b), "the largest first");
    for cell in cells {
        let rooms = cell["room"].as_array().unwrap();
        let of = |lease: Option<u64>| {
            rooms
                .iter()
                .find(|room| room["lease"].as_u64() == lease)
                .and_then(|room| room["processes_per_gpu"].as_u64())
        };
        assert!(of(None) <= of(Some(1)), "{}: a lease never makes room for fewer", cell["gpu"]);
    }
}

#[test]
fn narrow_terminals_are_not_overrun() {
    for args in [&["fit", SWARM, "--gpus=all"][..], &["fit", "job.toml", "--gpus=all", "--rows=1,24"]] {
        for columns in [80, 120] {
            let output = command(args).env("COLUMNS", columns.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns, "{longest} of {columns} columns\n{text}");
        }
    }
}

/// A line of the CSV for each cell of the JSON, with the same figures.
#[test]
fn a_sweep_says_the_same_as_csv_and_as_json() {
    let path = std::env::temp_dir().join(format!("tonnage-fit-{}.csv", std::process::id()));
    let args = ["fit", "job.toml", "--seq-len=64,128", "--rows=4,24", "--gpus=l4,h100", "--json", "--csv"];
    let table = json(&[&args[..], &[path.to_str().unwrap()]].concat());
    let csv = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|column| *column == name).unwrap();
    let cells = table["rows"].as_array().unwrap().iter().flat_map(|row| {
        row["gpus"].as_array().unwrap().iter().map(move |cell| (row["changes"]["seq_len"].as_str().unwrap(), row, cell))
    });
    let mut count = 0;
    for (line, (seq_len, row, cell)) in lines[1..].iter().zip(cells) {
        assert_eq!((line[column("seq_len")], line[column("gpu")]), (seq_len, cell["gpu"].as_str().unwrap()));
        for name in ["total_bytes", "safe_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "usable_bytes"] {
            assert_eq!(line[column(name)], cell[name].to_string(), "{name}");
        }
        assert_eq!(line[column("rows_per_step")], row["rows_per_step"].to_string());
        assert_eq!(line[column("verdict")], cell["verdict"].as_str().unwrap());
        count += 1;
    }
    assert_eq!((count, lines.len()), (8, 9));
}

/// What is called the largest fits, and the next that makes the same effective batch, or the next that needs no
/// accumulation, does not.
#[test]
fn the_largest_fits_and_the_next_does_not() {
    let table = json(&["fit", "job.toml", "--gpus=8GiB,l4", "--json"]);
    let largest = |at: usize| table["largest"][at]["micro_batch_size"].as_u64().unwrap();
    let verdict = |gpu: &str, rows: u64| {
        let (gpu, rows) = (format!("--gpus={gpu}"), format!("--rows={rows}"));
        let judged = json(&["fit", "job.toml", &gpu, &rows, "--no-largest", "--json"]);
        judged["rows"][0]["gpus"][0]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!((largest(0), verdict("8GiB", 12).as_str()), (12, "fits"));
    assert_ne!(verdict("8GiB", 24), "fits");
    assert_eq!(verdict("l4", largest(1)), "fits");
    assert_ne!(verdict("l4", largest(1) + 1), "fits");
}

#[test]
fn exit_codes_say_whether_anything_fits() {
    let code = |args: &[&str]| tonnage(args).status.code();
    assert_eq!(code(&["fit", "job.toml", "--gpus=l4,1GiB", "--no-largest"]), Some(0));
    assert_eq!(code(&["fit", "job.toml", "--gpus=1GiB", "--no-largest"]), Some(1));
    assert_eq!(code(&["fit", "job.toml", "--gpus=nothing"]), Some(2));
}

/// A user's own GPU, from a file or written out, is a column like those of the catalog.
#[test]
fn a_gpu_of_ones_own_is_judged_by_its_own_figures() {
    let path: PathBuf = std::env::temp_dir().join(format!("tonnage-gpu-{}.toml", std::process::id()));
    std::fs::write(&path, "like = \"h100\"\nname = \"mine\"\nusable_gib = 40\n").unwrap();
    let table = json(&["fit", "job.toml", &format!("--gpus=h100,{}", path.display()), "--no-largest", "--json"]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        (table["gpus"][1]["name"].as_str(), table["gpus"][1]["usable_bytes"].as_u64()),
        (Some("mine"), Some(40 << 30))
    );
    let cells = &table["rows"][0]["gpus"];
    assert_eq!(cells[0]["total_bytes"], cells[1]["total_bytes"]);
}

/// What is left out of a sweep does not fit, and the rest is what it is without leaving out.
#[test]
fn a_pruned_sweep_leaves_out_only_what_does_not_fit() {
    let rows = (1..=24).map(|rows| rows.to_string()).collect::<Vec<_>>().join(",");
    let sweep = |more: &[&str]| {
        let rows = format!("--rows={rows}");
        let job = [
            "fit",
            "job.toml",
            "--micro-batch-size=1",
            "--seq-len=256,512",
            "--gpus=4GiB,3GiB",
            "--no-largest",
            "--json",
        ];
        json(&[&job[..], &[&rows], more].concat())
    };
    let cells = |table: &serde_json::Value| -> Vec<serde_json::Value> {
        let rows = table["rows"].as_array().unwrap().iter();
        rows.flat_map(|row| row["gpus"].as_array().unwrap().clone()).collect()
    };
    let (all, pruned) = (cells(&sweep(&[])), cells(&sweep(&["--prune"])));
    let mut left_out = 0;
    for (full, pruned) in all.iter().zip(&pruned) {
        if pruned["error"].is_null() {
            assert_eq!(full, pruned);
        } else {
            assert_eq!((full["verdict"].as_str(), pruned["verdict"].as_str()), (Some("does_not_fit"), None));
            left_out += 1;
        }
    }
    assert!(all.len() == 96 && (4..60).contains(&left_out), "{left_out} of {}", all.len());
}

/// The driver says which GPU this machine has and how much memory: here a scripted one.
#[test]
fn the_gpu_of_this_machine_is_asked_of_its_driver() {
    let test = std::env::current_exe().unwrap();
    let mut command = command(&["fit", "job.toml", "--gpus=live,l4", "--no-largest", "--json"]);
    command.env("TONNAGE_NVML_LIBRARY", test.parent().unwrap().join("libtonnage_phantom.so"));
    command.env("TONNAGE_NVML_SCRIPT", super::folder("../../../testdata/nvml").join("node.jsonl"));
    command
        .env("TONNAGE_NVML_SPEED", "0")
        .env("TONNAGE_PHANTOM_QUIET", "1")
        .env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    let output = command.output().unwrap();
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((table["gpus"][0]["id"].as_str(), table["gpus"][1]["id"].as_str()), (Some("h100"), Some("l4")));
}

#[test]
fn the_largest_value_of_a_key_fits_and_the_next_does_not() {
    let gpu = "3GiB,sm_86,multiprocessors=28";
    for (key, more) in [
        ("seq_len", &["-b", "2"][..]),
        ("micro_batch_size", &["--seq-len", "256"]),
        ("lora.r", &["-b", "1", "--seq-len", "128", "--lora-r", "8"]),
    ] {
        let base = ["fit", "gpt2", "--gpu", gpu, "--solve", key, "--json"];
        let answer = json(&[&base, more].concat());
        let found = &answer["rows"][0]["gpus"][0];
        let (value, next) = (found["value"].as_u64().unwrap(), found["next"]["value"].as_u64().unwrap());
        assert_eq!(answer["key"], key);
        let verdict = |value: u64| {
            let set = format!("{key}={value}");
            let more = more.strip_suffix(&["--lora-r", "8"]).unwrap_or(more);
            let output = tonnage(&[&["estimate", "gpt2", "--gpu", gpu, "--json", "--set", &set][..], more].concat());
            let estimate: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            estimate["verdict"].as_str().unwrap_or("refused").to_owned()
        };
        assert_eq!(verdict(value), "fits", "{key}={value}");
        assert_ne!(verdict(next), "fits", "{key}={next}");
        assert!(next == value + 1 || found["next"]["verdict"] != "fits", "{key}: {value}, {next}");
    }
}

#[test]
fn a_solved_key_is_refused_where_it_says_nothing() {
    let refused = |args: &[&str], part: &str| {
        let output = tonnage(&[&["fit", "gpt2"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(part), "{args:?}: {error}");
    };
    refused(&["--solve", "precision"], "`precision` is no whole number");
    refused(&["--solve", "nothing"], "there is no key `nothing`");
    refused(&["--solve", "seq_len", "--seq-len", "1,2"], "is given a list of values too");
    refused(&["--gpus", ""], "no GPU is named");
    refused(&["--gpus", " , "], "no GPU is named");
    // What the model cannot have stops the search, with the reason.
    let screen =
        String::from_utf8_lossy(&tonnage(&["fit", "gpt2", "--gpu", "h200", "-b", "1", "--solve", "seq_len"]).stdout)
            .into_owned();
    assert!(screen.contains("1024") && screen.contains("1025: refused"), "{screen}");
}

#[test]
fn models_are_a_list_like_any_other() {
    let model = |answer: &serde_json::Value, at: usize| answer["rows"][at]["changes"]["model"].clone();
    let answer = json(&["fit", "--models", "gpt2,gpt2-medium", "--gpus", "l4", "--json"]);
    assert_eq!((model(&answer, 0), model(&answer, 1)), ("gpt2".into(), "gpt2-medium".into()));
    assert_eq!(
        answer["rows"],
        json(&["fit", "gpt2", "--set", "model=gpt2,gpt2-medium", "--gpus", "l4", "--json"])["rows"]
    );
    let solved =
        json(&["fit", "--models", "gpt2,gpt2-medium", "--gpus", "l4", "--solve", "micro_batch_size", "--json"]);
    let rows = |at: usize| solved["rows"][at]["gpus"][0]["value"].as_u64().unwrap();
    assert!(rows(0) > rows(1));
}
