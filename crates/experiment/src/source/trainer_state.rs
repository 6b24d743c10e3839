//! `trainer_state.json` of Hugging Face's Trainer: its `log_history`. Checkpoints of one run hold the same history, each a longer
//! part of it.

use std::io::BufRead;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::flat::mend_line;
use super::json_lines::{Rows, read_whole};
use super::{Found, Place, Reader};

pub(super) const READER: Reader = Reader {
    name: "the Trainer's state",
    files: "trainer_state.json",
    takes: |name, _| name == "trainer_state.json",
    read: read_trainer_state,
};

#[derive(Deserialize)]
struct State {
    log_history: Vec<Box<RawValue>>,
}

fn read_trainer_state(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let text = read_whole(input)?;
    let state: State = serde_json::from_slice(&text).or_else(|error| {
        let mut patched = Vec::new();
        match mend_line(&text, &mut patched) {
            true => serde_json::from_slice(&patched).map_err(|error| error.to_string()),
            false => Err(error.to_string()),
        }
    })?;
    let mut rows = Rows::new(place);
    for (index, entry) in state.log_history.iter().enumerate() {
        rows.read_line(index + 1, entry.get().as_bytes());
    }
    let mut found = rows.finish_rows()?;
    for run in &mut found.runs {
        // The folder that holds the checkpoints is the run's.
        let folder = place.folder();
        run.place = match folder.rsplit_once('/').map_or(("", folder), |(above, last)| (above, last)) {
            (above, last) if last.starts_with("checkpoint-") => above.to_owned(),
            _ => folder.to_owned(),
        };
        // Summaries of the whole training, at its last step, are of another kind than the course.
        for name in [
            "train_runtime",
            "train_samples_per_second",
            "train_steps_per_second",
            "eval_runtime",
            "eval_samples_per_second",
            "eval_steps_per_second",
        ] {
            run.series.remove(name);
        }
    }
    Ok(found)
}
