//! Temporary storage of the CUB algorithms (CUDA 13) that aten ops call: sort, unique and scan.

use super::Device;
use crate::dtype::DType;

/// CUB aligns each part of its storage to this (`AliasTemporaries`), and asks for so much less one byte on top.
const ALIGNMENT: u64 = 256;
/// Radix sort handles 8 bits per pass; one histogram is 256 counters of 8 bytes.
const HISTOGRAM: u64 = 256 * 8;
/// What one tile of a radix sort publishes to the next: 256 counters of 4 bytes.
const SORT_TILE_STATE: u64 = 256 * 4;
/// So many elements of 8 bytes are sorted by one block (256 threads of 9).
const SORT_ONE_TILE: u64 = 2304;
/// Elements one "portion" of a radix sort may have (`PORTION_SIZE` in the onesweep dispatch).
const PORTION: u64 = (1 << 28) - 1;
/// What one tile of a scan publishes: a status word and an 8-byte value, and so many tiles of padding.
const SCAN_TILE_STATE: u64 = 16;
/// Padding of a scan's tile states, in tiles (one warp).
const SCAN_TILE_PADDING: u64 = 32;
/// Elements of 8 bytes per tile of an exclusive sum: 128 threads of 7.
const SCAN_TILE: u64 = 896;

/// One allocation holding several parts.
fn storage(parts: &[u64]) -> u64 {
    parts.iter().map(|part| part.next_multiple_of(ALIGNMENT)).sum::<u64>() + ALIGNMENT - 1
}

/// Up to so many 4-byte pairs are sorted in one tile, without storage; of 8-byte pairs only fewer than any caller sorts.
const SINGLE_TILE: u64 = 4864;

/// Elements per tile of a sort of int64 or int32 keys with values as wide (tuning policies of CUB's radix sort).
const fn sort_tile(index: DType, device: Device) -> u64 {
    match (index, device.compute_capability) {
        (DType::Int32, (0..=7, _)) => 11776,
        (DType::Int32, _) => 6528,
        (_, (0..=7, _)) => 2816,
        (_, (8, _)) => 3840,
        _ => 4608,
    }
}

/// Elements per tile of unique-by-key with keys and values as wide as the index (tuning policies of CUB's unique-by-key).
const fn unique_tile(index: DType, device: Device) -> u64 {
    match (index, device.compute_capability) {
        (DType::Int32, (8, 0)) => 2816,
        (DType::Int32, (0..=8, _)) => 704,
        (DType::Int32, _) => 7168,
        (_, (8, 0)) => 1792,
        (_, (0..=8, _)) => 320,
        (_, (9, _)) => 4480,
        _ => 3840,
    }
}

/// `radix_sort_pairs` of `n` int64 or int32 keys and values over all their bits, by passes however few int64 ones are.
pub(super) fn sort_pairs(n: u64, index: DType, device: Device) -> u64 {
    if index == DType::Int32 && n <= SINGLE_TILE { 1 } else { sort_passes(n, index.size(), index, device) }
}

/// `radix_sort_pairs` of `n` int64 keys and values over their lowest `bits`: one tile needs nothing, which is asked for
/// as one byte.
pub(super) fn sort_pairs_of(n: u64, bits: u32, device: Device) -> u64 {
    let passes = u64::from(bits).div_ceil(8).max(1);
    if n <= SORT_ONE_TILE { 1 } else { sort_passes(n, passes, DType::Int64, device) }
}

fn sort_passes(n: u64, passes: u64, index: DType, device: Device) -> u64 {
    // A single pass reads its input and writes its output.
    let between = if passes > 1 { index.size() * n } else { 0 };
    sort_between(n, passes, sort_tile(index, device), [between, between])
}

/// A sort by passes, with the keys and the values between them.
fn sort_between(n: u64, passes: u64, tile: u64, [keys, values]: [u64; 2]) -> u64 {
    let portion = PORTION / tile * tile;
    let portions = n.div_ceil(portion);
    let histograms = portions * passes * HISTOGRAM;
    let states = n.min(portion).div_ceil(tile) * SORT_TILE_STATE;
    storage(&[histograms, states, keys, values, portions * passes * 4])
}

