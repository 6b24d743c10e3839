//! The catalog of GPUs: rows of `gpus.toml`, found by id, alias or NVML name.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Gpu, GpuError};
use crate::nearest::nearest;

/// The GPU of a job that names none: what most training clusters rent, and the device family (sm_90, 132
/// multiprocessors) that the simulation was checked on.
pub const DEFAULT_GPU: &str = "h100";

/// Names of accelerators people ask for that are not CUDA devices.
const NOT_CUDA: [&str; 5] = ["mi210", "mi250", "mi300", "gaudi", "tpu"];

static CATALOG: LazyLock<Vec<CatalogGpu>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        gpu: Vec<CatalogGpu>,
    }
    // The text is part of the program and a test reads it, so the empty catalog never happens.
    toml::from_str::<File>(include_str!("gpus.toml")).map_or_else(|_| Vec::new(), |file| file.gpu)
});

/// A row of the catalog; `gpus.toml` says what each figure means.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogGpu {
    /// The id to name it by: lowercase, `-` between parts.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// Other ids for it.
    pub aliases: Vec<String>,
    /// The exact names that NVML reports.
    pub nvml: Vec<String>,
    /// The nameplate, in GB; no calculation uses it.
    pub sold_gb: u64,
    /// The total that nvidia-smi prints, in MiB.
    pub smi_mib: u64,
    /// PyTorch's device total in bytes, the low end across drivers.
    pub usable_bytes: u64,
    /// The CUDA context in bytes, where measured.
    #[serde(default)]
    pub context_bytes: Option<u64>,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u64,
    /// Memory bandwidth, in GB/s.
    pub bandwidth_gb_s: u64,
    /// Dense matrix rates.
    pub tflops: Tflops,
    /// How it reaches other GPUs.
    pub interconnect: String,
    /// Where the figures come from.
    pub source: String,
}

/// Dense peak rates in TFLOP/s; `None` where the hardware lacks the type.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tflops {
    /// bf16 tensor cores.
    #[serde(default)]
    pub bf16: Option<f64>,
    /// fp16 tensor cores.
    pub fp16: f64,
    /// TF32 tensor cores.
    #[serde(default)]
    pub tf32: Option<f64>,
    /// fp32 CUDA cores.
    pub fp32: f64,
}

impl CatalogGpu {
    /// What the simulation needs of it.
    pub fn gpu(&self) -> Gpu {
        Gpu {
            id: self.id.clone(),
            name: self.name.clone(),
            usable_bytes: self.usable_bytes,
            context_bytes: self.context_bytes,
            compute_capability: self.compute_capability,
            multiprocessors: self.multiprocessors,
        }
    }

    fn is_called(&self, plain_name: &str) -> bool {
        self.id == plain_name
            || self.aliases.iter().any(|alias| alias == plain_name)
            || self.nvml.iter().any(|name| plain(name) == plain_name)
    }
}

/// All rows, in the order of the file.
pub fn catalog() -> &'static [CatalogGpu] {
    &CATALOG
}

/// The row called `name`: its id, an alias or its NVML name, whatever the case.
///
/// # Errors
/// When no row or more than one goes by the name.
pub fn find(name: &str) -> Result<&'static CatalogGpu, GpuError> {
    let plain_name = plain(name);
    if let Some(row) = catalog().iter().find(|row| row.is_called(&plain_name)) {
        return Ok(row);
    }
    let family = format!("{plain_name}-");
    let candidates: Vec<_> = catalog().iter().map(|row| row.id.as_str()).filter(|id| id.starts_with(&family)).collect();
    if !candidates.is_empty() {
        return Err(GpuError::Ambiguous { name: name.to_owned(), candidates });
    }
    let name = name.to_owned();
    match NOT_CUDA.iter().any(|other| plain_name.contains(other)) {
        true => Err(GpuError::NotCuda { name }),
        false => Err(GpuError::Unknown { nearest: nearest(&plain_name, names()), name }),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    catalog().iter().flat_map(|row| [row.id.as_str()].into_iter().chain(row.aliases.iter().map(String::as_str)))
}

