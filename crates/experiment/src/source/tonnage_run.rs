//! A folder that `tonnage run` keeps: `run.json` and the journal beside it. What was predicted and measured of memory, attempts, what
//! failed and what that cost; metrics, if any, lie beside it as records of their own.

use std::io::BufRead;

use tonnage_core::job::keys;
use tonnage_core::record::{AttemptState, Outcome, RunRecord, RunState, read_journal};

use super::json_lines::read_whole;
use super::{Found, Place, Reader};
use crate::record::End;

pub(super) const READER: Reader = Reader {
    name: "tonnage run",
    files: "run.json with events.jsonl beside it",
    takes: |name, head| name == "run.json" && memchr::memmem::find(head, b"\"command\"").is_some(),
    read: read_run,
};

fn read_run(input: &mut dyn BufRead, place: &Place<'_>) -> Result<Found, String> {
    let record: RunRecord = serde_json::from_slice(&read_whole(input)?).map_err(|error| error.to_string())?;
    let journal = (place.beside)("events.jsonl").unwrap_or_default();
    let journal = read_journal(&String::from_utf8_lossy(&journal));
    let state = RunState::of_journal(&record, &journal.entries);
    let mut found = Found { passed_over: journal.unreadable, ..Found::default() };
    let mut run = place.run();
    place.folder().clone_into(&mut run.place);
    run.files.push(format!("{}events.jsonl", place.path.strip_suffix("run.json").unwrap_or_default()));
    run.identity.command.clone_from(&record.command);
    run.identity.versions.insert("tonnage".to_owned(), record.written_by.clone());
    if let Some(seed) =
        record.nodes.first().filter(|_| run.identity.seed.is_none() && record.nodes.len() == 1).map(|node| node.seed)
    {
        // A record of a run that was told none says 0.
        (run.identity.seed, run.seed_is_known) = if seed > 0 { (Some(seed), true) } else { (None, false) };
    }
    if let Some(job) = &record.job {
        let value = |key: &str| {
            job.values.iter().find(|value| value.key == key).map(|value| value.value.trim_matches('"').to_owned())
        };
        run.identity.gpu = value(keys::GPU);
        run.identity.gpus = value(keys::WORLD_SIZE).and_then(|value| value.parse().ok());
    }
    let attempts = || state.nodes.iter().flat_map(|node| &node.attempts);
    // A prediction is of the attempt that was measured, not of one whose batch was another.
    if let Some((predicted, reserved)) = attempts().filter_map(measured_peak).next_back() {
        (run.memory.predicted_bytes, run.memory.measured_bytes) = (predicted, Some(reserved));
    } else {
        run.memory.predicted_bytes = attempts()
            .next_back()
            .and_then(|attempt| attempt.record.predicted)
            .map(|predicted| predicted.peak_reserved_bytes);
    }
    run.end = state.result.as_ref().map(|result| End {
        outcome: outcome_word(result.outcome).to_owned(),
        reason: result.reason.clone(),
        attempts: result.cost.attempts,
        seconds: Some(result.cost.seconds),
        lost_seconds: Some(result.cost.lost_seconds),
        ..End::default()
    });
    for attempt in attempts() {
        let changes = attempt.record.changes.iter().map(|change| format!("{} = {}", change.key, change.value));
        let changes: Vec<String> = changes.collect();
        if attempt.record.number > 1 {
            let with = if changes.is_empty() { String::new() } else { format!(" with {}", changes.join(", ")) };
            run.notes.push(format!("attempt {}{with}: {}", attempt.record.number, attempt.record.reason));
        }
    }
    found.runs.push(run);
    Ok(found)
}

/// Reserved bytes of an attempt, predicted and measured.
fn measured_peak(attempt: &AttemptState) -> Option<(Option<u64>, u64)> {
    let (_, reserved) = attempt.measured?;
    Some((attempt.record.predicted.map(|predicted| predicted.peak_reserved_bytes), reserved))
}

const fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Stopped => "stopped",
        Outcome::Refused => "refused",
    }
}
