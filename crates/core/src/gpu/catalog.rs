//! The catalog of GPUs: rows of `gpus.toml`, found by id, alias or NVML name.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Gpu, GpuError, Rates};
use crate::nearest::nearest;

/// The GPU whose kernels a job is simulated with that names none: what most training clusters rent, and the device family
/// (sm_90, 132 multiprocessors) that the simulation was checked on. No verdict is about it.
pub const DEFAULT_GPU: &str = "h100";

/// Names of accelerators people ask for that are not CUDA devices.
const NOT_CUDA: [&str; 5] = ["mi210", "mi250", "mi300", "gaudi", "tpu"];

const GIGA: u64 = 1_000_000_000;

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
    /// Whether the host takes from the same memory.
    #[serde(default)]
    pub shares_host_memory: bool,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors that are enabled.
    pub multiprocessors: u64,
    /// Memory bandwidth, in GB/s.
    pub bandwidth_gb_s: u64,
    /// Dense matrix rates.
    pub tflops: Tflops,
    /// How it reaches other GPUs.
    pub interconnect: String,
    /// What that carries in one direction, in GB/s.
    pub link_gb_s: u64,
    /// Board power, in watts.
    pub watts: u64,
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
            shares_host_memory: self.shares_host_memory,
            rates: Some(self.rates()),
        }
    }

    fn rates(&self) -> Rates {
        let flops = |tflops: f64| (tflops * 1e12) as u64;
        Rates {
            bandwidth: self.bandwidth_gb_s * GIGA,
            float32: flops(self.tflops.fp32),
            tf32: self.tflops.tf32.map(flops),
            bfloat16: self.tflops.bf16.map(flops),
            float16: Some(flops(self.tflops.fp16)),
            link: Some(self.link_gb_s * GIGA),
            watts: Some(self.watts),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        [&self.id, &self.name].into_iter().chain(&self.aliases).chain(&self.nvml).map(String::as_str)
    }

    /// Whether these words, in any order, are one of its names, with or without its memory.
    fn is_called(&self, typed: &Typed) -> bool {
        let with_memory = [self.sold_gb.to_string(), self.smi_mib.to_string()];
        self.names().any(|name| {
            let name = sorted_words(&plain_name(name));
            name == typed.words
                || with_memory.iter().any(|memory| {
                    typed.words.contains(memory) && name == typed.without_word(memory) && !name.contains(memory)
                })
        })
    }

    /// Whether all of these words are part of one of its names.
    fn is_of(&self, words: &[String]) -> bool {
        let is_of = |name: &str| {
            let name = sorted_words(&plain_name(name));
            words.iter().all(|word| name.contains(word))
        };
        !words.is_empty() && self.names().any(is_of)
    }
}

/// A name as words in alphabetical order.
struct Typed {
    words: Vec<String>,
    /// The word that was typed as a size of memory.
    memory: Option<String>,
}

impl Typed {
    fn new(name: &str) -> Self {
        let memory = name_words(name).find_map(|word| size_of_memory(word).map(str::to_owned));
        Self { words: sorted_words(&plain_name(name)), memory }
    }

    fn without_word(&self, word: &str) -> Vec<String> {
        self.words.iter().filter(|other| *other != word).cloned().collect()
    }
}

fn sorted_words(plain_name: &str) -> Vec<String> {
    let mut words: Vec<_> = plain_name.split('-').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// All rows, in the order of the file.
pub fn catalog() -> &'static [CatalogGpu] {
    &CATALOG
}

/// The row called `name`: its id, the name that is printed, an alias or its NVML name, with or without its memory, whatever the case and the order
/// of the words.
///
/// # Errors
/// When no row or more than one goes by the name.
pub fn find_gpu(name: &str) -> Result<&'static CatalogGpu, GpuError> {
    match matching_gpus(name)?.as_slice() {
        [row] => Ok(row),
        several => Err(GpuError::Ambiguous {
            name: name.to_owned(),
            candidates: several.iter().map(|row| row.id.clone()).collect(),
        }),
    }
}

/// The row called `name`, or the rows that may be meant.
pub(super) fn matching_gpus(name: &str) -> Result<Vec<&'static CatalogGpu>, GpuError> {
    let typed = Typed::new(name);
    let all = |is_meant: &dyn Fn(&CatalogGpu) -> bool| catalog().iter().filter(|row| is_meant(row)).collect::<Vec<_>>();
    let exact = all(&|row| row.names().any(|other| plain_name(other) == plain_name(name)));
    let called = if exact.is_empty() { all(&|row| row.is_called(&typed)) } else { exact };
    if !called.is_empty() {
        return Ok(called);
    }
    let family = all(&|row| row.is_of(&typed.words));
    if family.len() > 1 {
        return Ok(family);
    }
    Err(unknown_gpu(name, &typed))
}

