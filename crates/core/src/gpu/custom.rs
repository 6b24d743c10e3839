//! A GPU that is not in the catalog, written out: `24GiB` or `24GiB,sm_86,multiprocessors=82`.

use super::{Gpu, GpuError};
use crate::units::{Bytes, GIB, KIB, MIB};

/// The kind of a custom GPU that says no more: as the default GPU's.
const COMPUTE_CAPABILITY: (u32, u32) = (9, 0);
pub(super) const MULTIPROCESSORS: u64 = 132;
/// The largest size accepted, 1 PiB: sums of sizes stay far from overflow.
pub(super) const MAX_BYTES: u64 = 1 << 50;

/// The most multiprocessors accepted.
pub(super) const MAX_MULTIPROCESSORS: u64 = 1024;

/// The GPU that `text` writes out; `None` if it does not begin with a size.
pub(super) fn parse(text: &str) -> Option<Result<Gpu, GpuError>> {
    let mut parts = text.split(',').map(str::trim);
    let bytes = memory_size(parts.next()?)?;
    // The id is what stands for it elsewhere: in a job file, say.
    let id = text.trim().to_owned();
    let gpu = bytes.and_then(|bytes| parts.try_fold(Gpu { id, ..plain_gpu(bytes) }, with_part));
    Some(gpu.map_err(|problem| GpuError::Custom { text: text.to_owned(), problem }))
}

fn plain_gpu(usable_bytes: u64) -> Gpu {
    Gpu {
        id: "custom".to_owned(),
        name: format!("custom GPU of {}", Bytes(usable_bytes)),
        usable_bytes,
        context_bytes: None,
        compute_capability: COMPUTE_CAPABILITY,
        multiprocessors: MULTIPROCESSORS,
        shares_host_memory: false,
        rates: None,
    }
}

/// `number` and a unit, without space or with one. A bare number is no size: it might be an id (`3090`).
fn memory_size(text: &str) -> Option<Result<u64, String>> {
    let unit_start = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..unit_start].trim().parse().ok()?;
    let unit = match text[unit_start..].to_ascii_lowercase().as_str() {
        "gib" => GIB,
        "mib" => MIB,
        "kib" => KIB,
        "tib" => 1 << 40,
        "gb" => 1_000_000_000,
        "mb" => 1_000_000,
        _ => return None,
    };
    let bytes = number * unit as f64;
    Some(match bytes >= MIB as f64 && bytes <= MAX_BYTES as f64 {
        true => Ok(bytes as u64),
        false => Err("its memory must be from 1 MiB to 1 PiB".to_owned()),
    })
}

fn with_part(gpu: Gpu, part: &str) -> Result<Gpu, String> {
    if let Some(version) = part.strip_prefix("sm_").or_else(|| part.strip_prefix("sm=")) {
        let compute_capability =
            parse_capability(version).ok_or_else(|| format!("`{part}` is no compute capability"))?;
        return Ok(Gpu { compute_capability, ..gpu });
    }
    if let Some(count) = part.strip_prefix("multiprocessors=") {
        return match count.parse() {
            Ok(multiprocessors @ 1..=MAX_MULTIPROCESSORS) => Ok(Gpu { multiprocessors, ..gpu }),
            _ => Err(format!("`{part}` must be from 1 to {MAX_MULTIPROCESSORS}")),
        };
    }
    Err(format!("`{part}` is not known"))
}

/// `86` or `8.6` as (8, 6), `120` as (12, 0).
fn parse_capability(version: &str) -> Option<(u32, u32)> {
    let digits = version.replace('.', "");
    let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (5..=20).contains(&major).then_some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_and_parts() {
        let cases = [
            ("24GiB", 24 * GIB, (9, 0), 132),
            ("80gb", 80_000_000_000, (9, 0), 132),
            ("23.5 GiB", 47 * GIB / 2, (9, 0), 132),
            ("24564MiB,sm_89,multiprocessors=128", 24564 * MIB, (8, 9), 128),
            ("32GiB, sm=12.0", 32 * GIB, (12, 0), 132),
        ];
        for (text, bytes, capability, multiprocessors) in cases {
            let gpu = Gpu::parse(text).unwrap();
            assert_eq!(
                (gpu.usable_bytes, gpu.compute_capability, gpu.multiprocessors),
                (bytes, capability, multiprocessors),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_what_cannot_be() {
        let cases = [
            ("0GiB", "from 1 MiB to 1 PiB"),
            ("-4GiB", "from 1 MiB to 1 PiB"),
            ("99999TiB", "from 1 MiB to 1 PiB"),
            ("24GiB,sm_", "no compute capability"),
            ("24GiB,sm_99999999999", "no compute capability"),
            ("24GiB,multiprocessors=0", "from 1 to 1024"),
            ("24GiB,fast", "`fast` is not known"),
            ("24GiB,", "`` is not known"),
        ];
        for (text, problem) in cases {
            let error = Gpu::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_bare_number_is_an_id() {
        assert_eq!(Gpu::parse("3090").unwrap().id, "rtx-3090");
        assert!(matches!(Gpu::parse("24"), Err(GpuError::NoUnit { .. })));
    }
}
