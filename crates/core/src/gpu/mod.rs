//! The GPU a job runs on: what the simulation asks of it, and the catalog of known GPUs.

mod catalog;
mod custom;
mod file;
mod mig;
mod price;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::MIB;

pub use tonnage_tensor::Device;

pub use catalog::{CatalogGpu, DEFAULT_GPU, Tflops, catalog, find_gpu};
pub use mig::{MigProfile, mig_profiles};
pub use price::{Price, PriceKind, PriceRow, Prices, price_rows, prices_of};

/// A GPU as the simulation and the verdict see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Catalog id (`a100-80`).
    pub id: String,
    /// The name for people (`NVIDIA A100 80GB`).
    pub name: String,
    /// Bytes that PyTorch reports as the device's total (the low end across drivers), not the nameplate.
    pub usable_bytes: u64,
    /// Bytes the CUDA context takes outside the allocator; `None` when nobody measured it.
    pub context_bytes: Option<u64>,
    /// Compute capability, major and minor: 9.0 is `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors; they size some reductions' scratch space.
    pub multiprocessors: u64,
    /// Whether the host takes from the same memory, as on a DGX Spark.
    #[serde(default)]
    pub shares_host_memory: bool,
    /// How fast it is; `None` of a GPU of which only the memory is known.
    #[serde(default)]
    pub rates: Option<Rates>,
}

/// [`DEFAULT_GPU`], whose kernels are assumed where nobody names one.
impl Default for Gpu {
    fn default() -> Self {
        // Were it not in the catalog (a test says that it is), nothing would fit it.
        const WITHOUT_MEMORY: Gpu = Gpu {
            id: String::new(),
            name: String::new(),
            usable_bytes: 0,
            context_bytes: None,
            compute_capability: (0, 0),
            multiprocessors: 0,
            rates: None,
            shares_host_memory: false,
        };
        find_gpu(DEFAULT_GPU).map_or(WITHOUT_MEMORY, CatalogGpu::gpu)
    }
}

/// Peak rates of a GPU, a second; `None` where the hardware lacks the type or nobody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes to and from memory.
    pub bandwidth: u64,
    /// Operations in fp32 on CUDA cores.
    pub float32: u64,
    /// Operations in TF32 on tensor cores, dense, as those below.
    pub tf32: Option<u64>,
    /// Operations in bf16.
    pub bfloat16: Option<u64>,
    /// Operations in fp16.
    pub float16: Option<u64>,
    /// Bytes to another GPU of the same machine, in one direction.
    pub link: Option<u64>,
    /// Board power, in watts.
    pub watts: Option<u64>,
}

impl Gpu {
    /// What its host code is asked.
    pub const fn device(&self) -> Device {
        Device { compute_capability: self.compute_capability, multiprocessors: self.multiprocessors }
    }

    /// The GPU that `text` means: a catalog id, alias or NVML name (`a100-80`, `NVIDIA L4`), or the user's own as a
    /// memory size and, if known, its kind (`24GiB`, `24GiB,sm_86,multiprocessors=82`), or a
    /// slice that MIG makes (`h100:1g.10gb`).
    ///
    /// # Errors
    /// When no GPU or more than one is meant, or a custom GPU's parts cannot be read.
    pub fn parse(text: &str) -> Result<Self, GpuError> {
        match custom::parse(text) {
            Some(gpu) => gpu,
            None => mig::parse(text).unwrap_or_else(|| find_gpu(text).map(CatalogGpu::gpu)),
        }
    }

    /// The GPU that a driver names, which says how much memory it has: more or less than usual where error correction is
    /// off or on.
    ///
    /// # Errors
    /// When the catalog does not have it.
    pub fn of_driver(name: &str, total_bytes: u64) -> Result<Self, GpuError> {
        let usual = |row: &CatalogGpu| row.smi_mib * MIB;
        let nearest = |ids: &[String]| {
            let rows = catalog().iter().filter(|row| ids.contains(&row.id));
            rows.min_by_key(|row| usual(row).abs_diff(total_bytes)).map(CatalogGpu::gpu)
        };
        let gpu = match Self::parse(name) {
            Err(GpuError::Ambiguous { candidates, name }) => {
                nearest(&candidates).ok_or(GpuError::Ambiguous { name, candidates })?
            }
            other => other?,
        };
        // What the driver keeps for itself is the same; a slice's total is not in the catalog.
        let Some(row) = catalog().iter().find(|row| row.id == gpu.id) else { return Ok(gpu) };
        let differs = usual(row).abs_diff(total_bytes) > usual(row) / 100;
        let usable_bytes = total_bytes.saturating_sub(usual(row) - row.usable_bytes);
        Ok(if differs { Self { usable_bytes, ..gpu } } else { gpu })
    }

