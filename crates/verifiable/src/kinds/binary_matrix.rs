//! Distances to the nearest zero in a matrix of zeros and ones.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};

pub(super) const KIND: Kind = Kind {
    name: "binary_matrix",
    about: "the distance of each cell to the nearest 0, steps to the four sides",
    levels: 4,
    is_terse: false,
    make: make_matrix,
    adopt: adopt_answer,
    check: is_same_matrix,
};

type Matrix = Vec<Vec<u32>>;

/// One cell in four is 0, at least one.
fn make_matrix(random: &mut SplitMix64, level: u32) -> Made {
    let side = [3, 4, 6, 10][level as usize - 1];
    let side = side - usize::try_from(random.below(2)).unwrap_or(0);
    let mut cells: Matrix = (0..side).map(|_| (0..side).map(|_| u32::from(random.below(4) > 0)).collect()).collect();
    let (row, column) = (random.index_below(side), random.index_below(side));
    cells[row][column] = 0;
    let text = format!(
        "For each cell of this matrix give the distance to the nearest 0, counted in steps up, down, left and right. \
         Write the matrix of distances in the same form.\n{}",
        write_matrix(&cells)
    );
    Made::new(text, write_matrix(&distances_to_zero(&cells)))
}

/// Rows and numbers must be the same; how many blanks stand between is free.
fn is_same_matrix(question: &Question, answer: &str) -> bool {
    let cells = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
    };
    cells(answer) == cells(&question.answer)
}

fn write_matrix(cells: &Matrix) -> String {
    let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    cells.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Waves from all zeros at once.
fn distances_to_zero(cells: &Matrix) -> Matrix {
    let side = cells.len();
    let mut found: Vec<Vec<Option<u32>>> =
        cells.iter().map(|row| row.iter().map(|cell| (*cell == 0).then_some(0)).collect()).collect();
    let all = || (0..side).flat_map(move |row| (0..side).map(move |column| (row, column)));
    for distance in 0..2 * side as u32 {
        for (row, column) in all().filter(|(row, column)| cells[*row][*column] != 0) {
            let beside =
                [(row.wrapping_sub(1), column), (row + 1, column), (row, column.wrapping_sub(1)), (row, column + 1)];
            let is_next = beside.iter().any(|(row, column)| {
                found.get(*row).and_then(|cells| cells.get(*column)).is_some_and(|cell| *cell == Some(distance))
            });
            if found[row][column].is_none() && is_next {
                found[row][column] = Some(distance + 1);
            }
        }
    }
    found.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect()
}
