//! What plan and status of a suite of ten thousand runs take, of the program itself; and the status of as many that were sent to SLURM,
//! while they wait, while the controller is silent, and once all have ended.
//!
//!     cargo run --release -p tonnage-suite --example large -- target/release/tonnage [RUNS]
//!
//! Writes below the system's folder for temporary files, and removes it again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tonnage_core::record::Outcome;
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::journal::{Ended, Event};
use tonnage_suite::plan::Plan;

/// Seeds of every configuration.
const SEEDS: usize = 100;
/// Tasks of an array.
const ARRAY: usize = 1000;
/// Peaks of memory are looked for so often.
const POLL: Duration = Duration::from_millis(1);

fn main() {
    let mut words = std::env::args().skip(1);
    let program = fs::canonicalize(words.next().expect("the program")).expect("the program");
    let runs: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let folder = std::env::temp_dir().join(format!("tonnage-large-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let rates: Vec<String> = (1..=runs.div_ceil(SEEDS)).map(|rate| format!("{rate}e-5")).collect();
    let suite = format!(
        "name = \"large\"\njob = \"gpt2\"\nseeds = {SEEDS}\ncommand = [\"true\", \"{{lr}}\", \"{{seed}}\"]\n[parameters]\nlr = 1e-3\n\
         [set]\ngpu = \"l4\"\nmax_steps = 100\n[[configuration]]\nlr = [{}]\n",
        rates.join(", ")
    );
    fs::write(folder.join("large.toml"), suite).expect("a suite");
    let planned = measured(&program, &folder, &["suite", "plan", "large.toml", "--gpus", "8", "--json"], "plan.json");
    println!("plan of {runs} runs: {planned}");
    let (suite, plan) = kept(&folder);
    let status = |what: &str| {
        let told = measured(&program, &folder, &["suite", "status", "large"], "status.txt");
        let said = fs::read_to_string(folder.join("status.txt")).unwrap_or_default();
        println!("status of {runs} runs, {what}: {told}\n  {}", said.lines().next().unwrap_or_default());
    };
    fill(&suite, &plan);
    status("half of them done");
    let batches = send(&suite, &plan);
    queue(&folder, &format!("cat <<'END'\n{}\nEND\n", waiting(&batches)));
    status("all in SLURM's queue");
    queue(&folder, "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n");
    status("SLURM silent");
    plan.runs.iter().for_each(|run| fs::write(suite.path.join("runs").join(&run.id).join("done"), "").expect("a mark"));
    status("all ended on SLURM since");
    fs::remove_dir_all(&folder).expect("removed");
}

/// The plan of the suite, in a folder of the suite's.
fn kept(folder: &Path) -> (SuiteFolder, Plan) {
    let text = fs::read(folder.join("plan.json")).expect("the plan");
    let answer: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let mut plan = Plan { suite: "large".to_owned(), ..Plan::default() };
    plan.configurations = serde_json::from_value(answer["configurations"].clone()).expect("configurations");
    for run in answer["runs"].as_array().expect("runs") {
        let name = run["configuration"].as_str();
        let at = plan.configurations.iter().position(|one| Some(one.name.as_str()) == name).expect("its configuration");
        let id = run["id"].as_str().expect("an identity").to_owned();
        let seed = run["seed"].as_u64().expect("a seed");
        plan.runs.push(tonnage_suite::plan::PlannedRun { id, configuration: at, seed });
    }
    let suite = SuiteFolder::new(&folder.join("home"), "large");
    suite.keep_plan(&plan).expect("kept");
    (suite, plan)
}

/// A suite's journal as a runner leaves it in the middle of its work.
fn fill(suite: &SuiteFolder, plan: &Plan) {
    let mut lines = String::new();
    for (at, run) in plan.runs.iter().enumerate().take(plan.runs.len() / 2) {
        let started =
            Event::Started { id: run.id.clone(), run: format!("run-{at}"), gpus: vec!["0".to_owned()], bytes: 5 };
        let end = Ended {
            outcome: if at % 50 == 0 { Outcome::Failed } else { Outcome::Succeeded },
            seconds: 60.0,
            measured_bytes: Some(4 << 30),
            predicted_bytes: Some(5 << 30),
            configuration: plan.planned_of(run).name.clone(),
            total_bytes: Some(6 << 30),
            ..Ended::default()
        };
        for event in [started, Event::Ended { id: run.id.clone(), end }] {
            let mut line = serde_json::to_value(event).expect("JSON");
            line["at_ms"] = (at * 1000).into();
            lines.push_str(&format!("{line}\n"));
        }
    }
    fs::write(suite.path.join("journal.log"), lines).expect("a journal");
}

/// All runs sent to SLURM and begun there, in arrays; the arrays' names.
fn send(suite: &SuiteFolder, plan: &Plan) -> Vec<(String, usize)> {
    fs::remove_file(suite.path.join("journal.log")).expect("removed");
    let mut batches = Vec::new();
    for (at, runs) in plan.runs.chunks(ARRAY).enumerate() {
        let (batch, ids) = (format!("b{at}"), runs.iter().map(|run| run.id.clone()).collect());
        let sending = Event::Submitting { batch: batch.clone(), link: 1, gpus: 1, metrics: Vec::new(), ids };
        let sent = Event::Submitted { batch: batch.clone(), link: 1, job: 1000 + at as u64 };
        suite.journal.append_all(vec![sending, sent]).expect("a journal");
        for (task, run) in runs.iter().enumerate() {
            let own = suite.path.join("runs").join(&run.id);
            fs::create_dir_all(&own).expect("a folder");
            let begin = format!(
                "{{\"event\":\"begin\",\"at\":5,\"job\":\"{}_{task}\",\"batch\":\"{batch}\",\"link\":1}}\n",
                1000 + at
            );
            fs::write(own.join("starts.log"), begin).expect("a file");
            fs::write(own.join("records.jsonl"), "{\"run\":{}}\n").expect("a file");
        }
        batches.push((batch, runs.len()));
    }
    batches
}

/// What `squeue --json` says of arrays that wait.
fn waiting(batches: &[(String, usize)]) -> serde_json::Value {
    let job = |(at, (batch, runs)): (usize, &(String, usize))| {
        serde_json::json!({
            "job_id": 1000 + at, "array_job_id": 1000 + at, "array_task_string": format!("0-{}", runs - 1),
            "job_state": "PENDING", "name": format!("large.{batch}"), "state_reason": "Priority",
        })
    };
    serde_json::json!({"errors": [], "jobs": batches.iter().enumerate().map(job).collect::<Vec<_>>()})
}

/// A `squeue` that does this, found first.
fn queue(folder: &Path, text: &str) {
    let path = folder.join("bin").join("squeue");
    fs::create_dir_all(folder.join("bin")).expect("a folder");
    fs::write(&path, format!("#!/bin/sh\n{text}")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made a program");
}

/// Runs the program; wall time, CPU time and the peak of its memory, in words.
fn measured(program: &Path, folder: &Path, words: &[&str], out: &str) -> String {
    let file = fs::File::create(folder.join(out)).expect("a file");
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).env("TONNAGE_HOME", folder.join("home")).stdout(file).stdin(Stdio::null());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.join("bin").display())).env("TONNAGE_SLURM_POLL_SECONDS", "0");
    let began = Instant::now();
    let mut child = command.spawn().expect("started");
    let (mut peak, mut cpu) = (String::new(), 0.0);
    while child.try_wait().expect("waited for").is_none() {
        let place = format!("/proc/{}", child.id());
        let status = fs::read_to_string(format!("{place}/status")).unwrap_or_default();
        if let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            line.trim().clone_into(&mut peak);
        }
        cpu = cpu_seconds(&fs::read_to_string(format!("{place}/stat")).unwrap_or_default()).max(cpu);
        std::thread::sleep(POLL);
    }
    format!("{:.2} s, {cpu:.2} s of CPU, {peak} at its peak", began.elapsed().as_secs_f64())
}

/// User and system time, from fields 14 and 15 of `/proc/PID/stat`, in hundredths of a second (proc_pid_stat(5)).
fn cpu_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(") ").map_or("", |parts| parts.1);
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
