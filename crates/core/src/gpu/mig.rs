//! Slices of a GPU that MIG makes (`mig.toml`): `h100:1g.10gb`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::catalog::{CatalogGpu, catalog, matching_gpus};
use super::{Gpu, GpuError, Rates};
use crate::units::MIB;

/// Memory slices of every board that MIG divides (NVIDIA MIG user guide).
const MEMORY_SLICES: u64 = 8;

static BOARDS: LazyLock<Vec<Board>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        board: Vec<Board>,
    }
    // The text is part of the program and a test reads it, so the empty list never happens.
    toml::from_str::<File>(include_str!("mig.toml")).map_or_else(|_| Vec::new(), |file| file.board)
});

/// Boards that are divided alike.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Board {
    gpus: Vec<String>,
    profiles: Vec<MigProfile>,
    source: String,
}

/// A kind of slice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigProfile {
    /// NVIDIA's name for it: `1g.10gb`.
    pub name: String,
    /// Its memory, in MiB.
    pub mib: u64,
    /// Streaming multiprocessors of the slice.
    pub multiprocessors: u64,
    /// Its share of the memory's bandwidth, in eighths.
    pub memory_slices: u64,
}

impl MigProfile {
    /// What PyTorch reports as the slice's total, of a board that may have less than the slices' list says.
    pub fn usable_bytes(&self, board: &CatalogGpu) -> u64 {
        board.usable_bytes.min(self.mib * MIB)
    }

    /// The slice as a GPU: bandwidth by memory slices, rates and power by multiprocessors; slices reach no other GPU
    /// directly.
    fn slice_of(&self, board: &CatalogGpu) -> Gpu {
        let whole = board.gpu();
        let share = |rate: u64| {
            (u128::from(rate) * u128::from(self.multiprocessors) / u128::from(whole.multiprocessors)) as u64
        };
        Gpu {
            id: format!("{}:{}", whole.id, self.name),
            name: format!("{} MIG {}", whole.name, self.name),
            usable_bytes: self.usable_bytes(board),
            multiprocessors: self.multiprocessors,
            rates: whole.rates.map(|rates| Rates {
                bandwidth: rates.bandwidth * self.memory_slices / MEMORY_SLICES,
                float32: share(rates.float32),
                tf32: rates.tf32.map(share),
                bfloat16: rates.bfloat16.map(share),
                float16: rates.float16.map(share),
                link: None,
                watts: rates.watts.map(share),
            }),
            ..whole
        }
    }
}

/// The slices of a GPU of the catalog; none where it cannot be divided or nobody listed them.
pub fn mig_profiles(gpu: &CatalogGpu) -> &'static [MigProfile] {
    board_of(gpu).map_or(&[], |board| &board.profiles)
}

fn board_of(gpu: &CatalogGpu) -> Option<&'static Board> {
    BOARDS.iter().find(|board| board.gpus.contains(&gpu.id))
}

/// The slice that `text` names, as `GPU:PROFILE` or as drivers do (`NVIDIA A100-SXM4-40GB MIG 3g.20gb`); `None` if it
/// names none.
pub(super) fn parse(text: &str) -> Option<Result<Gpu, GpuError>> {
    let lower = text.to_lowercase();
    let slice = || {
        // As Kubernetes writes it: `h100-1g.10gb`.
        let at = lower.find("g.").and_then(|at| lower[..at].rfind('-'))?;
        Some((&lower[..at], &lower[at + 1..]))
    };
    let (gpu, profile) = lower.split_once(':').or_else(|| lower.split_once(" mig ")).or_else(slice)?;
    Some(find_profile(text, gpu.trim(), plain_profile(profile)))
}

/// `MIG-1g.10gb+me` as `1g.10gb`: media engines make no difference here.
fn plain_profile(profile: &str) -> &str {
    let profile = profile.trim();
    let profile = profile.strip_prefix("mig").map_or(profile, |rest| rest.trim_start_matches(['-', ' ']));
    profile.strip_suffix("+me").unwrap_or(profile)
}

fn find_profile(text: &str, gpu: &str, profile: &str) -> Result<Gpu, GpuError> {
    let boards = matching_gpus(gpu)?;
    let slices: Vec<_> = boards
        .iter()
        .flat_map(|board| mig_profiles(board).iter().map(move |slice| (*board, slice)))
        .filter(|(_, slice)| slice.name == profile)
        .collect();
    match slices.as_slice() {
        [(board, slice)] => Ok(slice.slice_of(board)),
        [] => Err(GpuError::NoSlice {
            name: text.to_owned(),
            slices: boards.iter().flat_map(|board| slice_names(board)).collect(),
        }),
        several => Err(GpuError::Ambiguous {
            name: text.to_owned(),
            candidates: several.iter().map(|(board, slice)| format!("{}:{}", board.id, slice.name)).collect(),
        }),
    }
}

fn slice_names(board: &CatalogGpu) -> Vec<String> {
    mig_profiles(board).iter().map(|slice| format!("{}:{}", board.id, slice.name)).collect()
}

/// GPUs of the catalog that can be divided.
pub(super) fn divisible_gpus() -> Vec<String> {
    catalog().iter().filter(|gpu| board_of(gpu).is_some()).map(|gpu| gpu.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slice_is_a_part_of_its_board_and_resolves() {
        assert!(toml::from_str::<toml::Value>(include_str!("mig.toml")).is_ok());
        assert_eq!(BOARDS.len(), 4);
        for board in BOARDS.iter() {
            assert!(!board.source.is_empty());
            for id in &board.gpus {
                let whole = super::super::find_gpu(id).unwrap();
                for profile in &board.profiles {
                    let slice = Gpu::parse(&format!("{id}:{}", profile.name)).unwrap();
                    let nameplate: u64 =
                        profile.name.split('.').nth(1).unwrap().trim_end_matches("gb").parse().unwrap();
                    assert!(slice.usable_bytes <= whole.usable_bytes, "{}", slice.id);
                    assert!((88..=107).contains(&(profile.mib * MIB / (nameplate * 10_000_000))), "{}", slice.id);
                    assert!(slice.multiprocessors <= whole.multiprocessors && profile.memory_slices <= 8);
                    assert_eq!(Gpu::parse(&slice.id).unwrap(), slice);
                    assert!(slice.rates.unwrap().watts.unwrap() <= whole.watts);
                }
            }
        }
    }

    #[test]
    fn drivers_names_of_slices_are_read() {
        let cases = [
            ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "a100-40:3g.20gb"),
            ("NVIDIA H200 MIG 1g.18gb", "h200:1g.18gb"),
            ("H100:MIG-1G.10GB+ME", "h100:1g.10gb"),
            ("NVIDIA A100 80GB PCIe MIG 7g.80gb", "a100-80-pcie:7g.80gb"),
        ];
        for (text, id) in cases {
            assert_eq!(Gpu::parse(text).unwrap().id, id, "{text}");
        }
    }

    #[test]
    fn says_which_slices_there_are() {
        let cases = [
            ("h100:1g.18gb", "h100:1g.10gb"),
            ("l4:1g.6gb", "a100-40-pcie"),
            ("a100:1g.5gb", "say which"),
            ("h1000:1g.10gb", "`tonnage gpus` lists"),
        ];
        for (text, hint) in cases {
            let error = Gpu::parse(text).unwrap_err();
            assert!(error.hint().contains(hint), "{text}: {}", error.hint());
        }
    }
}