/// `radix_sort_pairs` of `n` numbers of int64, fp32 or 16 bits and their places, which are int64.
pub(super) fn sort_with_places(n: u64, numbers: DType, device: Device) -> u64 {
    let (keys, places) = (n * numbers.size(), n * DType::Int64.size());
    let is_new = device.compute_capability.0 >= 9;
    let tile = match numbers.size() {
        8 => return sort_pairs(n, DType::Int64, device),
        4 if is_new => 5376,
        4 if device.compute_capability.0 == 8 => 3072,
        4 => 2816,
        _ if is_new => 5632,
        // Keys of 16 bits are counted by every resident block before they are moved.
        _ => return storage(&[counts_of_blocks(device), keys, places]),
    };
    sort_between(n, numbers.size(), tile, [keys, places])
}

/// What the blocks of a sort that are resident five times over count: 256 numbers of 4 bytes each, and of the one that scans them 44.
fn counts_of_blocks(device: Device) -> u64 {
    let resident = device.multiprocessors * (device.threads_per_multiprocessor() / 256);
    (5 * resident + 44) * 256 * 4
}

/// Elements that one block adds up, without storage.
const REDUCE_ONE_TILE: u64 = 4096;

/// `DeviceReduce::Sum` of `n` flags into int32: a number for each of the blocks that are resident five times over.
pub(super) fn count_flags(n: u64, device: Device) -> u64 {
    let resident = device.multiprocessors * (device.threads_per_multiprocessor() / 256);
    if n <= REDUCE_ONE_TILE { 1 } else { storage(&[5 * resident * 4]) }
}

/// Elements per tile of a selection of int64 places by flags (tuning policies of CUB's select-if).
const fn select_tile(device: Device) -> u64 {
    match device.compute_capability {
        (8, 0) => 2304,
        (0..=8, _) => 640,
        (9, _) => 4224,
        _ => 3520,
    }
}

/// `DeviceSelect::Flagged` of `n` places: a status and a count share a word a tile.
pub(super) fn select_flagged(n: u64, device: Device) -> u64 {
    storage(&[(n.div_ceil(select_tile(device)) + SCAN_TILE_PADDING) * 8, 1])
}

/// `unique_by_key` of `n` int64 or int32 keys.
pub(super) fn unique(n: u64, index: DType, device: Device) -> u64 {
    scan_states(n.div_ceil(unique_tile(index, device)))
}

/// `exclusive_sum` of `n` int64 or int32 numbers.
pub(super) fn exclusive_sum(n: u64, index: DType) -> u64 {
    match index {
        DType::Int32 => inclusive_scan(n, index),
        _ => scan_states(n.div_ceil(SCAN_TILE)),
    }
}

/// The states of all tiles and a second part that is empty but takes one unit.
fn scan_states(tiles: u64) -> u64 {
    storage(&[(tiles + SCAN_TILE_PADDING) * SCAN_TILE_STATE, 1])
}

/// Elements of 4 bytes per tile of an inclusive scan.
const SCAN_TILE_FLOAT: u64 = 1920;
/// Elements of 2 bytes per tile of an inclusive scan.
const SCAN_TILE_HALF: u64 = 3840;

/// `inclusive_scan` of `n` numbers of the given dtype.
pub(super) fn inclusive_scan(n: u64, dtype: DType) -> u64 {
    let tiles = |tile: u64| n.div_ceil(tile) + SCAN_TILE_PADDING;
    match dtype.size() {
        8 => exclusive_sum(n, DType::Int64),
        // A status and a value share one word.
        4 => storage(&[tiles(SCAN_TILE_FLOAT) * 8, 1]),
        // No word for the half types: statuses, partial and inclusive values lie apart.
        _ => storage(&[tiles(SCAN_TILE_HALF) * 4, tiles(SCAN_TILE_HALF) * 2, tiles(SCAN_TILE_HALF) * 2, 1]),
    }
}
