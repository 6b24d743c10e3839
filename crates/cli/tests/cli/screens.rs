//! Screens for people. The jobs are reference cases whose figures equal PyTorch's to the byte.

use super::{check, command, tonnage};

#[test]
fn help() {
    check("help", &["--help"]);
    check("help_estimate", &["estimate", "-h"]);
    check("help_run", &["run", "-h"]);
    check("help_probe", &["probe", "-h"]);
    check("help_stop", &["stop", "-h"]);
    check("help_trace_replay", &["trace", "replay", "--help"]);
}

#[test]
fn estimates() {
    check("estimate_gpt2", &["estimate", "gpt2", "-b", "1", "-s", "128"]);
    check("estimate_qwen", &["estimate", "qwen2.5-0.5b", "-b4", "--precision=bf16", "--gpu=l4", "--top=6"]);
    check("estimate_does_not_fit", &["estimate", "job.toml", "--gpu", "8GiB,sm_90"]);
    check("estimate_tight", &["estimate", "job.toml", "--gpu", "13600MiB,sm_90,multiprocessors=132"]);
    check("estimate_timeline", &["estimate", "job.toml", "--timeline", "--gpu=a100-40"]);
    check("estimate_legacy", &["estimate", "job.toml", "--legacy", "--gpu=a100-40"]);
    check("estimate_explain", &["estimate", "config.json", "-b", "2", "-s", "64", "--explain"]);
    check("estimate_from", &["estimate", "--from", "sft.yaml", "--from", "accelerate.yaml", "--gpu", "a100-80"]);
    check("estimate_from_refused", &["estimate", "--from", "trl", "sft.yaml", "gpt2", "--from", "qlora.yaml"]);
    check("compare", &["estimate", "job.toml", "--compare", "micro_batch_size=8,16,24", "--compare", "sdpa,eager"]);
}

#[test]
fn lists() {
    check("models_llama", &["models", "llama-3"]);
    check("gpus_a100", &["gpus", "a100"]);
    check("keys_precision", &["keys", "precision"]);
}

#[test]
fn a_narrow_terminal_is_not_overrun() {
    for columns in [40, 60, 80, 100] {
        let args = ["estimate", "qwen2.5-0.5b", "--timeline", "--top=20"];
        let output = command(&args).env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // A word that is longer than the terminal stays whole.
        let lines = text.lines().filter(|line| line.trim().contains(' '));
        let longest = lines.map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= columns, "{longest} of {columns} columns\n{text}");
    }
}

#[test]
fn short_help_fits_a_screen_and_begins_with_what_most_jobs_have() {
    for name in ["estimate", "fit", "plan", "cost"] {
        let short = String::from_utf8(tonnage(&[name, "-h"]).stdout).unwrap();
        let long = String::from_utf8(tonnage(&[name, "--help"]).stdout).unwrap();
        assert!(short.lines().count() <= 50, "{name}: {} lines\n{short}", short.lines().count());
        let place = |flag: &str| short.find(flag).unwrap_or_else(|| panic!("{name}: {flag}\n{short}"));
        assert!(place("--micro-batch-size") < place("--parallel") && place("--gpu") < place("--json"), "{short}");
        assert!(!short.contains("--swarm-nodes") && long.contains("--swarm-nodes") && long.contains("Exit codes"));
        assert!(short.contains("--help"), "{short}");
    }
}

#[test]
fn a_plain_locale_gets_ascii() {
    let output = command(&["estimate", "gpt2", "--timeline", "--top"]).env("LC_ALL", "C").output().unwrap();
    assert!(output.stdout.is_ascii(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn colours_only_where_asked_for() {
    let plain = tonnage(&["estimate", "gpt2"]).stdout;
    assert!(!plain.contains(&0x1b));
    let forced = command(&["estimate", "gpt2"]).env("CLICOLOR_FORCE", "1").output().unwrap().stdout;
    assert!(forced.contains(&0x1b));
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let suite = super::folder("../../../examples/suites/hrm-arc.toml");
    let suite = suite.to_str().unwrap();
    let commands: [&[&str]; 15] = [
        &["keys"],
        &["models"],
        &["gpus"],
        &["estimate", "gpt2"],
        &["estimate", "llama-3.1-70b", "--lora-r", "8"],
        &["estimate", "gpt2", "--gpu", "l4"],
        &["estimate", "gpt2", "--explain"],
        &["estimate", "gpt2", "--compare", "precision=fp32,bf16,amp-bf16"],
        &["fit", "gpt2", "--gpus", "l4,t4"],
        &["fit", "gpt2", "--gpus", "l4,t4", "--solve", "seq_len"],
        &["plan", "gpt2", "--gpu", "t4"],
        &["cost", "gpt2", "--gpu", "l4", "--max-steps", "100"],
        &["cost", "--suite", suite],
        &["fit", "gpt2", "--no-largest"],
        &["plan", "gpt2", "--max-steps", "10", "--gpus", "h100", "--budget", "10"],
    ];
    for width in [40, 60, 80, 120, 200] {
        for words in commands {
            let output = command(words).env("COLUMNS", width.to_string()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_long = |line: &&str| line.chars().count() > width && line.trim().contains(' ');
            let long: Vec<&str> = text.lines().filter(is_long).collect();
            assert!(long.is_empty(), "{width}: {words:?}: {long:#?}");
        }
    }
}
