//! What is kept of jobs that have left the queue: by `sacct` as JSON or as text, or where nothing accounts, by the text file of
//! `jobcomp/filetxt`.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value;

use super::client::{Answer, Client};
use super::indexes::indexes;
use super::number::number;
use super::state::JobState;

/// Bytes of the end of a file of ended jobs that are read: some 200,000 jobs.
const MOST_BYTES: u64 = 64 << 20;

/// A job, or a task of an array, that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The job that `sbatch` named.
    pub job: u64,
    /// The array's task.
    pub task: Option<u64>,
    pub name: String,
    pub state: JobState,
    /// Seconds that its last start ran.
    pub seconds: Option<f64>,
}

/// The columns of `sacct` as text; a name stands last, because it may hold anything but a line's end.
const COLUMNS: &str = "JobID,State,ElapsedRaw,JobName";

/// What is known of `jobs`: an empty list where nothing keeps account.
///
/// # Errors
/// Where nobody answered.
pub(super) fn of_jobs(client: &Client, jobs: &[u64]) -> Result<Vec<Past>, String> {
    let list = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let chosen = format!("--jobs={list}");
    let as_json = client.call_program("sacct", &["--json", &chosen], None);
    if let Answer::Said(text) = &as_json
        && let Ok(past) = of_json(text)
    {
        return Ok(past);
    }
    let words = ["--noheader", "--parsable2", "--allocations", &chosen, &format!("--format={COLUMNS}")];
    match client.call_program("sacct", &words, None) {
        Answer::Said(text) => of_text(&text),
        // No accounting, no such program: what jobcomp wrote is what there is.
        Answer::Refused(_) => Ok(of_completed(client, jobs)),
        Answer::Silent(why) => Err(why),
    }
}

/// Reads the JSON of `sacct --json`.
///
/// # Errors
/// When it is none, is cut off, or has a state that is not known.
fn of_json(text: &str) -> Result<Vec<Past>, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let jobs = document.get("jobs").and_then(Value::as_array).ok_or("it has no list `jobs`")?;
    let past = jobs.iter().map(ended_jobs).collect::<Result<Vec<_>, String>>()?;
    Ok(past.into_iter().flatten().collect())
}

fn ended_jobs(job: &Value) -> Result<Vec<Past>, String> {
    let own = job.get("job_id").and_then(number).ok_or("a job has no number")?;
    let array = job.pointer("/array/job_id").and_then(number).filter(|array| *array > 0);
    let task = job.pointer("/array/task_id").and_then(number).filter(|_| array.is_some());
    let state = job.get("state").and_then(JobState::of_json).ok_or("a job has no state")?;
    let name = job.get("name").and_then(Value::as_str).unwrap_or_default();
    let seconds = job.pointer("/time/elapsed").and_then(number).map(|seconds| seconds as f64);
    // Tasks that never began are one row.
    let rest = job.pointer("/array/task").and_then(Value::as_str).filter(|_| array.is_some() && task.is_none());
    let tasks = match rest.and_then(|rest| indexes(rest).or_else(|| of_bits(rest))) {
        Some(tasks) => tasks.into_iter().map(Some).collect(),
        None => vec![task],
    };
    let one = |task| Past { job: array.unwrap_or(own), task, name: name.to_owned(), state, seconds };
    Ok(tasks.into_iter().map(one).collect())
}

/// Tasks as the bits of a number in hexadecimal digits, which is how accounting keeps those that never began: `0x2E0`.
fn of_bits(text: &str) -> Option<Vec<u64>> {
    let digits = text.strip_prefix("0x")?;
    let mut tasks = Vec::new();
    for (at, digit) in digits.chars().rev().enumerate() {
        let digit = digit.to_digit(16)?;
        tasks.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| 4 * at as u64 + bit));
    }
    Some(tasks)
}

/// Reads `sacct`'s lines of [`COLUMNS`].
///
/// # Errors
/// When a line is cut off.
fn of_text(text: &str) -> Result<Vec<Past>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("sacct's last line is cut off".to_owned());
    }
    let line = |line: &str| {
        let mut fields = line.splitn(4, '|');
        let (job, tasks) = numbered_steps(fields.next()?)?;
        let state = JobState::of_word(fields.next()?)?;
        let seconds = fields.next()?.parse().ok();
        let name = fields.next()?.to_owned();
        Some(tasks.into_iter().map(move |task| Past { job, task, name: name.clone(), state, seconds }))
    };
    Ok(text.lines().filter_map(line).flatten().collect())
}

/// `7`, `7_3` or `7_[3-5]`.
fn numbered_steps(text: &str) -> Option<(u64, Vec<Option<u64>>)> {
    match text.split_once('_') {
        None => Some((text.parse().ok()?, vec![None])),
        Some((job, tasks)) => Some((job.parse().ok()?, indexes(tasks)?.into_iter().map(Some).collect())),
    }
}

/// By the file of `jobcomp/filetxt`, where that is what the controller writes and this machine sees it.
fn of_completed(client: &Client, jobs: &[u64]) -> Vec<Past> {
    let Answer::Said(config) = client.call_program("scontrol", &["show", "config"], None) else { return Vec::new() };
    let value = |key: &str| {
        let line = config.lines().find(|line| line.split('=').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split_once('=')).map(|(_, value)| value.trim().to_owned())
    };
    if value("JobCompType").as_deref() != Some("jobcomp/filetxt") {
        return Vec::new();
    }
    // Who may not read it, or is on another machine, knows no more than that the job is gone.
    let text = value("JobCompLoc").and_then(|path| end_of(Path::new(&path), MOST_BYTES).ok());
    let past = text.iter().flat_map(|text| text.lines()).filter_map(completed_line);
    past.filter(|past| jobs.contains(&past.job)).collect()
}

/// The last `most` bytes of a file, as text.
pub(super) fn end_of(path: &Path, most: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A line of that file. A name may hold blanks, and `Key=` of its own: each key is looked for behind the one before.
fn completed_line(line: &str) -> Option<Past> {
    let own: u64 = line.strip_prefix("JobId=")?.split(' ').next()?.parse().ok()?;
    let name = line.split_once(" Name=")?.1;
    // The last: a name that says `JobState=` stands before the job's own.
    let (name, rest) = name.rsplit_once(" JobState=")?;
    let state = JobState::of_word(rest)?;
    let field = |key: &str| rest.split(' ').rev().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let array = field("ArrayJobId").and_then(|text| text.parse().ok()).filter(|array: &u64| *array > 0);
    let task = field("ArrayTaskId").and_then(|text| text.parse().ok());
    Some(Past {
        job: array.unwrap_or(own),
        task: task.filter(|_| array.is_some()),
        name: name.to_owned(),
        state,
        seconds: None,
    })
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
