//! Mazes with one way from start to goal, made from a seed. Symbols are those of the published set: `# SGo`.

use tonnage_core::random::SplitMix64;

use super::grid::Grid;
use super::sudoku::shuffle;

/// Symbols, in the order of the published file's characters.
pub(super) const SYMBOLS: &[u8; 5] = b"# SGo";
const WALL: u8 = 0;
const FREE: u8 = 1;
const START: u8 = 2;
const GOAL: u8 = 3;
const WAY: u8 = 4;

/// Which mazes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MazeDraw {
    /// Cells of a side.
    pub side: usize,
    /// Cells of the way at least, start and goal counted.
    pub least_way: usize,
}

/// The maze of a seed and its way; `None` where the way came out too short.
pub fn make_maze(draw: MazeDraw, seed: u64) -> Option<(Grid, Grid)> {
    let mut random = SplitMix64::new(seed);
    let side = draw.side;
    let mut grid = Grid::new(side, side, vec![WALL; side * side])?;
    // Rooms are every other cell; the passages between them make a tree, in which each two have one way.
    let rooms = side.div_ceil(2);
    let place = |room: usize| (room / rooms * 2) * side + room % rooms * 2;
    let mut parent: Vec<Option<usize>> = vec![None; rooms * rooms];
    let mut open = vec![random.index_below(rooms * rooms)];
    let mut seen = vec![false; rooms * rooms];
    seen[open[0]] = true;
    grid.cells[place(open[0])] = FREE;
    while let Some(&room) = open.last() {
        let mut next = neighbours(room, rooms);
        shuffle(&mut next, &mut random);
        let Some(&other) = next.iter().find(|other| !seen[**other]) else {
            open.pop();
            continue;
        };
        seen[other] = true;
        parent[other] = Some(room);
        grid.cells[place(other)] = FREE;
        grid.cells[usize::midpoint(place(room), place(other))] = FREE;
        open.push(other);
    }
    let (from, to) = (random.index_below(rooms * rooms), random.index_below(rooms * rooms));
    let way = way_between(&parent, from, to);
    if way.len() * 2 - 1 < draw.least_way.max(3) {
        return None;
    }
    grid.cells[place(from)] = START;
    grid.cells[place(to)] = GOAL;
    let mut solved = grid.clone();
    for pair in way.windows(2) {
        for at in [place(pair[0]), usize::midpoint(place(pair[0]), place(pair[1])), place(pair[1])] {
            if solved.cells[at] == FREE {
                solved.cells[at] = WAY;
            }
        }
    }
    Some((grid, solved))
}

fn neighbours(room: usize, rooms: usize) -> Vec<usize> {
    let (row, column) = (room / rooms, room % rooms);
    let mut all = Vec::new();
    all.extend((row > 0).then(|| room - rooms));
    all.extend((row + 1 < rooms).then_some(room + rooms));
    all.extend((column > 0).then(|| room - 1));
    all.extend((column + 1 < rooms).then_some(room + 1));
    all
}

/// Rooms from one to another through the tree.
fn way_between(parent: &[Option<usize>], from: usize, to: usize) -> Vec<usize> {
    let up = |room: usize| std::iter::successors(Some(room), |room| parent[*room]).collect::<Vec<_>>();
    let (mut first, mut second) = (up(from), up(to));
    let mut meeting = None;
    while let (Some(one), Some(other)) = (first.last(), second.last()) {
        if one != other {
            break;
        }
        meeting = first.pop();
        second.pop();
    }
    first.extend(meeting);
    first.extend(second.into_iter().rev());
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_leads_from_start_to_goal_and_is_the_only_one() {
        let mut made = 0;
        for seed in 0..40 {
            let Some((grid, solved)) = make_maze(MazeDraw { side: 11, least_way: 9 }, seed) else { continue };
            made += 1;
            let count = |grid: &Grid, symbol| grid.cells.iter().filter(|cell| **cell == symbol).count();
            assert_eq!((count(&grid, START), count(&grid, GOAL), count(&grid, WAY)), (1, 1, 0));
            let start = grid.cells.iter().position(|cell| *cell == START).unwrap();
            // Along the way, each cell has one that comes next.
            let (mut at, mut before, mut length) = (start, usize::MAX, 1);
            while solved.cells[at] != GOAL {
                let (row, column) = (at / 11, at % 11);
                let mut next = Vec::new();
                next.extend((row > 0).then(|| at - 11));
                next.extend((row < 10).then_some(at + 11));
                next.extend((column > 0).then(|| at - 1));
                next.extend((column < 10).then_some(at + 1));
                next.retain(|cell| *cell != before && matches!(solved.cells[*cell], WAY | GOAL));
                assert_eq!(next.len(), 1, "seed {seed}");
                (before, at, length) = (at, next[0], length + 1);
            }
            assert_eq!(length, count(&solved, WAY) + 2);
            assert!(length >= 9);
            let plain: Vec<u8> = solved.cells.iter().map(|cell| if *cell == WAY { FREE } else { *cell }).collect();
            assert_eq!(plain, grid.cells, "nothing but the way is added");
        }
        assert!(made > 20, "{made}");
    }
}
