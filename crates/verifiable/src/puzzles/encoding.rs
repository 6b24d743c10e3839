//! How a grid becomes the tokens of a row, as the published sets have them.

use super::grid::Grid;

/// The side of ARC's canvas.
pub const ARC_SIDE: usize = 30;
/// Padding, and what ends a row and a column of ARC's grid.
const PAD: u8 = 0;
const END: u8 = 1;
/// The first colour.
const COLOUR: u8 = 2;

/// Where symbols begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Every cell a token, its symbol and one: 0 is padding.
    Cells {
        /// Cells of a side.
        side: usize,
        /// How many there are.
        symbols: usize,
    },
    /// On a canvas of 30 x 30, with ends behind the last row and column.
    Canvas,
}

impl Encoding {
    /// Tokens of a row.
    pub const fn tokens(self) -> usize {
        match self {
            Self::Cells { side, .. } => side * side,
            Self::Canvas => ARC_SIDE * ARC_SIDE,
        }
    }

    /// Tokens that there are.
    pub const fn vocabulary(self) -> usize {
        match self {
            Self::Cells { symbols, .. } => symbols + 1,
            Self::Canvas => 12,
        }
    }

    /// A grid's tokens, `down` rows and `right` columns from the corner, where there is room.
    pub fn encode(self, grid: &Grid, (down, right): (usize, usize)) -> Vec<u8> {
        if let Self::Cells { .. } = self {
            return grid.cells.iter().map(|cell| cell + 1).collect();
        }
        let mut canvas = vec![PAD; ARC_SIDE * ARC_SIDE];
        let mut put = |row: usize, column: usize, token: u8| {
            if row < ARC_SIDE && column < ARC_SIDE {
                canvas[row * ARC_SIDE + column] = token;
            }
        };
        for row in 0..grid.height {
            for column in 0..grid.width {
                put(row + down, column + right, grid.at(row, column) + COLOUR);
            }
            put(row + down, grid.width + right, END);
        }
        for column in 0..grid.width {
            put(grid.height + down, column + right, END);
        }
        canvas
    }

    /// How far a pair of grids can be moved on its canvas.
    pub fn room(self, one: &Grid, other: &Grid) -> (usize, usize) {
        match self {
            Self::Cells { .. } => (0, 0),
            Self::Canvas => (
                ARC_SIDE.saturating_sub(one.height.max(other.height)),
                ARC_SIDE.saturating_sub(one.width.max(other.width)),
            ),
        }
    }

    /// The grid of tokens that were not moved; `None` where they are none.
    pub fn decode(self, tokens: &[u8]) -> Option<Grid> {
        match self {
            Self::Cells { side, .. } => {
                let cells: Option<Vec<u8>> = tokens.iter().map(|token| token.checked_sub(1)).collect();
                Grid::new(side, side, cells?)
            }
            Self::Canvas => crop(tokens),
        }
    }
}

/// The largest rectangle of colours in the corner, as ARC's evaluators cut it.
fn crop(tokens: &[u8]) -> Option<Grid> {
    let is_colour =
        |row: usize, column: usize| tokens.get(row * ARC_SIDE + column).is_some_and(|token| *token >= COLOUR);
    let (mut best, mut columns) = ((0, 0), ARC_SIDE);
    for row in 0..ARC_SIDE {
        columns = (0..columns).take_while(|column| is_colour(row, *column)).count();
        if (row + 1) * columns > best.0 * best.1 {
            best = (row + 1, columns);
        }
    }
    let (height, width) = best;
    let places = (0..height).flat_map(|row| (0..width).map(move |column| row * ARC_SIDE + column));
    Grid::new(height, width, places.map(|at| tokens[at] - COLOUR).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_survives_its_tokens() {
        let grid = Grid::new(2, 3, vec![0, 1, 2, 3, 4, 9]).unwrap();
        let tokens = Encoding::Canvas.encode(&grid, (0, 0));
        assert_eq!(tokens.len(), 900);
        assert_eq!((&tokens[..4], &tokens[60..64]), (&[2, 3, 4, 1][..], &[1, 1, 1, 0][..]));
        assert_eq!(Encoding::Canvas.decode(&tokens), Some(grid.clone()));
        let moved = Encoding::Canvas.encode(&grid, (5, 7));
        assert_eq!(moved[5 * 30 + 7..5 * 30 + 11], [2, 3, 4, 1]);
        assert_eq!(Encoding::Canvas.decode(&moved), None, "the corner has no colour");
        let large = Grid::new(30, 30, vec![3; 900]).unwrap();
        assert_eq!(Encoding::Canvas.decode(&Encoding::Canvas.encode(&large, (0, 0))), Some(large));
        let cells = Encoding::Cells { side: 2, symbols: 3 };
        let board = Grid::new(2, 2, vec![0, 2, 1, 0]).unwrap();
        assert_eq!(cells.encode(&board, (0, 0)), [1, 3, 2, 1]);
        assert_eq!((cells.decode(&[1, 3, 2, 1]), cells.decode(&[0, 3, 2, 1])), (Some(board), None));
    }
}
