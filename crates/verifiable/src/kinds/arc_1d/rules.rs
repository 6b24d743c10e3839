//! The rules: what rows they are shown on, and what they make of one. 0 is the ground; a block is a run of one colour.

use std::ops::Range;
use tonnage_core::small_sort::SmallSort;

use tonnage_core::random::SplitMix64;

/// What all rows of a question have in common.
pub(super) struct How {
    /// 1 to 3 cells.
    shift: usize,
    /// 1 to 9.
    colour: u8,
    /// 1 to 9, not `colour`.
    other: u8,
}

impl How {
    pub(super) fn draw_settings(random: &mut SplitMix64) -> Self {
        let colour = 1 + random.below(9) as u8;
        let other = 1 + (colour + random.below(8) as u8) % 9;
        Self { shift: 1 + random.index_below(3), colour, other }
    }
}

/// Rows to show it on, and what it makes of one.
pub(super) struct Rule {
    pub row: fn(&mut SplitMix64, usize, &How) -> Vec<u8>,
    pub apply: fn(&[u8], &How) -> Vec<u8>,
}

const fn rule(row: fn(&mut SplitMix64, usize, &How) -> Vec<u8>, apply: fn(&[u8], &How) -> Vec<u8>) -> Rule {
    Rule { row, apply }
}

/// The plain ones first.
pub(super) const RULES: [Rule; 14] = [
    rule(one_block, moved_right),
    rule(some_blocks, |row, _| row.iter().rev().copied().collect()),
    rule(two_points, filled_between),
    rule(some_points, |row, _| points_fallen_left(row)),
    rule(some_points, moved_around),
    rule(one_block, |row, _| blocks_hollowed(row)),
    rule(blocks_and_noise, |row, _| without_noise(row)),
    rule(some_blocks, largest_painted),
    rule(some_blocks, |row, _| moved_by_own_size(row)),
    rule(some_blocks, colours_exchanged),
    rule(some_blocks, left_halves_painted),
    rule(some_blocks, pairs_marked),
    rule(some_points, |row, _| points_counted(row)),
    rule(some_blocks, |row, _| blocks_sorted(row)),
];

fn draw_colour(random: &mut SplitMix64) -> u8 {
    1 + random.below(9) as u8
}

fn one_block(random: &mut SplitMix64, size: usize, _: &How) -> Vec<u8> {
    let mut row = vec![0; size];
    let length = 2 + random.index_below(size / 3);
    let start = random.index_below(size - length - 2);
    let colour = draw_colour(random);
    row[start..start + length].fill(colour);
    row
}

/// Blocks of one to four cells, with ground between.
fn some_blocks(random: &mut SplitMix64, size: usize, how: &How) -> Vec<u8> {
    let mut row = vec![0; size];
    let mut at = random.index_below(3);
    while at < size {
        let end = (at + 1 + random.index_below(4)).min(size);
        let colour = match random.below(4) {
            0 => how.colour,
            1 => how.other,
            _ => draw_colour(random),
        };
        row[at..end].fill(colour);
        at = end + 1 + random.index_below(4);
    }
    row
}

fn some_points(random: &mut SplitMix64, size: usize, how: &How) -> Vec<u8> {
    (0..size).map(|_| if random.below(3) == 0 { how.colour } else { 0 }).collect()
}

fn two_points(random: &mut SplitMix64, size: usize, _: &How) -> Vec<u8> {
    let mut row = vec![0; size];
    let first = random.index_below(size - 3);
    let second = first + 2 + random.index_below(size - first - 2);
    let colour = draw_colour(random);
    row[first] = colour;
    row[second] = colour;
    row
}

fn blocks_and_noise(random: &mut SplitMix64, size: usize, how: &How) -> Vec<u8> {
    let mut row = one_block(random, size, how);
    for at in 0..size {
        let is_alone = (at.saturating_sub(1)..(at + 2).min(size)).all(|near| row[near] == 0);
        if is_alone && random.below(3) == 0 {
            row[at] = draw_colour(random);
        }
    }
    row
}

