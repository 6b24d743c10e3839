//! ARC's task files: demonstrations and tests, each a pair of grids.

use super::grid::Grid;
use super::set::PuzzleError;

/// Pairs of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArcTask {
    /// Demonstrations: input and output.
    pub train: Vec<(Grid, Grid)>,
    /// What is asked, and where the file tells it, answered.
    pub test: Vec<(Grid, Option<Grid>)>,
}

/// The largest side, and the number of colours.
const LARGEST: usize = 30;
const COLOURS: u64 = 10;

/// Reads a file `{"train": [{"input": [[...]], "output": [[...]]}], "test": [...]}`.
///
/// # Errors
/// When it is none; the error says where.
pub fn read_arc_task(text: &str) -> Result<ArcTask, PuzzleError> {
    let file: serde_json::Value =
        serde_json::from_str(text).map_err(|error| PuzzleError::new(format!("is no JSON: {error}")))?;
    let pairs = |part: &str| {
        let all = file.get(part).and_then(serde_json::Value::as_array);
        all.ok_or_else(|| PuzzleError::new(format!("has no list `{part}`: it is no task of ARC")))
    };
    let mut task = ArcTask::default();
    for (at, pair) in pairs("train")?.iter().enumerate() {
        let grid = |key: &str| read_grid(pair.get(key), &format!("train[{at}].{key}"));
        task.train.push((grid("input")?, grid("output")?));
    }
    for (at, pair) in pairs("test")?.iter().enumerate() {
        let input = read_grid(pair.get("input"), &format!("test[{at}].input"))?;
        let output = pair.get("output").map(|one| read_grid(Some(one), &format!("test[{at}].output"))).transpose()?;
        task.test.push((input, output));
    }
    Ok(task)
}

fn read_grid(value: Option<&serde_json::Value>, place: &str) -> Result<Grid, PuzzleError> {
    let wrong = |what: &str| PuzzleError::new(format!("`{place}` {what}"));
    let rows = value.and_then(serde_json::Value::as_array).ok_or_else(|| wrong("is no list of rows"))?;
    let mut cells = Vec::new();
    let mut width = None;
    for row in rows {
        let row = row.as_array().ok_or_else(|| wrong("is no list of rows"))?;
        if *width.get_or_insert(row.len()) != row.len() {
            return Err(wrong("has rows of different lengths"));
        }
        for cell in row {
            let colour = cell.as_u64().filter(|colour| *colour < COLOURS);
            let colour = colour.ok_or_else(|| wrong("has a cell that is no colour from 0 to 9"))?;
            cells.push(u8::try_from(colour).unwrap_or_default());
        }
    }
    let width = width.unwrap_or(0);
    if rows.len() > LARGEST || width > LARGEST {
        return Err(wrong("is larger than 30 x 30"));
    }
    Grid::new(rows.len(), width, cells).ok_or_else(|| wrong("has no cell"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_and_what_is_none_names_its_place() {
        let text = r#"{"train": [{"input": [[1, 0], [0, 1]], "output": [[2]]}], "test": [{"input": [[3, 4]]}]}"#;
        let task = read_arc_task(text).unwrap();
        assert_eq!(task.train[0].0, Grid::new(2, 2, vec![1, 0, 0, 1]).unwrap());
        assert_eq!((task.test[0].0.width, &task.test[0].1), (2, &None));
        for (text, wanted) in [
            ("[", "no JSON"),
            ("{}", "`train`"),
            (r#"{"train": [], "test": [{"input": [[1], [2, 3]]}]}"#, "`test[0].input` has rows of different lengths"),
            (r#"{"train": [{"input": [[10]], "output": [[1]]}], "test": []}"#, "`train[0].input` has a cell"),
            (r#"{"train": [{"input": [[1]]}], "test": []}"#, "`train[0].output`"),
            (r#"{"train": [{"input": [], "output": [[1]]}], "test": []}"#, "has no cell"),
        ] {
            let error = read_arc_task(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
