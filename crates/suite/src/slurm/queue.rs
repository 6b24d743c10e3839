//! What `squeue` says: as JSON of 21.08 and later, or as text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::indexes::indexes;
use super::number::number;
use super::state::JobState;

/// A job, or tasks of an array, as the controller has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The job that `sbatch` named: of an array its first number.
    pub job: u64,
    /// The array's tasks; none of a job that is no array.
    pub tasks: Vec<u64>,
    /// The job's name.
    pub name: String,
    pub state: JobState,
    /// Why it waits.
    pub reason: String,
    /// As SLURM writes lists of hosts.
    pub nodes: String,
}

/// How `squeue` is asked for text; a name stands last, because it may hold anything but a line's end.
pub(super) const TEXT: &str = "%F|%K|%T|%N|%r|%j";

/// Reads the JSON of `squeue --json`.
///
/// # Errors
/// When it is none, is cut off, or has an error of its own and no jobs.
pub(super) fn of_json(text: &str) -> Result<Vec<Queued>, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    if let Some(error) = document.get("errors").and_then(Value::as_array).and_then(|errors| errors.first()) {
        return Err(format!("it has an error: {error}"));
    }
    let jobs = document.get("jobs").and_then(Value::as_array).ok_or("it has no list `jobs`")?;
    jobs.iter().map(queued_job).collect()
}

fn queued_job(job: &Value) -> Result<Queued, String> {
    let own = job.get("job_id").and_then(number).ok_or("a job has no number")?;
    let array = job.get("array_job_id").and_then(number).filter(|array| *array > 0);
    let task = job.get("array_task_id").and_then(number);
    let waiting = job.get("array_task_string").and_then(Value::as_str).filter(|tasks| !tasks.is_empty());
    let tasks = match (array, task, waiting) {
        (None, ..) => Vec::new(),
        (Some(_), _, Some(list)) => indexes(list).ok_or_else(|| format!("tasks `{list}` of job {own} are no list"))?,
        (Some(_), Some(task), None) => vec![task],
        (Some(_), None, None) => Vec::new(),
    };
    let text = |key: &str| job.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let state = job.get("job_state").ok_or_else(|| format!("job {own} has no state"))?;
    Ok(Queued {
        job: array.unwrap_or(own),
        tasks,
        name: text("name"),
        state: JobState::of_json(state).ok_or_else(|| format!("job {own} has a state that is not known: {state}"))?,
        reason: text("state_reason"),
        nodes: text("nodes"),
    })
}

/// Reads the lines of `squeue --noheader --format` [`TEXT`]. What is no line of a job is passed over: wrappers say things, too.
///
/// # Errors
/// When a job's line cannot be read, or no line is a job's: what is not read would count as gone.
pub(super) fn of_text(text: &str) -> Result<Vec<Queued>, String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if !lines.is_empty() && !text.ends_with('\n') {
        return Err("its last line is cut off".to_owned());
    }
    let is_job = |line: &&str| line.split_once('|').is_some_and(|(job, _)| job.trim().parse::<u64>().is_ok());
    let of_jobs: Vec<&str> = lines.iter().copied().filter(is_job).collect();
    if let (true, Some(first)) = (of_jobs.is_empty(), lines.first()) {
        return Err(format!("its lines are of another form: `{first}`"));
    }
    of_jobs
        .into_iter()
        .map(|text| queued_line(text).ok_or_else(|| format!("its line `{text}` cannot be read")))
        .collect()
}

fn queued_line(line: &str) -> Option<Queued> {
    let mut fields = line.splitn(6, '|');
    let mut next = || fields.next().map(str::trim);
    let job = next()?.parse().ok()?;
    let tasks = match next()? {
        "" | "N/A" => Vec::new(),
        list => indexes(list)?,
    };
    let state = JobState::of_word(next()?)?;
    let [nodes, reason, name] = [next()?, next()?, next()?].map(str::to_owned);
    Some(Queued { job, tasks, name, state, reason, nodes })
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