    /// A GPU that the catalog does not have, as its driver tells of it, and what that leaves open. PyTorch sees less than
    /// `total_bytes`: as much less as of the GPU of the catalog of which a driver keeps the largest share.
    pub fn outside_catalog(name: &str, total_bytes: u64, capability: (u32, u32), cores: Option<u64>) -> (Self, String) {
        let kept = |row: &CatalogGpu| (row.smi_mib * MIB - row.usable_bytes) as f64 / (row.smi_mib * MIB) as f64;
        let most = catalog().iter().map(kept).fold(0.0, f64::max);
        let usable_bytes = total_bytes - (total_bytes as f64 * most).ceil() as u64;
        let multiprocessors =
            cores.map(|cores| cores / cores_per_multiprocessor(capability)).filter(|count| *count > 0);
        let counted = match multiprocessors {
            Some(count) => format!("{count} multiprocessors by its CUDA cores"),
            None => format!("multiprocessors taken as {}, which its driver does not tell", custom::MULTIPROCESSORS),
        };
        let caveat = format!(
            "{name} is not in the catalog: memory and compute capability {}.{} are as its driver tells, of which {:.1} % are taken \
             to be kept by the driver; {counted}",
            capability.0,
            capability.1,
            most * 100.0
        );
        let gpu = Self {
            id: format!("{}MiB,sm_{}{}", usable_bytes / MIB, capability.0, capability.1),
            name: name.to_owned(),
            usable_bytes,
            context_bytes: None,
            shares_host_memory: false,
            compute_capability: capability,
            multiprocessors: multiprocessors.unwrap_or(custom::MULTIPROCESSORS).min(custom::MAX_MULTIPROCESSORS),
            rates: None,
        };
        (gpu, caveat)
    }

    /// The GPU that a TOML text writes out: `usable_gib` or `usable_bytes`, `compute_capability`, `multiprocessors`, and
    /// if known `name`, `context_bytes`, `bandwidth_gb_s`, `tflops`, `link_gb_s`, `watts`; or some of these and a GPU of
    /// the catalog that it is `like`.
    ///
    /// # Errors
    /// When something is missing, not known or impossible.
    pub fn from_toml(text: &str) -> Result<Self, GpuError> {
        file::from_toml(text)
    }

    /// The same from JSON.
    ///
    /// # Errors
    /// When something is missing, not known or impossible.
    pub fn from_json(text: &str) -> Result<Self, GpuError> {
        file::from_json(text)
    }
}

