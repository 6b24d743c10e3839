//! What does not change under any symmetry of a Sudoku: boards that are symmetric copies of one another have the same, so that a split
//! by it never puts one into training and its copy among those held out.

use super::grid::Grid;
use super::sudoku::BoxShape;
use tonnage_core::small_sort::SmallSort;

/// How clues lie, whatever digits are called, and whichever rows of a band, bands, columns, stacks and, of square boxes, rows and columns
/// change places.
pub(super) fn invariant(shape: BoxShape, board: &Grid) -> Vec<u8> {
    let size = shape.size();
    let is_clue = |row: usize, column: usize| u8::from(board.at(row, column) > 0);
    let rows: Vec<u8> = (0..size).map(|row| (0..size).map(|column| is_clue(row, column)).sum()).collect();
    let columns: Vec<u8> = (0..size).map(|column| (0..size).map(|row| is_clue(row, column)).sum()).collect();
    let mut sides = [grouped(&rows, shape.rows()), grouped(&columns, shape.columns())];
    if shape.rows() == shape.columns() {
        sides.small_sort();
    }
    let mut boxes = vec![0; size];
    let mut digits = vec![0; size + 1];
    for row in 0..size {
        for column in 0..size {
            boxes[shape.box_of(row, column)] += is_clue(row, column);
            digits[usize::from(board.at(row, column)).min(size)] += 1;
        }
    }
    digits[0] = 0;
    boxes.sort_unstable();
    digits.sort_unstable();
    [sides.concat(), boxes, digits].concat()
}

/// Counts sorted within each group, and the groups sorted.
fn grouped(counts: &[u8], group: usize) -> Vec<u8> {
    let mut groups: Vec<Vec<u8>> = counts
        .chunks(group.max(1))
        .map(|chunk| {
            let mut chunk = chunk.to_vec();
            chunk.sort_unstable();
            chunk
        })
        .collect();
    groups.small_sort();
    groups.concat()
}

#[cfg(test)]
mod tests {
    use super::super::sudoku::SudokuDraw;
    use super::super::view::{Looks, View};
    use super::*;

    #[test]
    fn no_symmetry_changes_it_and_most_boards_differ_in_it() {
        for side in [4, 6, 9] {
            let shape = BoxShape::of_side(side).unwrap();
            let draw = SudokuDraw { shape, clues: (side * side / 3, side * side / 2), least_guesses: 0 };
            let mut all = std::collections::BTreeSet::new();
            for seed in 0..12 {
                let (board, _) = draw.dig(&draw.solution(seed), seed).unwrap();
                let own = invariant(shape, &board);
                for view in 0..20 {
                    let copy = View::of_seed(Looks::Sudoku(shape), view).apply(&board);
                    assert_eq!(invariant(shape, &copy), own, "side {side}, board {seed}, view {view}");
                }
                all.insert(own);
            }
            assert!(all.len() >= 6, "side {side}: {} of 12", all.len());
        }
    }
}
