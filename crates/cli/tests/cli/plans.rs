//! Plans and suites: remedies, time and price, searches, and job files that are written.

use super::{check, command, json, tonnage};

const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/suites/hrm-arc.toml");
/// A job of half a second, which an 8 GiB GPU with the rates of an L4 cannot hold.
const JOB: [&str; 3] = ["plan", "job.toml", "--gpu-file=small.toml"];

#[test]
fn screens() {
    check("plan", &[&JOB[..], &["--max-steps=1000", "--price=0.5"]].concat());
    check("plan_search", &["plan", "job.toml", "--max-steps=1000", "--budget=1", "--gpus=l4,t4", "--counts=1,2"]);
    check("plan_nearest", &["plan", "job.toml", "--max-steps=1000", "--deadline=1s", "--gpus=l4"]);
    check("cost", &["cost", "job.toml", "--seq-len=32,64", "--max-steps=1000", "--step-time=0.2", "--gpu=l4"]);
    check("plan_no_length", &["plan", "job.toml", "--budget=1"]);
    check("error_live", &["plan", "job.toml", "--gpu=live"]);
}

#[test]
fn narrow_terminals_are_not_overrun() {
    for args in [&[&JOB[..], &["--framework=accelerate"]].concat()[..], &["cost", "--suite", SUITE]] {
        for columns in [80, 100, 120] {
            let output = command(args).env("COLUMNS", columns.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns, "{longest} of {columns} columns\n{text}");
        }
    }
}

