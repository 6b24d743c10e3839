//! A user's own GPU, written out in a file: what the catalog does not know, or knows otherwise.

use serde::Deserialize;

use super::catalog::find_gpu;
use super::custom::{MAX_BYTES, MAX_MULTIPROCESSORS};
use super::{Gpu, GpuError, Rates};
use crate::units::MIB;

/// A GPU in a file. What is left out is `like`'s, or unknown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFile {
    /// A GPU of the catalog that it resembles.
    like: Option<String>,
    name: Option<String>,
    usable_bytes: Option<u64>,
    usable_gib: Option<f64>,
    context_bytes: Option<u64>,
    compute_capability: Option<(u32, u32)>,
    multiprocessors: Option<u64>,
    bandwidth_gb_s: Option<f64>,
    tflops: Option<TflopsFile>,
    link_gb_s: Option<f64>,
    watts: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TflopsFile {
    fp32: f64,
    tf32: Option<f64>,
    bf16: Option<f64>,
    fp16: Option<f64>,
}

const EXAMPLE: &str = "like = \"h100\", name = \"mine\", usable_gib = 79.1, compute_capability = [9, 0], \
    multiprocessors = 132, bandwidth_gb_s = 3350, tflops = { fp32 = 67, bf16 = 989 }, watts = 700";

pub(super) fn from_toml(text: &str) -> Result<Gpu, GpuError> {
    let file: GpuFile = toml::from_str(text).map_err(|error| file_problem(error.message().to_owned()))?;
    gpu_of_file(&file)
}

pub(super) fn from_json(text: &str) -> Result<Gpu, GpuError> {
    let file: GpuFile = serde_json::from_str(text).map_err(|error| file_problem(error.to_string()))?;
    gpu_of_file(&file)
}

fn file_problem(problem: String) -> GpuError {
    GpuError::File { problem, example: EXAMPLE }
}

fn gpu_of_file(file: &GpuFile) -> Result<Gpu, GpuError> {
    let like = file.like.as_deref().map(find_gpu).transpose()?.map(|row| row.gpu());
    let missing = |key: &str| file_problem(format!("it says neither `{key}` nor which GPU it is `like`"));
    let usable_bytes = usable_bytes(file)?.or(like.as_ref().map(|gpu| gpu.usable_bytes));
    let gpu = Gpu {
        id: file.name.clone().unwrap_or_else(|| "custom".to_owned()),
        name: file.name.clone().unwrap_or_else(|| "custom GPU".to_owned()),
        usable_bytes: usable_bytes.ok_or_else(|| missing("usable_bytes"))?,
        context_bytes: file.context_bytes.or(like.as_ref().and_then(|gpu| gpu.context_bytes)),
        compute_capability: file
            .compute_capability
            .or(like.as_ref().map(|gpu| gpu.compute_capability))
            .ok_or_else(|| missing("compute_capability"))?,
        multiprocessors: file
            .multiprocessors
            .or(like.as_ref().map(|gpu| gpu.multiprocessors))
            .ok_or_else(|| missing("multiprocessors"))?,
        shares_host_memory: like.as_ref().is_some_and(|gpu| gpu.shares_host_memory),
        rates: rates_of_file(file, like.and_then(|gpu| gpu.rates))?,
    };
    check_gpu(gpu)
}

fn check_gpu(gpu: Gpu) -> Result<Gpu, GpuError> {
    if !(MIB..=MAX_BYTES).contains(&gpu.usable_bytes) {
        return Err(file_problem("its memory must be from 1 MiB to 1 PiB".to_owned()));
    }
    if gpu.context_bytes.is_some_and(|bytes| bytes > MAX_BYTES) {
        return Err(file_problem("`context_bytes` must be at most 1 PiB".to_owned()));
    }
    if !(5..=20).contains(&gpu.compute_capability.0) || gpu.compute_capability.1 > 9 {
        return Err(file_problem("`compute_capability` must be from [5, 0] to [20, 9]".to_owned()));
    }
    if !(1..=MAX_MULTIPROCESSORS).contains(&gpu.multiprocessors) {
        return Err(file_problem(format!("`multiprocessors` must be from 1 to {MAX_MULTIPROCESSORS}")));
    }
    Ok(gpu)
}