/// A name that stands for no single GPU.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GpuError {
    /// Nothing in the catalog has this name.
    #[error("unknown GPU `{name}`")]
    Unknown {
        /// The name as typed.
        name: String,
        /// The id it most likely meant.
        nearest: Option<&'static str>,
    },
    /// How many GPUs there are is no part of which.
    #[error("`{name}` is {count} GPUs")]
    Several {
        /// The name as typed.
        name: String,
        /// Two or more, as the name says.
        count: u64,
        /// The id of one.
        gpu: String,
    },
    /// A number alone.
    #[error("`{number}` is a number without a unit")]
    NoUnit {
        /// The number as typed.
        number: String,
    },
    /// Several GPUs go by this name.
    #[error("`{name}` may be {}", candidates.join(" or "))]
    Ambiguous {
        /// The name as typed.
        name: String,
        /// Ids of the GPUs it may be.
        candidates: Vec<String>,
    },
    /// The GPU is known, but not with this memory.
    #[error("no `{name}` is known; there is {}", candidates.join(", "))]
    OtherMemory {
        /// The name as typed.
        name: String,
        /// GPUs of the family, with their memory.
        candidates: Vec<String>,
    },
    /// MIG makes no such slice.
    #[error("MIG makes no slice `{name}`")]
    NoSlice {
        /// The name as typed.
        name: String,
        /// Slices of the GPU.
        slices: Vec<String>,
    },
    /// A file that writes out no GPU.
    #[error("GPU file: {problem}")]
    File {
        /// What is wrong with it.
        problem: String,
        /// What one looks like.
        example: &'static str,
    },
    /// The GPU is known, but its memory cannot be predicted.
    #[error("`{name}` is no CUDA device: Tonnage simulates PyTorch's CUDA allocator and kernels only")]
    NotCuda {
        /// The name as typed.
        name: String,
    },
    /// A custom GPU that cannot be.
    #[error("custom GPU `{text}`: {problem}")]
    Custom {
        /// The text as typed.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl GpuError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown { nearest: Some(id), .. } => format!("did you mean `{id}`?"),
            Self::Unknown { name, .. } if name.to_lowercase().contains("laptop") => {
                "a laptop's is another GPU than the card of its number: give its memory as PyTorch reports it and its kind, \
                 16GiB,sm_89,multiprocessors=76"
                    .to_owned()
            }
            Self::Several { count, gpu, .. } => {
                format!("name one: --gpu {gpu} --world-size {count} (with --parallel ddp, fsdp2, deepspeed, ...)")
            }
            Self::NoUnit { number } => format!("write {number}GiB for a GPU with so much memory"),
            Self::Unknown { .. } => {
                "`tonnage gpus` lists those that are known; of any other give memory as PyTorch reports it \
                                     and kind: 12GiB,sm_86,multiprocessors=28"
                    .to_owned()
            }
            Self::NotCuda { .. } => {
                "name a GPU of the catalog, or give its memory as PyTorch reports it (`24GiB`); `tonnage rehearse --gpu h200 -- python \
                 your_script.py` counts a script's tensors as CUDA would hold them"
                    .to_owned()
            }
            Self::Ambiguous { .. } => "say which".to_owned(),
            Self::OtherMemory { .. } => {
                "name one of these, or give its memory as PyTorch reports it (`24GiB`)".to_owned()
            }
            Self::NoSlice { slices, .. } if slices.is_empty() => {
                format!("slices are known of {}", mig::divisible_gpus().join(", "))
            }
            Self::NoSlice { slices, .. } => format!("its slices are {}", slices.join(", ")),
            Self::File { example, .. } => format!("for example: {example}"),
            Self::Custom { .. } => "write it as `24GiB` or `24GiB,sm_86,multiprocessors=82`".to_owned(),
        }
    }
}

/// CUDA cores of a multiprocessor (CUDA C++ best practices and tuning guides of each architecture).
const fn cores_per_multiprocessor(capability: (u32, u32)) -> u64 {
    match capability {
        (6, 0) | (7, _) | (8, 0) => 64,
        _ => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn a_driver_says_which_gpu_and_how_much_memory() {
        let of = |name: &str, mib: u64| Gpu::of_driver(name, mib * MIB).map(|gpu| (gpu.id, gpu.usable_bytes));
        for row in catalog() {
            for name in &row.nvml {
                assert_eq!(of(name, row.smi_mib), Ok((row.id.clone(), row.usable_bytes)), "{name}");
            }
        }
        // Error correction of these takes a sixteenth of the memory where it is on.
        let (id, usable) = of("NVIDIA RTX A6000", 46068).unwrap();
        assert!(id == "rtx-a6000" && (44 * GIB..45 * GIB).contains(&usable), "{usable}");
        let (id, usable) = of("NVIDIA A10", 24564).unwrap();
        assert!(id == "a10" && (23 * GIB..24 * GIB).contains(&usable), "{usable}");
        assert_eq!(of("A100", 81920).unwrap().0.trim_end_matches("-pcie"), "a100-80");
        assert!(of("NVIDIA GeForce GTX 970", 4096).is_err());
    }

    #[test]
    fn what_the_catalog_does_not_have_is_taken_as_its_driver_tells() {
        let (gpu, caveat) = Gpu::outside_catalog("NVIDIA GeForce RTX 3060", 12 * GIB, (8, 6), Some(3584));
        assert_eq!((gpu.multiprocessors, gpu.compute_capability, gpu.rates), (28, (8, 6), None));
        assert!((11 * GIB..12 * GIB).contains(&gpu.usable_bytes) && caveat.contains("not in the catalog"), "{caveat}");
        // Of those in the catalog it would have said no more than they have.
        for row in catalog() {
            let (gpu, _) = Gpu::outside_catalog(&row.name, row.smi_mib * MIB, row.compute_capability, None);
            assert!(gpu.usable_bytes <= row.usable_bytes, "{}", row.id);
        }
        let (unknown, caveat) = Gpu::outside_catalog("a GPU", GIB, (13, 0), None);
        assert!(unknown.multiprocessors == 132 && caveat.contains("taken as 132"), "{caveat}");
    }
}
