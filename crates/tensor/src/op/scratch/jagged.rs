//! `split_with_sizes_copy` and `_chunk_cat` (TensorShape.cu): one kernel over many tensors, told by a table on the device
//! which of its blocks works on which tensor.

use crate::Device;

/// Bytes that a block moves at once (`BLOCK_SIZE * BYTES_PER_THREAD`).
const TILE: u64 = 128 * 16;
/// Threads of a block.
const BLOCK_SIZE: u64 = 128;
/// Bytes of an entry.
const ENTRY: u64 = 8;

/// Bytes of the table of `split_with_sizes_copy`: `chunks` rows are split into pieces of these bytes.
///
/// Five lists: where each piece goes, comes from and how long it is, the piece of each block, and the blocks' prefix sums.
pub fn split_copy_table(pieces: &[u64], chunks: u64, device: Device) -> u64 {
    let tiles = blocks(pieces, TILE);
    let most_blocks = device.multiprocessors * device.threads_per_multiprocessor() / BLOCK_SIZE * 2;
    // More work than that is spread evenly between the rows of a block and its passes over a row.
    let factor = tiles.saturating_mul(chunks).div_ceil(most_blocks.max(1)).max(1);
    let rows = ceil_sqrt(factor).clamp(1, chunks.max(1));
    let passes = factor.div_ceil(rows);
    let entries = blocks(pieces, TILE.saturating_mul(passes)).saturating_add(4 * pieces.len() as u64 + 1);
    entries.saturating_mul(ENTRY)
}

/// Bytes of the table of `_chunk_cat`: of each tensor, a chunk takes these bytes.
///
/// Seven lists, two of them prefix sums, one with an entry for each block.
pub fn chunk_cat_table(pieces: &[u64]) -> u64 {
    let entries = blocks(pieces, TILE).saturating_add(6 * pieces.len() as u64 + 2);
    entries.saturating_mul(ENTRY)
}

fn blocks(pieces: &[u64], bytes_per_block: u64) -> u64 {
    pieces.iter().map(|bytes| bytes.div_ceil(bytes_per_block)).fold(0, u64::saturating_add)
}

fn ceil_sqrt(number: u64) -> u64 {
    let root = number.isqrt();
    if root.saturating_mul(root) == number { root } else { root + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPT-2 layer's weights in fp32 on one of four ranks.
    const GPT2_LAYER: [u64; 12] = [768, 768, 1_769_472, 2304, 589_824, 768, 768, 768, 2_359_296, 3072, 2_359_296, 768];

    #[test]
    fn measured_tables_are_reproduced() {
        let h100 = Device { compute_capability: (9, 0), multiprocessors: 132 };
        assert_eq!(split_copy_table(&GPT2_LAYER, 4, h100), 14_280);
        assert_eq!(chunk_cat_table(&GPT2_LAYER), 28_320);
    }
}
