//! Suites on GPUs: what is promised, what was measured, and where runs are put.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::Home;
use super::suites::{made, text};

const GIB: u64 = 1 << 30;

/// A GPT-2 on a GPU that nothing tells of.
fn gpt2(seeds: usize) -> String {
    format!(
        "name = \"s\"\njob = \"gpt2\"\ncommand = [\"sh\", \"t.sh\", \"{{seed}}\"]\nseeds = {seeds}\n\
         [run]\nstagger_seconds = 0.1\n[set]\ngpu = \"24GiB,sm_86\"\nseq_len = 512\nmicro_batch_size = 2\n\
         [[configuration]]\nname = \"c\"\n"
    )
}

/// Events of the suite's journal.
fn events(home: &Home, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(home.path("home/suites/s/journal.log")).unwrap();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["event"] == event).collect()
}

fn promised(home: &Home) -> Vec<u64> {
    events(home, "started").iter().map(|line| line["bytes"].as_u64().unwrap()).collect()
}

/// A script whose allocator tells what the file `peak` says.
const MEASURED: &str = "printf '{\"peak_allocated_bytes\": %s, \"peak_reserved_bytes\": %s}' $(cat peak) $(cat peak) \
                        > $TONNAGE_ATTEMPT_DIR/allocator-1.json\nexit 0\n";

#[test]
fn measured_peaks_are_kept_for_later_runners() {
    let home = made("suite-peaks", &gpt2(2), MEASURED);
    let plan = serde_json::from_slice::<Value>(&home.run(&["suite", "plan", "s.toml", "--json"]).stdout).unwrap();
    let predicted = &plan["configurations"][0]["predicted"];
    let peak = predicted["peak_reserved_bytes"].as_u64().unwrap();
    let less = peak / 4;
    home.write("peak", &(peak - less).to_string());
    let first = home.run(&["suite", "run", "s.toml", "--gpus", "0", "--slots", "1"]);
    assert!(first.status.success(), "{}", text(&first));
    home.write("s.toml", &gpt2(3));
    let second = home.run(&["suite", "run", "s.toml", "--gpus", "0"]);
    assert!(second.status.success(), "{}", text(&second));
    let found = promised(&home);
    assert_eq!(found[0], found[1], "one run says nothing of how runs differ");
    assert_eq!(found.len(), 3);
    let saved = found[0] - found[2];
    assert!(saved > 0 && saved < less, "{saved} of {less}: never all of what was saved");
    // The supervisor counts as the suite does, so that it does not refuse what was promised.
    let run = |at: usize| {
        let id = events(&home, "started")[at]["run"].as_str().unwrap().to_owned();
        serde_json::from_slice::<Value>(&fs::read(home.path("home/runs").join(id).join("run.json")).unwrap()).unwrap()
    };
    assert_eq!(run(2)["policy"]["seen_less_bytes"], saved);
    // A peak above what was predicted counts at once, and more than all that were below.
    home.write("peak", &(peak + GIB).to_string());
    for seeds in [4, 5] {
        home.write("s.toml", &gpt2(seeds));
        let output = home.run(&["suite", "run", "s.toml", "--gpus", "0"]);
        assert!(output.status.success(), "{}", text(&output));
    }
    let found = promised(&home);
    assert_eq!(found[4], found[0] + GIB, "{found:?}");
    assert_eq!(run(4)["policy"]["seen_more_bytes"], GIB);
    // Of another job under the same name nothing is known.
    home.write("s.toml", &gpt2(1).replace("micro_batch_size = 2", "micro_batch_size = 1"));
    assert!(home.run(&["suite", "run", "s.toml", "--gpus", "0"]).status.success());
    assert!(promised(&home)[5] < found[0]);
}

/// The shared library that cargo builds of the phantom, beside the test itself.
fn scripted_nvml() -> String {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libtonnage_phantom.so").to_string_lossy().into_owned()
}

/// Eight recorded GPUs, free but for a little; runs of two ranks and of one.
#[test]
fn runs_are_spread_over_recorded_gpus() {
    // Each waits until six GPUs are taken, which those that run at once take only where they are spread.
    let script = "echo \"$CUDA_VISIBLE_DEVICES\" > gpus-$1-$2\n\
                  for i in $(seq 600); do [ $(cat gpus-* | tr , '\\n' | sort -u | wc -l) -ge 6 ] && break; sleep 0.1; done\nsleep 0.5\n";
    let suite = "name = \"s\"\njob = \"gpt2\"\ncommand = [\"sh\", \"t.sh\", \"{world_size}\", \"{seed}\"]\nseeds = 4\n\
        [run]\nstagger_seconds = 0.1\nsample_seconds = 0.2\n[set]\ngpu = \"h100\"\nseq_len = 1024\nmicro_batch_size = 32\n\
        [[configuration]]\nname = \"c\"\nworld_size = [1, 2]\n";
    let home = made("suite-gpus", suite, script);
    let recorded: PathBuf = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nvml/node.jsonl");
    let free: String = fs::read_to_string(recorded)
        .unwrap()
        .lines()
        .map(|line| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            if value["used"].is_u64() {
                value["used"] = (GIB / 2).into();
                value["processes"] = Value::Array(Vec::new());
            }
            format!("{value}\n")
        })
        .collect();
    let free = home.write("free.jsonl", &free);
    let mut command = home.command(&["suite", "run", "s.toml"]);
    command.env("TONNAGE_NVML_LIBRARY", scripted_nvml()).env("TONNAGE_NVML_SCRIPT", free);
    command.env("TONNAGE_PHANTOM_QUIET", "1").env("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let mut used = Vec::new();
    for (ranks, seed) in [1, 2].into_iter().flat_map(|ranks| (0..4).map(move |seed| (ranks, seed))) {
        let gpus = fs::read_to_string(home.path(&format!("gpus-{ranks}-{seed}"))).unwrap();
        let gpus: Vec<String> = gpus.trim().split(',').map(str::to_owned).collect();
        assert_eq!(gpus.len(), ranks, "{gpus:?}");
        used.extend(gpus);
    }
    used.sort();
    used.dedup();
    assert!(used.len() >= 6, "twelve ranks of half a GPU and more: {used:?}");
    // No GPU was promised beyond what it has, by the order of starts and ends.
    let journal = fs::read_to_string(home.path("home/suites/s/journal.log")).unwrap();
    let mut now: Vec<(String, Vec<String>, u64)> = Vec::new();
    for line in journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let id = line["id"].as_str().unwrap_or_default().to_owned();
        if line["event"] == "started" {
            let gpus = line["gpus"].as_array().unwrap().iter().map(|gpu| gpu.as_str().unwrap().to_owned()).collect();
            now.push((id, gpus, line["bytes"].as_u64().unwrap()));
        } else if line["event"] == "ended" {
            now.retain(|one| one.0 != id);
        }
        for gpu in &used {
            let promised: u64 = now.iter().filter(|one| one.1.contains(gpu)).map(|one| one.2).sum();
            assert!(promised <= 80 * GIB, "{promised} of GPU {gpu}");
        }
    }
    // What the GPUs said meanwhile, under W&B's names.
    let system = fs::read_dir(home.path("home/suites/s/system")).unwrap().flatten().next().unwrap().path();
    let look: Value = serde_json::from_str(fs::read_to_string(system).unwrap().lines().next().unwrap()).unwrap();
    let names: Vec<&String> = look["metrics"].as_object().unwrap().keys().collect();
    assert!(
        names.iter().any(|name| name.starts_with("system.gpu.") && name.ends_with(".memoryAllocated")),
        "{names:?}"
    );
}