/// Runs of one colour that is not the ground.
fn find_blocks(row: &[u8]) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for (at, cell) in row.iter().enumerate().filter(|(_, cell)| **cell != 0) {
        match blocks.last_mut() {
            Some(block) if block.end == at && row[block.start] == *cell => block.end += 1,
            _ => blocks.push(at..at + 1),
        }
    }
    blocks
}

fn moved_right(row: &[u8], how: &How) -> Vec<u8> {
    let shift = how.shift.min(row.len());
    [&vec![0; shift], &row[..row.len() - shift]].concat()
}

fn moved_around(row: &[u8], how: &How) -> Vec<u8> {
    let mut row = row.to_vec();
    let shift = how.shift % row.len();
    row.rotate_right(shift);
    row
}

fn filled_between(row: &[u8], _: &How) -> Vec<u8> {
    let mut row = row.to_vec();
    let points: Vec<usize> = (0..row.len()).filter(|at| row[*at] != 0).collect();
    if let [first, second] = points[..] {
        let colour = row[first];
        row[first..second].fill(colour);
    }
    row
}

fn points_fallen_left(row: &[u8]) -> Vec<u8> {
    let mut fallen: Vec<u8> = row.iter().copied().filter(|cell| *cell != 0).collect();
    fallen.resize(row.len(), 0);
    fallen
}

fn blocks_hollowed(row: &[u8]) -> Vec<u8> {
    let mut hollow = row.to_vec();
    for block in find_blocks(row).into_iter().filter(|block| block.len() > 2) {
        hollow[block.start + 1..block.end - 1].fill(0);
    }
    hollow
}

fn without_noise(row: &[u8]) -> Vec<u8> {
    let mut kept = vec![0; row.len()];
    for block in find_blocks(row).into_iter().filter(|block| block.len() > 1) {
        kept[block.clone()].copy_from_slice(&row[block]);
    }
    kept
}

/// The longest block, the first of several.
fn largest_painted(row: &[u8], how: &How) -> Vec<u8> {
    let mut painted = row.to_vec();
    if let Some(block) = find_blocks(row).into_iter().rev().max_by_key(ExactSizeIterator::len) {
        painted[block].fill(how.colour);
    }
    painted
}

fn moved_by_own_size(row: &[u8]) -> Vec<u8> {
    let mut moved = vec![0; row.len()];
    if let Some(block) = find_blocks(row).into_iter().next() {
        let target = block.end..(block.end + block.len()).min(row.len());
        moved[target].fill(row[block.start]);
    }
    moved
}

fn colours_exchanged(row: &[u8], how: &How) -> Vec<u8> {
    let exchanged = |cell: &u8| match *cell {
        cell if cell == how.colour => how.other,
        cell if cell == how.other => how.colour,
        cell => cell,
    };
    row.iter().map(exchanged).collect()
}

fn left_halves_painted(row: &[u8], how: &How) -> Vec<u8> {
    let mut painted = row.to_vec();
    for block in find_blocks(row).into_iter().filter(|block| block.len().is_multiple_of(2)) {
        painted[block.start..block.start + block.len() / 2].fill(how.colour);
    }
    painted
}

fn pairs_marked(row: &[u8], how: &How) -> Vec<u8> {
    let mut marked = row.to_vec();
    for block in find_blocks(row).into_iter().filter(|block| block.len() == 2) {
        marked[block].fill(how.colour);
    }
    marked
}

/// As many cells at the left as there were points, all of the first colour.
fn points_counted(row: &[u8]) -> Vec<u8> {
    let points = find_blocks(row);
    let colour = points.first().map_or(0, |block| row[block.start]);
    let mut counted = vec![0; row.len()];
    counted[..points.len()].fill(colour);
    counted
}

/// Blocks by their length, one cell of ground between.
fn blocks_sorted(row: &[u8]) -> Vec<u8> {
    let mut all = find_blocks(row);
    all.small_sort_by_key(ExactSizeIterator::len);
    let mut sorted: Vec<u8> = Vec::new();
    for block in all {
        sorted.extend(&row[block]);
        sorted.push(0);
    }
    sorted.resize(row.len(), 0);
    sorted
}
