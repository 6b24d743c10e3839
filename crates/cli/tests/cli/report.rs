//! `tonnage report`: the examples, the replication of SAPO, every format, hostile names, what cannot be read.

use std::fs;
use std::path::PathBuf;

use crate::{check, command, folder, json, tonnage};

const EXAMPLE: &str = "../../../../examples/experiment";
const REPLICATION: &str = "../../../../testdata/experiment/sapo-replication";

/// An empty folder of this test.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

fn stdout(args: &[&str]) -> String {
    let output = tonnage(args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_example_is_reported() {
    check("report", &["report", EXAMPLE]);
    check("report_markdown", &["report", EXAMPLE, "--markdown"]);
    check(
        "report_by_tokens",
        &["report", EXAMPLE, "--by", "generated-tokens", "--unpaired", "--metric", "reward/on_policy"],
    );
    check("help_report", &["report", "--help"]);
}

#[test]
fn the_replication_of_sapo_is_caught() {
    check("report_replication", &["report", REPLICATION]);
    let answer = json(&["report", REPLICATION, "--json"]);
    let blocks = answer["blocks"].as_array().expect("blocks");
    let checks =
        blocks.iter().find_map(|block| block.get("checks")).and_then(|checks| checks.as_array()).expect("checks");
    let refuting: Vec<&str> =
        checks.iter().filter(|flag| flag["severity"] == "refutes").filter_map(|flag| flag["check"].as_str()).collect();
    assert_eq!(refuting, ["reward floor", "identical configurations", "too few seeds"]);
    let cumulative = blocks.iter().find(|block| block["table"] == "cumulative").expect("a table");
    assert!(cumulative["note"].as_str().is_some_and(|note| {
        note.starts_with("NOT comparable with the paper's column: these are sums over a round's completions")
    }));
    let code = |args: &[&str]| tonnage(args).status.code();
    assert_eq!(code(&["report", REPLICATION, "--fail-on-check"]), Some(1));
    assert_eq!(code(&["report", EXAMPLE, "--fail-on-check"]), Some(0));
}

#[test]
fn what_cannot_be_answered_is_refused_with_the_way_out() {
    check("error_report_metric", &["report", EXAMPLE, "--metric", "accuracy"]);
    check("error_report_baseline", &["report", EXAMPLE, "--baseline", "8/0"]);
    check("error_report_axis", &["report", EXAMPLE, "--by", "gpu-hours"]);
    check("error_report_nothing", &["report", "no-such-experiment"]);
    check("error_report_no_metrics", &["report", "logs"]);
}

/// Every format of a folder whose names and texts try to be obeyed.
#[test]
fn hostile_names_are_text() {
    let evil =
        "<img src=x onerror=alert(1)>|`$(touch harmed)`</script><script>alert(2)</script>\u{1b}]0;x\u{7}\u{202e}";
    let root = scratch("hostile");
    for seed in 0..3 {
        let mut text = serde_json::json!({"record": "run", "format": 1, "configuration": evil, "seed": seed, "command": ["sh", "-c", evil], "gpu": evil, "versions": {evil: evil}, "suite_file": format!("```\n{evil}\n````")}).to_string() + "\n";
        for step in 0..12 {
            text += &(serde_json::json!({"record": "point", "step": step, "metrics": {evil: f64::from(step) * 0.1, format!("=cmd|{evil}"): 1.0}}).to_string() + "\n");
        }
        text += &(serde_json::json!({"record": "item", "item": evil, "kind": evil, "difficulty": evil, "samples": 2, "correct": 1, "failure": evil, "example": evil}).to_string() + "\n");
        fs::write(root.join(format!("{seed}.jsonl")), text).unwrap();
    }
    fs::write(root.join("=1+1&<b>.csv"), "step,loss\n1,2\nbroken\n").unwrap();
    let (shown, page) = (root.display().to_string(), root.join("page.html"));
    let run = |more: &[&str]| stdout(&[&["report", shown.as_str(), "--metric", evil], more].concat());
    let harmless = |text: &str| {
        assert!(!text.contains('\u{7}') && !text.contains('\u{202e}') && !text.contains("\u{1b}]"), "{text}")
    };
    harmless(&run(&[]));
    harmless(&run(&["--json"]));
    let markdown = run(&["--markdown", "--figures", root.join("figures").to_str().unwrap()]);
    harmless(&markdown);
    let outside: String = markdown.split("`````").step_by(2).collect();
    assert!(!outside.contains("<img") && !outside.contains("<script"), "{markdown}");
    run(&["--html", page.to_str().unwrap()]);
    let html = fs::read_to_string(&page).unwrap();
    harmless(&html);
    assert!(!html.contains("<script") && !html.contains("<img") && html.contains("&lt;script&gt;alert(2)"));
    let links = html.matches("http-equiv").count() + html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
    assert!(html.contains("default-src 'none'") && html.matches("http").count() == links);
    for figure in fs::read_dir(root.join("figures")).unwrap().flatten() {
        let bytes = fs::read(figure.path()).unwrap();
        let is_png = bytes.starts_with(b"\x89PNG");
        assert!(is_png || !String::from_utf8(bytes).unwrap().contains("<script"), "{figure:?}");
    }
    let csv = run(&["--csv"]);
    assert!(csv.lines().skip(1).all(|line| !line.starts_with(['=', '+', '@'])), "{csv}");
    assert!(!root.join("harmed").exists() && !PathBuf::from("harmed").exists());
}

#[test]
fn what_cannot_be_read_is_named() {
    let root = scratch("unreadable");
    fs::write(root.join("good_s1.csv"), "step,eval_acc\n1,0.5\n2,0.6\ntorn").unwrap();
    fs::write(root.join("bad.csv"), "1,2\n").unwrap();
    fs::write(root.join("run.wandb"), ":W&B").unwrap();
    fs::write(root.join("x.jsonl"), "not json\n").unwrap();
    fs::write(root.join("events.out.tfevents.1"), "no event file").unwrap();
    fs::write(root.join("trainer_state.json"), "{}").unwrap();
    std::os::unix::fs::symlink("/", root.join("round")).unwrap();
    let text = stdout(&["report", root.to_str().unwrap()]);
    for name in
        ["good_s1.csv", "bad.csv", "run.wandb", "x.jsonl", "events.out.tfevents.1", "trainer_state.json", "round"]
    {
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// Every kind of file that is read, in one folder each, gives the same three points.
#[test]
fn every_reader_reads_what_its_program_writes() {
    let root = scratch("readers");
    let put = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("csv/seed1/metrics.csv", "step,eval/acc,seconds\n1,0.25,1\n2,0.5,2\n3,0.75,3\n");
    put(
        "jsonl/seed1/log.jsonl",
        "{\"step\": 1, \"eval\": {\"acc\": 0.25}}\n{\"step\": 2, \"eval\": {\"acc\": 0.5}, \"grad\": NaN}\n{\"step\": 3, \"eval/acc\": 0.75}\n",
    );
    let state = r#"{"global_step": 3, "log_history": [{"step": 1, "eval/acc": 0.25, "epoch": 0.1}, {"step": 2, "eval/acc": 0.5}, {"step": 3, "eval/acc": 0.75, "loss": NaN}]}"#;
    put("trainer/seed1/checkpoint-3/trainer_state.json", state);
    put("trainer/seed1/trainer_state.json", state);
    put(
        "wandb/seed1/history.csv",
        "_step,_runtime,_timestamp,eval/acc\n1,1,1700000000,0.25\n2,2,1700000001,0.5\n3,3,1700000002,0.75\n",
    );
    put(
        "wandbjson/seed1/history.json",
        r#"[{"_step": 1, "eval/acc": 0.25}, {"_step": 2, "eval/acc": 0.5}, {"_step": 3, "eval/acc": "0.75", "_x": 1}, {"_step": 3, "eval/acc": 0.75}]"#,
    );
    put(
        "chart/chart.csv",
        "\"Step\",\"chart-seed1 - eval/acc\",\"chart-seed1 - eval/acc__MIN\",\"chart-seed1 - eval/acc__MAX\"\n1,0.25,0,1\n2,0.5,0,1\n3,0.75,0,1\n",
    );
    put("swarm/metrics.jsonl", &(1..4).map(|round| format!("{{\"timestamp\": 1.0, \"round\": {round}, \"stage\": 0, \"node_id\": \"w0\", \"experiment\": \"swarm\", \"eval/acc\": {}}}\n", f64::from(round) * 0.25)).collect::<String>());
    let records: String = (1..4)
        .map(|step| {
            format!(
                "{{\"record\": \"point\", \"step\": {step}, \"metrics\": {{\"eval/acc\": {}}}}}\n",
                f64::from(step) * 0.25
            )
        })
        .collect();
    put("records/a.jsonl", &format!("{{\"record\": \"run\", \"configuration\": \"records\", \"seed\": 1}}\n{records}"));
    let csv = stdout(&["report", root.to_str().unwrap(), "--metric", "eval/acc", "--csv"]);
    let mut seen: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').take(6).collect()).collect();
    seen.sort_unstable();
    let rows: Vec<String> = seen.iter().map(|row| row.join(",")).collect();
    let expected = ["chart", "csv", "jsonl", "records", "trainer", "wandb", "wandbjson"]
        .map(|name| format!("{name},1,0.75,0.75,3,3"));
    let swarm = "swarm,,0.75,0.75,3,3".to_owned();
    let all: Vec<String> = expected[..4].iter().cloned().chain([swarm]).chain(expected[4..].iter().cloned()).collect();
    assert_eq!(rows, all, "{csv}");
}

/// What `tonnage run` keeps today: memory, attempts, outcome; and the suite by its name.
#[test]
fn runs_of_tonnage_are_read() {
    let home = scratch("home");
    let run = home.join("suites/mine/seed1");
    fs::create_dir_all(&run).unwrap();
    let from = folder("data").join("records/older");
    for name in ["run.json", "events.jsonl"] {
        fs::copy(from.join(name), run.join(name)).unwrap();
    }
    fs::write(run.join("metrics.jsonl"), "{\"record\": \"point\", \"step\": 1, \"metrics\": {\"eval/acc\": 0.5}}\n")
        .unwrap();
    let output = command(&["report", "mine"]).env("TONNAGE_HOME", &home).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 run of 1 configuration") && text.contains("tonnage run"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Every command of docs/report.md that names our files runs.
#[test]
fn commands_of_the_page_run() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.md")).expect("the page");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let out = scratch("page");
    let commands: Vec<&str> = page.lines().map(str::trim).filter(|line| line.starts_with("tonnage report ")).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for line in commands {
        let line = line.split(" #").next().unwrap_or(line).split(" > ").next().unwrap_or(line).trim();
        let words: Vec<String> = line
            .split_whitespace()
            .skip(1)
            .map(|word| match word {
                "report.html" | "figures" => out.join(word).display().to_string(),
                word => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = command(&words).current_dir(root).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(out.join("report.html").exists() && out.join("figures").join("final.png").exists());
}