#[test]
fn what_the_user_measured_and_pays_is_theirs() {
    let plan = json(&["plan", "job.toml", "--gpu=l4", "--max-steps=3600", "--step-time=2", "--price=1.5", "--json"]);
    let cost = &plan["base"]["cost"];
    assert_eq!((cost["basis"].as_str(), cost["step_seconds"]["high"].as_f64()), (Some("measured by you"), Some(2.0)));
    assert_eq!((cost["gpu_hours"]["typical"].as_f64(), cost["dollars"]["typical"].as_f64()), (Some(2.0), Some(3.0)));
    assert_eq!(cost["price"]["source"], "given by you");
    let remedy = &plan["remedies"][0];
    assert_eq!(remedy["cost"]["basis"], "scaled from the step measured by you");
    let scaled = remedy["cost"]["step_seconds"]["typical"].as_f64().unwrap();
    assert!((scaled - 2.0 * remedy["slowdown"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn the_length_may_be_said_in_tokens_and_epochs() {
    let steps = |more: &[&str]| {
        json(&[&["plan", "job.toml", "--gpu=l4", "--json"], more].concat())["base"]["cost"]["steps"].as_u64()
    };
    // 24 rows of 512 tokens a step.
    assert_eq!(steps(&["--train-tokens=12288000"]), Some(1000));
    assert_eq!(steps(&["--train-rows=2400", "--num-train-epochs=2"]), Some(200));
    assert_eq!(tonnage(&["plan", "job.toml", "--max-steps=1", "--train-tokens=1"]).status.code(), Some(2));
}

#[test]
fn a_written_job_is_the_job_that_was_planned() {
    let path = std::env::temp_dir().join(format!("tonnage-plan-{}.toml", std::process::id()));
    let path = path.to_str().unwrap();
    let plan = json(&["plan", "job.toml", "--gpu=8GiB,sm_90", "--json", "--write", path]);
    let written = json(&["estimate", path, "--json"]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(written["total_bytes"], plan["together"]["total_bytes"]);
    assert_eq!(written["gpu"]["usable_bytes"], 8u64 << 30);
}

/// The same of a search: its job file names GPU, ranks and remedies of the way that was chosen.
#[test]
fn a_written_search_is_the_way_that_was_chosen() {
    let path = std::env::temp_dir().join(format!("tonnage-way-{}.toml", std::process::id()));
    let path = path.to_str().unwrap();
    let search = ["--gpus=l4,t4", "--counts=2", "--budget=100", "--json", "--write", path];
    let found = json(&[&["plan", "job.toml", "--max-steps=1000"][..], &search].concat());
    let way = &found["ways"][found["chosen"].as_u64().unwrap() as usize];
    let written = json(&["estimate", path, "--json"]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(written["gpu"]["id"], way["gpu"]);
    assert_eq!(written["gpus"][0]["total_bytes"], way["total_bytes"]);
}

/// Each remedy alone, applied by hand, needs what the plan says of it.
#[test]
fn a_remedy_saves_what_the_plan_says() {
    let plan = json(&["plan", "job.toml", "--gpu=8GiB,sm_90", "--json"]);
    let remedies = plan["remedies"].as_array().unwrap();
    assert!(remedies.len() > 4);
    for remedy in remedies {
        let changes = remedy["changes"].as_object().unwrap();
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let sets = changes.iter().map(|(key, value)| format!("{key}={}", text(value)));
        let mut args = vec!["estimate".to_owned(), "job.toml".to_owned(), "--gpu=8GiB,sm_90".to_owned()];
        args.extend(sets.flat_map(|set| ["--set".to_owned(), set]));
        args.push("--json".to_owned());
        let changed = json(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(changed["gpus"][0]["total_bytes"], remedy["total_bytes"], "{}", remedy["name"]);
    }
}

/// A line of the CSV for each configuration of the JSON, with the same figures.
#[test]
fn a_suite_says_the_same_as_csv_and_as_json() {
    let path = std::env::temp_dir().join(format!("tonnage-suite-{}.csv", std::process::id()));
    let suite = json(&["cost", "--suite", SUITE, "--price=2", "--json", "--csv", path.to_str().unwrap()]);
    let csv = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let rows = suite["configurations"].as_array().unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column =
        |name: &str| head.iter().position(|column| *column == name).unwrap_or_else(|| panic!("{name}: {head:?}"));
    for (line, row) in csv.lines().skip(1).zip(rows) {
        assert!(line.starts_with(row["name"].as_str().unwrap()) || line.starts_with('"'), "{line}");
        let fields: Vec<&str> = line.rsplit(',').collect();
        let of = |name: &str| fields[head.len() - 1 - column(name)];
        assert_eq!(of("total_bytes"), row["total_bytes"].to_string(), "{line}");
        assert_eq!(of("verdict"), row["verdict"].as_str().unwrap(), "{line}");
    }
}

#[test]
fn a_search_says_with_its_exit_code_whether_there_is_a_way() {
    let code = |more: &[&str]| {
        let args = [&["plan", "job.toml", "--max-steps=1000", "--gpus=l4,t4", "--counts=1"], more].concat();
        tonnage(&args).status.code()
    };
    assert_eq!(code(&["--budget=100"]), Some(0));
    assert_eq!(code(&["--budget=0.0001"]), Some(1));
    assert_eq!(code(&["--budget=none"]), Some(2));
}

#[test]
fn a_suite_adds_up_and_its_factors_are_counted() {
    let suite = json(&["cost", "--suite", SUITE, "--price=2", "--json"]);
    let rows = suite["configurations"].as_array().unwrap();
    let factor = |name: &str| {
        let row = rows.iter().find(|row| row["name"].as_str().unwrap().contains(name)).unwrap();
        row["factor"].as_f64().unwrap()
    };
    assert_eq!((factor("baseline"), factor("augmentation")), (1.0, 1.0));
    assert!((factor("hierarchical 4x4") - 2.75).abs() < 0.03 && (factor("H_cycles=1 L_cycles=1") - 0.5).abs() < 0.01);
    let times = |row: &serde_json::Value, key: &str| {
        row["cost"][key]["typical"].as_f64().unwrap() * row["count"].as_f64().unwrap()
    };
    let dollars: f64 = rows.iter().map(|row| times(row, "dollars")).sum();
    assert!((suite["total"]["dollars"]["typical"].as_f64().unwrap() - dollars).abs() < 1e-6);
    assert_eq!(suite["total"]["runs"], 20);
}

#[test]
fn examples_in_the_help_run() {
    for name in ["plan", "cost"] {
        let help = String::from_utf8(tonnage(&[name, "--help"]).stdout).unwrap();
        let examples = help.lines().filter_map(|line| line.trim().strip_prefix("tonnage "));
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut run = 0;
        // Those of billions of parameters take minutes without optimisation.
        for example in examples.filter(|line| line.contains("gpt2") || line.contains("hrm")) {
            let written = std::env::temp_dir().join(format!("tonnage-example-{}", std::process::id()));
            let example =
                example.replace("fits.toml", written.to_str().unwrap()).replace("suite.csv", written.to_str().unwrap());
            let args: Vec<&str> = example.split(' ').collect();
            let output = command(&args).current_dir(root).output().unwrap();
            assert!(output.status.code() != Some(2), "{example}: {}", String::from_utf8_lossy(&output.stderr));
            run += 1;
        }
        assert!(run > 0, "{name}");
    }
}

#[test]
fn an_empty_table_says_why() {
    let output = tonnage(&["plan", "gpt2", "--counts", "3,5", "--budget", "10", "--max-steps", "10", "--gpus", "h100"]);
    let screen = String::from_utf8_lossy(&output.stdout);
    for count in [3, 5] {
        let why = format!("left out: {count} GPUs: the 8 rows of a step do not divide by {count}");
        assert!(screen.contains(&why), "{screen}");
    }
    let args =
        ["plan", "gpt2", "--task", "generate", "--budget", "10", "--max-steps", "10", "--gpus", "h100", "--json"];
    let answer = json(&args);
    assert!(answer["left_out"][0].as_str().unwrap().contains("several are not simulated"), "{answer}");
}