/// `NVIDIA A100-SXM4-80GB` as `a100-sxm4-80`: what differs between ids, NVML names and what people type is dropped.
fn plain(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    let words = lower.split([' ', '-', '_']).filter(|word| !matches!(*word, "nvidia" | "tesla" | "geforce" | ""));
    let words: Vec<_> = words
        .map(|word| match word.strip_suffix("gb") {
            Some(size) if !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()) => size,
            _ => word,
        })
        .collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB};

    #[test]
    fn every_row_is_plausible_and_sourced() {
        assert!(toml::from_str::<toml::Value>(include_str!("gpus.toml")).is_ok());
        assert!(catalog().len() >= 24);
        for row in catalog() {
            let nameplate = row.sold_gb * 1_000_000_000;
            let (major, minor) = row.compute_capability;
            assert!(row.usable_bytes.is_multiple_of(MIB), "{}", row.id);
            assert!(row.usable_bytes < row.smi_mib * MIB, "{}", row.id);
            assert!(row.usable_bytes > nameplate / 100 * 95 && row.usable_bytes < row.sold_gb * GIB, "{}", row.id);
            assert!((7..=12).contains(&major) && minor < 10, "{}", row.id);
            assert!((40..=200).contains(&row.multiprocessors), "{}", row.id);
            assert!((300..=8000).contains(&row.bandwidth_gb_s), "{}", row.id);
            assert!(row.tflops.fp16 >= row.tflops.fp32 && row.tflops.fp32 > 5.0, "{}", row.id);
            assert_eq!(row.tflops.bf16.is_some(), major >= 8, "{}: bf16 needs compute capability 8.0", row.id);
            assert!(row.source.contains("usable"), "{}: say where the usable bytes come from", row.id);
            assert_eq!(plain(&row.id), row.id);
        }
    }

    #[test]
    fn every_name_means_one_row() {
        for row in catalog() {
            for name in [&row.id].into_iter().chain(&row.aliases).chain(&row.nvml) {
                let called: Vec<_> = catalog().iter().filter(|other| other.is_called(&plain(name))).collect();
                assert_eq!(called, [row], "{name}");
                assert_eq!(find(&name.to_uppercase()).unwrap().id, row.id);
            }
        }
    }

    #[test]
    fn finds_names_as_people_type_them() {
        let cases = [
            ("A100 80GB", "a100-80"),
            ("NVIDIA A100-SXM4-40GB", "a100-40"),
            ("a100-80gb-pcie", "a100-80-pcie"),
            ("H100", "h100"),
            ("h100_sxm", "h100"),
            ("rtx 4090", "rtx-4090"),
            ("GeForce RTX 3090", "rtx-3090"),
            ("tesla t4", "t4"),
        ];
        for (typed, id) in cases {
            assert_eq!(find(typed).map(|row| row.id.as_str()), Ok(id), "{typed}");
        }
    }

    #[test]
    fn says_what_it_cannot_find() {
        let cases = [
            ("a100", "`a100` may be a100-40-pcie or a100-40 or a100-80-pcie or a100-80", "say which"),
            ("v100", "`v100` may be v100-16 or v100-16-pcie or v100-32", "say which"),
            ("h1000", "unknown GPU `h1000`", "did you mean `h100`?"),
            ("MI300X", "`MI300X` is no CUDA device", "name a GPU of the catalog"),
            ("potato", "unknown GPU `potato`", "name a GPU of the catalog"),
            ("", "unknown GPU ``", "name a GPU of the catalog"),
        ];
        for (typed, problem, hint) in cases {
            let error = find(typed).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint().starts_with(hint), "{}", error.hint());
        }
    }

    #[test]
    fn the_default_is_in_the_catalog() {
        assert!(find(DEFAULT_GPU).is_ok());
    }
}
