//! How long a report of ten thousand runs takes, how much memory, and how large its page is.
//!
//!     cargo run --release -p tonnage-experiment --example measure -- FOLDER [RUNS] [POINTS] [jsonl|csv]
//!
//! FOLDER is filled if it is not there. Writes nothing else.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use tonnage_core::random::SplitMix64;
use tonnage_experiment::experiment::{Experiment, Question};
use tonnage_experiment::render::html;
use tonnage_experiment::section::{Made, make_document};
use tonnage_experiment::source::{Limits, gather_runs};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(words.first().map_or("measured", String::as_str));
    let count = |at: usize, otherwise: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(otherwise);
    let (runs, points) = (count(1, 10_000), count(2, 1_000));
    if !folder.exists() {
        fill(folder, runs, points, words.get(3).is_some_and(|word| word == "csv"));
    }
    let began = Instant::now();
    let mut gathered = gather_runs(folder, &Limits::default()).expect("the folder is read");
    let read = began.elapsed();
    let all = Experiment::new(std::mem::take(&mut gathered.runs), &Question::default()).expect("a metric");
    let (document, flags) = make_document(&all, &gathered, &Made::default());
    let page = html(&document);
    let whole = began.elapsed();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    println!(
        "{} runs of {} configurations, {} flags: read in {:.2} s, all in {:.2} s; {:.2} s of CPU; page {:.2} MB; {peak}",
        all.runs.len(),
        all.configurations.len(),
        flags.len(),
        read.as_secs_f64(),
        whole.as_secs_f64(),
        cpu_seconds(&stat),
        page.len() as f64 / 1e6
    );
}

/// User and system time of all threads, from fields 14 and 15 of `/proc/PID/stat`, in hundredths of a second (proc_pid_stat(5)).
fn cpu_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(") ").map_or("", |parts| parts.1);
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// A hundred configurations, a hundredth of the runs each.
fn fill(folder: &Path, runs: usize, points: usize, is_csv: bool) {
    let mut random = SplitMix64::new(1);
    for run in 0..runs {
        let (configuration, seed) = (run % 100, run / 100);
        let of = folder.join(format!("configuration-{configuration:02}"));
        fs::create_dir_all(&of).expect("a folder");
        let mut text = if is_csv {
            "step,eval/accuracy\n".to_owned()
        } else {
            format!(
                "{{\"record\":\"run\",\"format\":1,\"configuration\":\"configuration-{configuration:02}\",\"seed\":{seed}}}\n"
            )
        };
        for step in 0..points {
            let noise = random.index_below(10_000) as f64 / 1e5;
            let value = 0.5 + 0.3 * step as f64 / points as f64 + noise + configuration as f64 * 1e-3;
            let _ = match is_csv {
                true => writeln!(text, "{step},{value:.5}"),
                false => writeln!(
                    text,
                    "{{\"record\":\"point\",\"step\":{step},\"metrics\":{{\"eval/accuracy\":{value:.5}}}}}"
                ),
            };
        }
        fs::write(of.join(format!("seed{seed}.{}", if is_csv { "csv" } else { "jsonl" })), text).expect("a file");
    }
}
