//! GPUs as people name them: of the catalog, written out, in a file of one's own, or the one in this machine.

use std::fs;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::gpu::{CatalogGpu, Gpu, GpuError, PriceKind, catalog, prices_of};
use tonnage_core::job::{JobError, NamedGpu};
use tonnage_core::limit::HAND_WRITTEN_BYTES;
use tonnage_run::bounded::read_text;
use tonnage_watch::nvml::{LiveGpu, live_gpus};

use crate::failure::Failure;

/// The word for the GPU of this machine.
pub const LIVE: &str = "live";
/// The variable that names another NVML than the driver's.
const NVML: &str = "TONNAGE_NVML_LIBRARY";
/// Where the driver tells of its GPUs.
const DRIVER: &str = "/proc/driver/nvidia/gpus";

/// The GPU that `name` means where it is a file or the one of this machine; `None` where the catalog must say.
pub fn special_gpu(name: &str) -> Option<Result<NamedGpu, Failure>> {
    let plain = |gpu: Gpu| NamedGpu { gpu, caveat: None };
    let name = name.trim();
    match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        _ if name.eq_ignore_ascii_case(LIVE) => Some(live_gpu()),
        Some("toml") => Some(from_file(name, Gpu::from_toml).map(plain)),
        Some("json") => Some(from_file(name, Gpu::from_json).map(plain)),
        _ => None,
    }
}

/// The GPU that `name` means.
pub fn gpu_named(name: &str) -> Result<Gpu, Failure> {
    special_gpu(name).map_or_else(|| Gpu::parse(name.trim()).map_err(unknown_gpu), |found| found.map(|own| own.gpu))
}

/// The GPUs of a list: names, `all` of the catalog, or those `priced` there.
pub fn gpus_named(names: &str) -> Result<Vec<Gpu>, Failure> {
    match names.trim().to_ascii_lowercase().as_str() {
        "all" => Ok(catalog_gpus(|_| true)),
        "priced" => Ok(catalog_gpus(|row| prices_of(&row.id, PriceKind::OnDemand).is_some())),
        _ => {
            let named: Result<Vec<Gpu>, Failure> =
                names.split(',').filter(|name| !name.trim().is_empty()).map(gpu_named).collect();
            let hint = "name them: `--gpus h100,a100-80`; `tonnage gpus` lists those that are known";
            named.and_then(|gpus| {
                if gpus.is_empty() { Err(Failure::bad_input("no GPU is named").with_hint(hint)) } else { Ok(gpus) }
            })
        }
    }
}

fn catalog_gpus(keep: impl Fn(&CatalogGpu) -> bool) -> Vec<Gpu> {
    catalog().iter().filter(|row| keep(row)).map(CatalogGpu::gpu).collect()
}

fn from_file(path: &str, read: impl Fn(&str) -> Result<Gpu, GpuError>) -> Result<Gpu, Failure> {
    let text = read_text(path, HAND_WRITTEN_BYTES).map_err(|error| Failure::about_file(path, &error))?;
    read(&text).map_err(|error| Failure::bad_input(format!("{path}: {error}")).with_hint(error.hint()))
}

/// The first GPU that the driver of this machine names: through NVML, which knows its memory as well, else in its files.
fn live_gpu() -> Result<NamedGpu, Failure> {
    let library = std::env::var_os(NVML).map(PathBuf::from);
    match live_gpus(library.as_deref()).ok().and_then(|gpus| gpus.into_iter().next()) {
        Some(live) => of_driver(&live),
        None => match known_models().first() {
            Some(model) => gpu_named(model).map(|gpu| NamedGpu { gpu, caveat: None }),
            None => Err(Failure::bad_input("no NVIDIA driver was found on this machine")
                .with_hint("name the GPU: `tonnage gpus` lists those that are known")),
        },
    }
}

/// What NVML tells of; of a GPU outside the catalog memory and kind are enough for an answer with a caveat.
fn of_driver(live: &LiveGpu) -> Result<NamedGpu, Failure> {
    match (Gpu::of_driver(&live.name, live.total_bytes), live.compute_capability) {
        (Ok(gpu), _) => Ok(NamedGpu { gpu, caveat: None }),
        (Err(GpuError::Unknown { .. } | GpuError::OtherMemory { .. } | GpuError::NoSlice { .. }), Some(capability)) => {
            let cores = live.cores.map(u64::from);
            let (gpu, caveat) = Gpu::outside_catalog(&live.name, live.total_bytes, capability, cores);
            Ok(NamedGpu { gpu, caveat: Some(caveat) })
        }
        (Err(error), _) => Err(unknown_gpu(error)),
    }
}

/// The models that the driver's files name.
fn known_models() -> Vec<String> {
    let folders = fs::read_dir(DRIVER).into_iter().flatten();
    let text = |folder: std::io::Result<fs::DirEntry>| fs::read_to_string(folder.ok()?.path().join("information")).ok();
    let mut models: Vec<String> =
        folders.filter_map(text).filter_map(|text| smi_model(&text).map(str::to_owned)).collect();
    models.small_sort();
    models
}

fn unknown_gpu(error: GpuError) -> Failure {
    Failure::from(JobError::new(error.to_string()).hint(error.hint()))
}

/// What the driver's text says in its line `Model:`.
fn smi_model(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("Model:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_text_names_a_model() {
        let text = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 44\nGPU UUID: \t GPU-0\n";
        assert_eq!(smi_model(text), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(gpu_named("NVIDIA H100 80GB HBM3").unwrap().id, "h100");
        assert_eq!(smi_model("IRQ: 44"), None);
    }

    #[test]
    fn lists_are_names_or_words() {
        let ids = |names: &str| gpus_named(names).unwrap().into_iter().map(|gpu| gpu.id).collect::<Vec<_>>();
        assert_eq!(ids("h100, l4"), ["h100", "l4"]);
        assert_eq!(ids("all").len(), catalog().len());
        assert!(ids("priced").len() < catalog().len() && ids("priced").contains(&"h200".to_owned()));
        assert_eq!(gpus_named(" , ").unwrap_err().problem, "no GPU is named");
        assert!(gpus_named("hh200").unwrap_err().hint.unwrap().contains("h200"));
    }
}