fn unknown_gpu(name: &str, typed: &Typed) -> GpuError {
    let name = name.to_owned();
    let plain_name = plain_name(&name);
    if let Some((count, gpu)) = several_gpus(&name) {
        return GpuError::Several { name, count, gpu };
    }
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return GpuError::NoUnit { number: name };
    }
    if NOT_CUDA.iter().any(|other| plain_name.contains(other)) {
        return GpuError::NotCuda { name };
    }
    let family = typed.memory.as_ref().map(|memory| typed.without_word(memory)).unwrap_or_default();
    let relatives: Vec<_> = catalog().iter().filter(|row| row.is_of(&family)).collect();
    if !relatives.is_empty() {
        let candidates = relatives.iter().map(|row| format!("`{}` ({} GB)", row.id, row.sold_gb)).collect();
        return GpuError::OtherMemory { name, candidates };
    }
    // The only one whose name goes on (`4060ti`): there may be others, with less memory.
    let close_up = |text: &str| text.replace('-', "");
    let goes_on = |row: &&CatalogGpu| {
        let typed = close_up(&plain_name);
        row.names().any(|own| typed.len() > 3 && close_up(&self::plain_name(own)).starts_with(&typed))
    };
    let mut longer = catalog().iter().filter(goes_on);
    if let (Some(row), None) = (longer.next(), longer.next()) {
        return GpuError::Unknown { nearest: Some(&row.id), name };
    }
    let meant = gpu_names().filter(|near| is_mistyped(&plain_name, near));
    GpuError::Unknown { nearest: nearest(&plain_name, meant), name }
}

/// A P100 is no H100: where a name is a letter or two and a number, another letter in their place is another GPU.
fn is_mistyped(name: &str, near: &str) -> bool {
    let letters = |text: &str| -> Vec<char> { text.chars().filter(char::is_ascii_alphabetic).collect() };
    let (mut typed, mut meant) = (letters(name), letters(&plain_name(near)));
    typed.sort_unstable();
    meant.sort_unstable();
    typed.len() > 2 || typed.len() != meant.len() || typed == meant
}

/// `4xH100`, `8 x a100-80`, `h100x8`, `h100:8`: how many of which.
fn several_gpus(name: &str) -> Option<(u64, String)> {
    let before = name.split_once(['x', 'X', '*']);
    let behind = name.rsplit_once(['x', 'X', '*', ':']).map(|(gpu, count)| (count, gpu));
    [before, behind].into_iter().flatten().find_map(|(count, gpu)| {
        let count = count.trim().parse().ok().filter(|count| *count > 0)?;
        Some((count, find_gpu(gpu.trim()).ok()?.id.clone()))
    })
}

fn gpu_names() -> impl Iterator<Item = &'static str> {
    catalog().iter().flat_map(|row| [row.id.as_str()].into_iter().chain(row.aliases.iter().map(String::as_str)))
}

/// `NVIDIA A100-SXM4-80GB` as `a100-sxm4-80`: what differs between ids, NVML names and what people type is dropped.
fn plain_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let words: Vec<_> = name_words(&lower).map(|word| size_of_memory(word).unwrap_or(word)).collect();
    words.join("-")
}

fn name_words(name: &str) -> impl Iterator<Item = &str> {
    let is_maker = |word: &str| ["nvidia", "tesla", "geforce"].iter().any(|maker| word.eq_ignore_ascii_case(maker));
    let parts = name.split([' ', '-', '_']).flat_map(|word| {
        let (series, number) = if starts_with(word, "rtx") { word.split_at(3) } else { ("", word) };
        [series, number]
    });
    parts.filter(move |word| !word.is_empty() && !is_maker(word))
}

fn starts_with(word: &str, series: &str) -> bool {
    word.get(..series.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(series))
}

