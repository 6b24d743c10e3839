//! [`Grid`]: what puzzles are drawn on.

/// Cells in rows, each a symbol of its puzzle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grid {
    /// How many rows.
    pub height: usize,
    /// Cells of a row.
    pub width: usize,
    /// Row after row.
    pub cells: Vec<u8>,
}

impl Grid {
    /// `None` where there are not as many cells as rows and columns say, or none.
    pub fn new(height: usize, width: usize, cells: Vec<u8>) -> Option<Self> {
        (height > 0 && width > 0 && cells.len() == height * width).then_some(Self { height, width, cells })
    }

    /// The cell of a row and a column, which are on the grid.
    pub fn at(&self, row: usize, column: usize) -> u8 {
        self.cells[row * self.width + column]
    }

    /// A grid of another size whose cells are looked up here: `source(row, column)` says where.
    pub(super) fn looked_up(
        &self,
        height: usize,
        width: usize,
        source: impl Fn(usize, usize) -> (usize, usize),
    ) -> Self {
        let places = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
        let cells = places.map(|(row, column)| source(row, column)).map(|(row, column)| self.at(row, column)).collect();
        Self { height, width, cells }
    }

    /// With every symbol replaced.
    pub(super) fn with_symbols(&self, symbols: &[u8]) -> Self {
        let cells = self.cells.iter().map(|cell| symbols.get(usize::from(*cell)).copied().unwrap_or(*cell)).collect();
        Self { cells, ..*self }
    }
}
