//! Published sets as CSV: Sudoku-Extreme's (`source,question,answer,rating`) and Maze-Hard's, whose columns are the same.

use super::grid::Grid;
use super::maze::SYMBOLS;
use super::set::{Example, PuzzleError};
use super::sudoku::{BoxShape, is_solution_of};

/// Sudokus; a blank is `.` or `0`. Each answer must solve its question.
///
/// # Errors
/// When a line is none; the error says which.
pub fn read_sudoku_lines(text: &str, shape: BoxShape) -> Result<Vec<Example>, PuzzleError> {
    let side = shape.size();
    let symbol = |c: u8| match c {
        b'.' => Some(0),
        b'0'..=b'9' => Some(c - b'0'),
        b'A'..=b'P' => Some(c - b'A' + 10),
        _ => None,
    };
    read_lines(text, side, &symbol, &|input, output| is_solution_of(shape, output, input))
}

/// Mazes of `# SGo`.
///
/// # Errors
/// When a line is none; the error says which.
pub fn read_maze_lines(text: &str, side: usize) -> Result<Vec<Example>, PuzzleError> {
    let symbol = |c: u8| SYMBOLS.iter().position(|known| *known == c).and_then(|at| u8::try_from(at).ok());
    read_lines(text, side, &symbol, &|input, output| input.cells.len() == output.cells.len())
}

fn read_lines(
    text: &str,
    side: usize,
    symbol: &dyn Fn(u8) -> Option<u8>,
    belong: &dyn Fn(&Grid, &Grid) -> bool,
) -> Result<Vec<Example>, PuzzleError> {
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = lines.next().map(|(_, line)| line.split(',').map(str::trim).collect()).unwrap_or_default();
    let column = |name: &str| {
        let missing = || PuzzleError::new(format!("has no column `{name}` in its first line"));
        header.iter().position(|known| *known == name).ok_or_else(missing)
    };
    let (question, answer) = (column("question")?, column("answer")?);
    let rating = column("rating").ok();
    let mut all = Vec::new();
    for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| PuzzleError::new(format!("line {}: {what}", at + 1));
        let parts: Vec<&str> = line.split(',').collect();
        let grid = |place: usize| {
            let text = parts.get(place).ok_or_else(|| wrong("has too few columns"))?;
            let cells: Option<Vec<u8>> = text.trim_end_matches('\r').bytes().map(symbol).collect();
            let cells = cells.ok_or_else(|| wrong("has a character that is no cell"))?;
            let size = cells.len();
            let other = || wrong(&format!("has {size} cells, and {} were expected", side * side));
            Grid::new(side, side, cells).ok_or_else(other)
        };
        let (input, output) = (grid(question)?, grid(answer)?);
        if !belong(&input, &output) {
            return Err(wrong("its answer does not solve its question"));
        }
        let difficulty =
            rating.and_then(|at| parts.get(at)).map_or_else(String::new, |rating| format!("rating {rating}"));
        all.push(Example { name: format!("line {}", at + 1), task: 0, input, output, difficulty });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_lines_are_read_and_checked() {
        let shape = BoxShape::of_side(4).unwrap();
        let text = "source,question,answer,rating\nx,12..34.....2....,1234341241232341,7\n";
        let error = read_sudoku_lines(text, shape).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("does not solve"), "{error}");
        let text = "source,question,answer,rating\nx,12..34.........4.,1234341221434321,7\n";
        assert!(read_sudoku_lines(text, shape).unwrap_err().to_string().contains("17 cells, and 16"));
        let text = "source,question,answer,rating\nx,12..34..........,1234341221434321,7\n";
        let read = read_sudoku_lines(text, shape).unwrap();
        assert_eq!((read.len(), read[0].difficulty.as_str(), read[0].input.cells[1]), (1, "rating 7", 2));
        assert!(read_sudoku_lines("a,b\n", shape).unwrap_err().to_string().contains("`question`"));
        let maze = read_maze_lines("question,answer\n#S G,#SoG\n", 2).unwrap();
        assert_eq!(maze[0].output.cells, [0, 2, 4, 3]);
    }
}
