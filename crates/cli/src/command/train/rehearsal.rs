//! `tonnage train --rehearse`: a few steps of the very program over a phantom GPU, its peaks beside the estimate's.

use std::ffi::OsString;

use serde_json::{Value, json};
use tonnage_core::gpu::Gpu;
use tonnage_core::plan::fit::verdict_on;
use tonnage_run::bounded::read_text;
use tonnage_run::private::TemporaryFolder;
use tonnage_run::rehearse::{Options, rehearse_with};
use tonnage_torch::{Device, Found};

use super::super::rehearse::failure;
use super::job::TrainJob;
use super::shown;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// The state appears in the first step, from the second on they allocate the same; the third shows that it stays.
const STEPS: u64 = 3;
/// So many times the GPU's memory has the phantom, so that a job that does not fit shows its need.
const ROOMIER: u64 = 8;
/// A record of peaks is one line.
const PEAKS_BYTES: u64 = 1 << 16;

/// Runs the steps and prints both.
///
/// # Errors
/// When this PyTorch has no CUDA, the job cannot be estimated, or the trainer fails.
pub fn rehearse(job: &TrainJob, found: &Found, as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    if !found.has_cuda() {
        return Err(Failure::input(
            "a rehearsal needs a PyTorch with CUDA: the phantom stands for the driver under it",
        )
        .hint("no GPU is needed: `pip install torch` on Linux brings CUDA; --torch names another PyTorch"));
    }
    let spec = &job.resolved.job;
    let verdict = verdict_on(spec, &spec.gpu)?;
    let folder = TemporaryFolder::make().map_err(|error| Failure::file("a temporary folder", &error))?;
    let words = job.command(found, Device::Cuda(0), &job.output(), false)?;
    let set = ["env".to_owned(), format!("TONNAGE_ATTEMPT_DIR={}", folder.path().display())];
    let steps = ["--phantom-steps".to_owned(), STEPS.to_string()];
    let options = Options {
        command: set.into_iter().chain(words).chain(steps).map(OsString::from).collect(),
        gpu: Gpu { usable_bytes: spec.gpu.usable_bytes.saturating_mul(ROOMIER), ..spec.gpu.clone() },
        asked: vec![spec.gpu.clone()],
        gpus: 1,
        steps: None,
        seconds: None,
        steady: None,
        generate_length: None,
        patience: 60,
        stdout_to_stderr: true,
    };
    let rehearsed = rehearse_with(&options, &|name| std::env::var_os(name)).map_err(failure)?;
    if rehearsed.rehearsal.exit_code != Some(0) {
        let problem = "the trainer failed over the phantom; its own words stand above";
        return Err(Failure { exit: Exit::No, ..Failure::input(problem) });
    }
    let seen = peaks(folder.path()).ok_or_else(|| Failure::input("the trainer left no peaks"))?;
    let calculated = (verdict.peak_allocated_bytes, verdict.peak_reserved_bytes);
    print(calculated, seen, as_json, terminal)?;
    Ok(if verdict.fits() { Exit::Done } else { Exit::No })
}

fn peaks(folder: &std::path::Path) -> Option<(u64, u64)> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let is_peaks = |name: &str| name.starts_with("allocator-") && name.ends_with(".json");
    let path = entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_peaks))?;
    let value: Value = serde_json::from_str(&read_text(path, PEAKS_BYTES).ok()?).ok()?;
    Some((value.get("peak_allocated_bytes")?.as_u64()?, value.get("peak_reserved_bytes")?.as_u64()?))
}

fn print(calculated: (u64, u64), seen: (u64, u64), as_json: bool, terminal: &Terminal) -> Result<(), Failure> {
    let peaks =
        |(allocated, reserved): (u64, u64)| json!({"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved});
    if as_json {
        let answer =
            json!({"version": tonnage_report::VERSION, "predicted": peaks(calculated), "rehearsed": peaks(seen)});
        return terminal.print(&format!("{answer:#}\n"));
    }
    let row = |name: &str, predicted: u64, seen: u64| {
        let difference = (seen as f64 / predicted.max(1) as f64 - 1.0) * 100.0;
        format!("  {name:<12}{:>12}{:>12}{difference:>+9.2} %\n", shown(predicted), shown(seen))
    };
    let head = format!("  {:<12}{:>12}{:>12}\n", "peak", "predicted", "rehearsed");
    terminal.print(&(head + &row("allocated", calculated.0, seen.0) + &row("reserved", calculated.1, seen.1)))
}
