//! `tonnage train --rehearse`: a few steps of the very program over a phantom GPU, its peaks beside the estimate's.

use std::ffi::OsString;
use tonnage_core::small_sort::SmallSort;

use serde_json::{Value, json};
use tonnage_core::alloc::AllocatorConfig;
use tonnage_core::gpu::Gpu;
use tonnage_core::plan::fit::verdict_on;
use tonnage_run::bounded::read_text;
use tonnage_run::private::TemporaryFolder;
use tonnage_run::rehearse::{Options, Rehearsed, rehearse_with};
use tonnage_torch::{Device, Found};

use super::super::rehearse::rehearse_failure;
use super::job::TrainJob;
use super::shown_bytes;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// The state appears in the first step, from the second on they allocate the same; the third shows that it stays. A job of which more
/// are simulated, as the guide's small GPT, has as many.
const STEPS: u64 = 3;
/// So many times the GPU's memory has the phantom, so that a job that does not fit shows its need.
const ROOMIER: u64 = 8;
/// A record of peaks is one line.
const PEAKS_BYTES: u64 = 1 << 16;

/// Whether `tonnage rehearse` sees anything of a training there.
///
/// # Errors
/// On the CPU, and where this PyTorch has no CUDA.
pub fn check_device(found: &Found, device: Device) -> Result<(), Failure> {
    check_cuda(found)?;
    match device {
        Device::Cuda(_) => Ok(()),
        Device::Cpu => Err(Failure::bad_input("a training on the CPU has nothing to rehearse on a GPU")
            .with_hint("leave out --device cpu and use_cpu")),
    }
}

fn check_cuda(found: &Found) -> Result<(), Failure> {
    if found.has_cuda() {
        return Ok(());
    }
    Err(Failure::bad_input("a rehearsal needs a PyTorch with CUDA: the phantom stands for the driver under it")
        .with_hint("no GPU is needed: `pip install torch` on Linux brings CUDA; --torch names another PyTorch"))
}

/// Runs the steps and prints both.
///
/// # Errors
/// When this PyTorch has no CUDA, the job cannot be estimated, or the trainer fails.
pub fn rehearse_training(job: &TrainJob, found: &Found, as_json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    check_cuda(found)?;
    let spec = &job.resolved.job;
    let verdict = verdict_on(spec, &spec.gpu)?;
    let ranks = spec.parallel.world_size.max(1);
    let folder = TemporaryFolder::make().map_err(|error| Failure::about_file("a temporary folder", &error))?;
    let words = job.trainer_command(found, Device::Cuda(0), &job.output_folder(), false)?;
    let mut set = vec!["env".to_owned(), format!("TONNAGE_ATTEMPT_DIR={}", folder.path().display())];
    if spec.allocator != AllocatorConfig::default() {
        // The name that all versions read.
        set.push(format!("PYTORCH_CUDA_ALLOC_CONF={}", spec.allocator));
    }
    let steps = ["--phantom-steps".to_owned(), STEPS.max(u64::from(spec.steps)).to_string()];
    let options = Options {
        command: set.into_iter().chain(words).chain(steps).map(OsString::from).collect(),
        gpu: Gpu { usable_bytes: spec.gpu.usable_bytes.saturating_mul(ROOMIER), ..spec.gpu.clone() },
        asked: vec![spec.gpu.clone()],
        gpus: u32::try_from(ranks).unwrap_or(u32::MAX),
        steps: None,
        seconds: None,
        steady: None,
        generate_length: None,
        patience: 60,
        worst_experts: false,
        longest: false,
        row_length: None,
        values: true,
        stdout_to_stderr: true,
    };
    let rehearsed =
        rehearse_with(&options, &|name| std::env::var_os(name)).and_then(Rehearsed::whole).map_err(rehearse_failure)?;
    if rehearsed.rehearsal.exit_code != Some(0) {
        let problem = "the trainer failed over the phantom; its own words stand above";
        return Err(Failure { exit: Exit::No, ..Failure::bad_input(problem) });
    }
    let seen = read_peaks(folder.path())?;
    if seen.len() as u64 != ranks {
        return Err(Failure::bad_input(format!("of {ranks} ranks {} left their peaks", seen.len())));
    }
    let calculated = Peaks { rank: 0, allocated: verdict.peak_allocated_bytes, reserved: verdict.peak_reserved_bytes };
    print_peaks(&calculated, &seen, as_json, terminal)?;
    Ok(if verdict.fits() { Exit::Done } else { Exit::No })
}

/// What the allocator of a rank held at most. Bytes.
struct Peaks {
    rank: u64,
    allocated: u64,
    reserved: u64,
}

/// Those that each rank left, in their order.
fn read_peaks(folder: &std::path::Path) -> Result<Vec<Peaks>, Failure> {
    let failed = |error: &std::io::Error| Failure::about_file(&folder.display().to_string(), error);
    let is_peaks = |name: &str| name.starts_with("allocator-") && name.ends_with(".json");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| failed(&error))?.flatten() {
        if !entry.file_name().to_str().is_some_and(is_peaks) {
            continue;
        }
        let text = read_text(entry.path(), PEAKS_BYTES).map_err(|error| failed(&error))?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let peaks = number("rank").zip(number("peak_allocated_bytes").zip(number("peak_reserved_bytes")));
        let (rank, (allocated, reserved)) =
            peaks.ok_or_else(|| Failure::bad_input(format!("{} holds no peaks", entry.path().display())))?;
        all.push(Peaks { rank, allocated, reserved });
    }
    all.small_sort_by_key(|peaks| peaks.rank);
    Ok(all)
}

fn print_peaks(calculated: &Peaks, seen: &[Peaks], as_json: bool, terminal: &Terminal) -> Result<(), Failure> {
    let largest = seen.iter().max_by_key(|peaks| peaks.reserved).unwrap_or(calculated);
    if as_json {
        let in_json =
            |peaks: &Peaks| json!({"peak_allocated_bytes": peaks.allocated, "peak_reserved_bytes": peaks.reserved});
        let mut answer = json!({
            "version": tonnage_report::VERSION,
            "predicted": in_json(calculated),
            "rehearsed": in_json(largest),
        });
        if seen.len() > 1 {
            answer["rehearsed_ranks"] = seen.iter().map(in_json).collect();
        }
        return terminal.print(&format!("{answer:#}\n"));
    }
    let row = |name: &str, predicted: u64, seen: u64| {
        let difference = (seen as f64 / predicted.max(1) as f64 - 1.0) * 100.0;
        format!("  {name:<18}{:>12}{:>12}{difference:>+9.2} %\n", shown_bytes(predicted), shown_bytes(seen))
    };
    let mut text = format!("  {:<18}{:>12}{:>12}\n", "peak", "predicted", "rehearsed");
    for peaks in seen {
        let of = if seen.len() > 1 { format!(", rank {}", peaks.rank) } else { String::new() };
        text += &row(&format!("allocated{of}"), calculated.allocated, peaks.allocated);
        text += &row(&format!("reserved{of}"), calculated.reserved, peaks.reserved);
    }
    terminal.print(&text)
}