/// The number of a word like `80GB` or `81559MiB`.
fn size_of_memory(word: &str) -> Option<&str> {
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = word.get(number.len()..)?;
    let is_unit = ["gb", "gib", "mib"].iter().any(|known| unit.eq_ignore_ascii_case(known));
    (is_unit && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB};

    #[test]
    fn every_row_is_plausible_and_sourced() {
        assert!(toml::from_str::<toml::Value>(include_str!("gpus.toml")).is_ok());
        assert!(catalog().len() >= 58);
        for row in catalog() {
            let nameplate = row.sold_gb * 1_000_000_000;
            let (major, minor) = row.compute_capability;
            assert!(row.usable_bytes.is_multiple_of(MIB), "{}", row.id);
            assert!(row.usable_bytes < row.smi_mib * MIB, "{}", row.id);
            assert!(row.usable_bytes > nameplate / 100 * 95 && row.usable_bytes < row.sold_gb * GIB, "{}", row.id);
            assert!((6..=12).contains(&major) && minor < 10, "{}", row.id);
            assert!((24..=200).contains(&row.multiprocessors), "{}", row.id);
            assert!((270..=8000).contains(&row.bandwidth_gb_s), "{}", row.id);
            assert!((70..=1200).contains(&row.watts) && (16..=900).contains(&row.link_gb_s), "{}", row.id);
            assert_eq!(row.tflops.tf32.is_some(), major >= 8, "{}: TF32 needs compute capability 8.0", row.id);
            assert!(row.tflops.fp16 >= row.tflops.fp32 && row.tflops.fp32 > 5.0, "{}", row.id);
            assert_eq!(row.tflops.bf16.is_some(), major >= 8, "{}: bf16 needs compute capability 8.0", row.id);
            assert!(row.source.contains("usable"), "{}: say where the usable bytes come from", row.id);
            assert_eq!(plain_name(&row.id), row.id);
        }
    }

    #[test]
    fn every_name_means_one_row() {
        for row in catalog() {
            let with_memory = |name: &str| {
                [format!("{name} {}GB", row.sold_gb), format!("{name} {} MiB", row.smi_mib).replace(" MiB", "MiB")]
            };
            for name in row.names() {
                let names = [name.to_owned(), name.to_uppercase(), name.replace('-', " "), format!("NVIDIA {name}")];
                for name in names.into_iter().chain(with_memory(name)) {
                    assert_eq!(find_gpu(&name).map(|found| &found.id), Ok(&row.id), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_name_that_is_printed_is_understood() {
        for row in catalog() {
            assert_eq!(find_gpu(&row.name).map(|found| found.id.as_str()), Ok(row.id.as_str()), "{}", row.name);
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
            ("rtx4090", "rtx-4090"),
            ("RTX3090", "rtx-3090"),
            ("rtxa6000", "rtx-a6000"),
            ("H100-80GB", "h100"),
            ("a100-80gb", "a100-80"),
            ("A100-SXM4-80GB", "a100-80"),
            ("GeForce RTX 3090", "rtx-3090"),
            ("tesla t4", "t4"),
            ("T4 16GB", "t4"),
            ("A100 SXM 80GB", "a100-80"),
            ("80GB A100 SXM4", "a100-80"),
            ("nvidia a100 pcie 40gb", "a100-40-pcie"),
            ("H100 SXM 80GB", "h100"),
            ("H200 141GB", "h200"),
            ("L40S 48GB", "l40s"),
            ("RTX A6000 48GB", "rtx-a6000"),
            ("rtx 4070 ti", "rtx-4070-ti"),
            ("RTX 4070 Ti Super", "rtx-4070-ti-super"),
            ("4060 ti 16gb", "rtx-4060-ti-16"),
            ("dgx spark", "gb10"),
            ("P100", "p100"),
            ("A800-SXM4-80GB", "a800-80"),
            ("RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ];
        for (typed, id) in cases {
            assert_eq!(find_gpu(typed).map(|row| row.id.as_str()), Ok(id), "{typed}");
        }
    }

    #[test]
    fn says_what_it_cannot_find() {
        let cases = [
            ("a100", "`a100` may be a100-40-pcie or a100-40 or a100-80-pcie or a100-80", "say which"),
            ("v100", "`v100` may be v100-16 or v100-16-pcie or v100-32", "say which"),
            ("a100 pcie", "`a100 pcie` may be a100-40-pcie or a100-80-pcie", "say which"),
            ("A100 24GB", "no `A100 24GB` is known; there is `a100-40-pcie` (40 GB), `a100-40` (40 GB)", "name one"),
            ("H100 40GB", "no `H100 40GB` is known; there is `h100-pcie` (80 GB), `h100` (80 GB)", "name one"),
            ("h1000", "unknown GPU `h1000`", "`tonnage gpus` lists those that are known"),
            ("l40ss", "unknown GPU `l40ss`", "did you mean `l40s`?"),
            ("rtx4050", "unknown GPU `rtx4050`", "`tonnage gpus` lists those that are known"),
            ("rtx3050", "unknown GPU `rtx3050`", "`tonnage gpus` lists those that are known"),
            ("p1000", "unknown GPU `p1000`", "`tonnage gpus` lists those that are known"),
            ("4xH100", "`4xH100` is 4 GPUs", "name one: --gpu h100 --world-size 4"),
            ("8 x a100-80", "`8 x a100-80` is 8 GPUs", "name one: --gpu a100-80 --world-size 8"),
            ("h100x8", "`h100x8` is 8 GPUs", "name one: --gpu h100 --world-size 8"),
            ("t4x2", "`t4x2` is 2 GPUs", "name one: --gpu t4 --world-size 2"),
            ("4060ti", "unknown GPU `4060ti`", "did you mean `rtx-4060-ti-16`?"),
            ("4090 Laptop", "unknown GPU `4090 Laptop`", "a laptop's is another GPU than the card of its number"),
            ("24", "`24` is a number without a unit", "write 24GiB"),
            ("MI300X", "`MI300X` is no CUDA device", "name a GPU of the catalog"),
            ("potato", "unknown GPU `potato`", "`tonnage gpus` lists"),
            ("", "unknown GPU ``", "`tonnage gpus` lists"),
        ];
        for (typed, problem, hint) in cases {
            let error = find_gpu(typed).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint().starts_with(hint), "{}", error.hint());
        }
    }

    #[test]
    fn the_default_is_in_the_catalog() {
        assert!(find_gpu(DEFAULT_GPU).is_ok());
    }
}