fn usable_bytes(file: &GpuFile) -> Result<Option<u64>, GpuError> {
    match (file.usable_bytes, file.usable_gib) {
        (Some(_), Some(_)) => Err(file_problem("`usable_bytes` and `usable_gib` say the same: give one".to_owned())),
        (bytes, None) => Ok(bytes),
        (None, Some(gib)) => Ok(Some((gib * (1u64 << 30) as f64) as u64)),
    }
}

/// Its own rates, or those of the GPU it is like where it says none.
fn rates_of_file(file: &GpuFile, like: Option<Rates>) -> Result<Option<Rates>, GpuError> {
    let bandwidth = scaled_figure("bandwidth_gb_s", file.bandwidth_gb_s, 1e9)?.or(like.map(|rates| rates.bandwidth));
    let flops = match &file.tflops {
        Some(own) => Some(Rates {
            float32: scaled_figure("tflops.fp32", Some(own.fp32), 1e12)?.unwrap_or(0),
            tf32: scaled_figure("tflops.tf32", own.tf32, 1e12)?,
            bfloat16: scaled_figure("tflops.bf16", own.bf16, 1e12)?,
            float16: scaled_figure("tflops.fp16", own.fp16, 1e12)?,
            ..Rates::default()
        }),
        None => like,
    };
    let (Some(bandwidth), Some(flops)) = (bandwidth, flops) else { return Ok(None) };
    let link = scaled_figure("link_gb_s", file.link_gb_s, 1e9)?.or(like.and_then(|rates| rates.link));
    let watts = file.watts.or(like.and_then(|rates| rates.watts));
    Ok(Some(Rates { bandwidth, link, watts, ..flops }))
}

fn scaled_figure(key: &str, value: Option<f64>, unit: f64) -> Result<Option<u64>, GpuError> {
    match value {
        Some(value) if !(value.is_finite() && (1e-3..=1e6).contains(&value)) => {
            Err(file_problem(format!("`{key}` must be from 0.001 to 1,000,000")))
        }
        value => Ok(value.map(|value| (value * unit) as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_all_or_is_like_a_known_gpu() {
        let text = "name = \"mine\"\nusable_gib = 95.5\ncompute_capability = [12, 0]\nmultiprocessors = 188\n\
            bandwidth_gb_s = 1792\ntflops = { fp32 = 125, bf16 = 252 }\nwatts = 600";
        let gpu = Gpu::from_toml(text).unwrap();
        assert_eq!((gpu.usable_bytes, gpu.multiprocessors), (191 << 29, 188));
        let rates = gpu.rates.unwrap();
        assert_eq!(
            (rates.bandwidth, rates.bfloat16, rates.float16),
            (1_792_000_000_000, Some(252_000_000_000_000), None)
        );

        let h100 = find_gpu("h100").unwrap().gpu();
        let slower = Gpu::from_json(r#"{"like": "h100", "name": "h100 at 500 W", "watts": 500}"#).unwrap();
        assert_eq!(slower.usable_bytes, h100.usable_bytes);
        assert_eq!(slower.rates.unwrap(), Rates { watts: Some(500), ..h100.rates.unwrap() });
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            ("usable_gib = 24", "`compute_capability`"),
            ("like = \"h1000\"", "unknown GPU"),
            ("like = \"l4\"\nusable_gib = 1e30", "1 PiB"),
            ("like = \"l4\"\nusable_gib = -1", "1 MiB"),
            ("like = \"l4\"\nusable_gib = 1\nusable_bytes = 1", "give one"),
            ("like = \"l4\"\nmultiprocessors = 0", "from 1 to"),
            ("like = \"l4\"\nbandwidth_gb_s = nan", "bandwidth_gb_s"),
            ("like = \"l4\"\ncompute_capability = [99, 0]", "compute_capability"),
            ("like = \"l4\"\nspeed = 3", "unknown field `speed`"),
            ("like", "expected"),
        ];
        for (text, expected) in cases {
            let error = Gpu::from_toml(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }
}
