//! [`Submission`]: what is missing of a suite, sent to SLURM. All arrays are tried by `sbatch --test-only` before the first is sent. What is
//! sent is written down before and after, so that whoever dies in between sends nothing twice.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tonnage_run::RunError;
use tonnage_run::clock::now_ms;
use tonnage_run::store::{create_private_folder, write_atomically};

use super::client::{Answer, Client};
use super::follow::{View, follow_jobs};
use super::poll::Poll;
use super::{job_name, records};
use crate::folder::SuiteFolder;
use crate::identity::{hex_of, sha256};
use crate::journal::{Event, State, Where};
use crate::plan::{PlannedRun, pack_item};
use crate::render::slurm::{MOST_TASKS, array_parts, chain_links, job_script};
use crate::render::{Rendering, Shape};

/// What is sent.
pub struct Submission<'a> {
    pub client: &'a Client,
    /// The folder of everything of the user's.
    pub root: &'a Path,
    /// The suite's, whose lock the caller holds.
    pub folder: &'a SuiteFolder,
    /// The suite as scripts; its `place` is the suite's folder.
    pub rendering: &'a Rendering<'a>,
    /// Options of `sbatch` that win over the file.
    pub options: &'a [String],
    /// Failed runs that are sent again; they are marked by being sent, and stay failed where SLURM refuses them.
    pub retried: HashSet<&'a str>,
    /// What is recorded of every run.
    pub record: records::Recorded<'a>,
    /// Says something to whoever watches.
    pub say: &'a dyn Fn(&str),
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Runs that were sent.
    pub sent: usize,
    /// Runs that were sent, or run, before.
    pub open: usize,
    /// Of these, runs of which nobody knows where they are.
    pub unknown: usize,
    /// Runs that have succeeded.
    pub done: usize,
    /// Runs that have failed, and are sent again by `retry`.
    pub failed: usize,
    /// Runs that fit no GPU of their job.
    pub unfit: usize,
    /// Runs of which SLURM did not say whether it took them.
    pub unheard: usize,
}

/// Why nothing was sent, or no more.
#[derive(Debug)]
pub enum Problem {
    /// SLURM refuses it: its words.
    Refused(String),
    /// No answer within the time limit, in words.
    Silent(String),
    /// The suite cannot be rendered.
    Suite(String),
    /// The suite's folder cannot be used.
    Run(RunError),
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// An array that is to be sent.
struct Array {
    batch: String,
    path: PathBuf,
    runs: Vec<usize>,
    gpus: u64,
    links: u64,
}

impl Submission<'_> {
    /// Sends what is missing; with `is_test`, only asks whether SLURM would take it.
    ///
    /// # Errors
    /// When SLURM refuses it or does not answer, the suite cannot be rendered, or its folder cannot be written.
    pub fn send_arrays(&self, is_test: bool) -> Result<Sent, Problem> {
        let view = follow_jobs(
            self.client,
            &Poll::take_poll(self.client, self.root),
            self.root,
            self.folder,
            self.rendering.plan,
        )?;
        if let Some(why) = &view.silence {
            return Err(Problem::Silent(why.clone()));
        }
        let state = self.folder.journal.read_state()?;
        let (missing, mut sent) = self.missing_runs(&state, &view);
        let arrays = self.make_arrays(&missing)?;
        let tested = arrays.iter().try_for_each(|array| self.test_array(array));
        if is_test || tested.is_err() {
            // A script that was only tried is nobody's.
            arrays.iter().for_each(|array| drop(std::fs::remove_file(&array.path)));
            return tested.map(|()| sent);
        }
        for array in &arrays {
            self.begin_batch(array)?;
            match self.sbatch(array)? {
                true => sent.sent += array.runs.len(),
                false => sent.unheard += array.runs.len(),
            }
        }
        Ok(sent)
    }

    /// The runs that are to be sent, and how many of the others are what.
    fn missing_runs(&self, state: &State, view: &View) -> (Vec<usize>, Sent) {
        let (mut missing, mut sent) = (Vec::new(), Sent::default());
        for (at, run) in self.rendering.plan.runs.iter().enumerate() {
            match state.of_retried(&run.id, &self.retried) {
                Where::Waiting(_) if self.fits(run) => missing.push(at),
                Where::Waiting(_) => sent.unfit += 1,
                Where::Started(_) => sent.open += 1,
                Where::Submitted(_) => {
                    sent.open += 1;
                    sent.unknown +=
                        usize::from(matches!(view.runs.get(&run.id), Some(super::Standing::Unknown { .. })));
                }
                Where::Ended(end) if end.outcome == tonnage_core::record::Outcome::Succeeded => sent.done += 1,
                Where::Ended(_) => sent.failed += 1,
            }
        }
        (missing, sent)
    }

    fn fits(&self, run: &PlannedRun) -> bool {
        let one = self.rendering.plan.planned_of(run);
        let fits =
            one.predicted.as_ref().is_none_or(|predicted| pack_item(Some(predicted)).bytes <= predicted.usable_bytes);
        one.error.is_none() && fits
    }

    /// The scripts of what is missing, written.
    fn make_arrays(&self, missing: &[usize]) -> Result<Vec<Array>, Problem> {
        let folder = self.folder.path.join("slurm");
        create_private_folder(&folder.join("logs"))?;
        let most = most_tasks(self.client);
        let mut arrays = Vec::new();
        for shape in self.rendering.shapes() {
            let runs: Vec<usize> = shape.runs.iter().copied().filter(|at| missing.binary_search(at).is_ok()).collect();
            let left = Shape { runs, ..shape };
            for part in array_parts(self.rendering, &left, most) {
                let text = job_script(self.rendering, &part).map_err(Problem::Suite)?;
                let batch = name_at(&text, arrays.len());
                let path = folder.join(format!("{batch}.sbatch"));
                write_atomically(&path, text.as_bytes())?;
                let links = chain_links(self.rendering, &part);
                arrays.push(Array { batch, path, runs: part.runs, gpus: part.gpus, links });
            }
        }
        Ok(arrays)
    }

    /// Asks whether SLURM would take an array.
    fn test_array(&self, array: &Array) -> Result<(), Problem> {
        let mut words = vec!["--test-only".to_owned()];
        words.extend(self.sbatch_words(array, 1));
        match self.client.call_program("sbatch", &words, None) {
            Answer::Said(_) => Ok(()),
            Answer::Refused(words) => Err(Problem::Refused(words)),
            Answer::Silent(why) => Err(Problem::Silent(why)),
        }
    }

    /// Makes the runs of an array ready: only this batch may start them from now on.
    fn begin_batch(&self, array: &Array) -> Result<(), Problem> {
        let plan = self.rendering.plan;
        for at in &array.runs {
            let run = &plan.runs[*at];
            let own = self.folder.path.join("runs").join(&run.id);
            records::begin(&own, plan, run, &self.rendering.commands[*at], array.gpus, &self.record)?;
            write_atomically(&own.join("batch"), array.batch.as_bytes())?;
        }
        Ok(())
    }

    /// Sends an array and those behind it; whether SLURM said that it took it.
    fn sbatch(&self, array: &Array) -> Result<bool, Problem> {
        let journal = &self.folder.journal;
        let mut before = None;
        for link in 1..=u32::try_from(array.links).unwrap_or(1) {
            let ids = array.runs.iter().map(|at| self.rendering.plan.runs[*at].id.clone());
            let ids: Vec<String> = if link == 1 { ids.collect() } else { Vec::new() };
            let (batch, gpus, metrics) = (array.batch.clone(), array.gpus, self.record.metrics.to_vec());
            journal.append_event(Event::Submitting { batch: batch.clone(), link, gpus, metrics, ids })?;
            let mut words = vec!["--parsable".to_owned()];
            if let Some(before) = before {
                words.extend([format!("--dependency=aftercorr:{before}"), "--kill-on-invalid-dep=yes".to_owned()]);
            }
            words.extend(self.sbatch_words(array, link));
            let job = match self.client.call_program("sbatch", &words, None) {
                Answer::Said(text) => job_number(&text),
                Answer::Refused(why) => {
                    journal.append_event(Event::Unsubmitted { batch, link, why: why.clone() })?;
                    if link == 1 {
                        return Err(Problem::Refused(why));
                    }
                    (self.say)(&format!(
                        "link {link} of {} was refused, and requeueing takes its place: {why}",
                        array.links
                    ));
                    return Ok(true);
                }
                Answer::Silent(why) => {
                    (self.say)(&format!(
                        "SLURM did not say whether it took {}: {why}",
                        self.batch_job_name(array, link)
                    ));
                    None
                }
            };
            let Some(job) = job else { return Ok(link > 1) };
            journal.append_event(Event::Submitted { batch, link, job })?;
            before = Some(job);
            (self.say)(&self.sbatch_sentence(array, link, job));
        }
        Ok(true)
    }

    fn batch_job_name(&self, array: &Array, link: u32) -> String {
        job_name(&self.rendering.plan.suite, &array.batch, link)
    }

    fn sbatch_sentence(&self, array: &Array, link: u32, job: u64) -> String {
        let runs = array.runs.len();
        let of = if array.links > 1 { format!(", link {link} of {}", array.links) } else { String::new() };
        format!(
            "job {job}: {runs} run{} of {} GPU{}{of}",
            plural_ending(runs as u64),
            array.gpus,
            plural_ending(array.gpus)
        )
    }

    /// The words that say an array and its link.
    fn sbatch_words(&self, array: &Array, link: u32) -> Vec<String> {
        let mut words = vec![
            format!("--job-name={}", self.batch_job_name(array, link)),
            // Its own folder: what `--output` may hold of blanks and `%` is SLURM's to say.
            format!("--chdir={}", self.folder.path.join("slurm").join("logs").display()),
            "--output=%x-%A_%a.log".to_owned(),
            "--open-mode=append".to_owned(),
            "--requeue".to_owned(),
        ];
        words.extend(self.options.iter().cloned());
        words.push(array.path.display().to_string());
        words.extend([link.to_string(), array.links.to_string(), array.batch.clone()]);
        words
    }
}

fn plural_ending(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A name that no other batch has.
fn name_at(text: &str, at: usize) -> String {
    let made = format!("{} {} {at} {text}", now_ms(), std::process::id());
    hex_of(&sha256(made.as_bytes()))[..10].to_owned()
}

/// The number that `sbatch --parsable` prints, alone or before `;CLUSTER`, behind whatever a wrapper says; or as `Submitted batch job 7`.
fn job_number(text: &str) -> Option<u64> {
    let of_line = |line: &str| line.trim().split(';').next().and_then(|text| text.parse().ok());
    let last_word = |line: &str| line.split_whitespace().next_back().and_then(|word| word.parse().ok());
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.iter().rev().find_map(|line| of_line(line)).or_else(|| lines.last().and_then(|line| last_word(line)))
}

/// Tasks that an array may have.
fn most_tasks(client: &Client) -> usize {
    let Answer::Said(config) = client.call_program("scontrol", &["show", "config"], None) else { return MOST_TASKS };
    let line = config.lines().find(|line| line.starts_with("MaxArraySize"));
    let most = line.and_then(|line| line.rsplit('=').next()).and_then(|text| text.trim().parse::<usize>().ok());
    most.map_or(MOST_TASKS, |most| most.saturating_sub(1).clamp(1, MOST_TASKS))
}

/// Hours that `partition`, or the one that is taken by default, lets a job run; `None` where nothing limits it, or nobody says.
pub fn hours_of(client: &Client, partition: Option<&str>) -> Option<f64> {
    let Answer::Said(text) = client.call_program("sinfo", &["--noheader", "--format=%P|%l"], None) else { return None };
    let named = |line: &&str| {
        let name = line.split('|').next().unwrap_or_default().trim();
        partition.map_or(name.ends_with('*'), |wanted| wanted.split(',').any(|one| one == name.trim_end_matches('*')))
    };
    // Of several partitions SLURM takes any: the one that lets a job run longest need not be it.
    let limits = text.lines().filter(named).filter_map(|line| wait_seconds(line.split('|').nth(1)?.trim()));
    limits.min_by(f64::total_cmp).map(|seconds| seconds / 3600.0)
}

/// A time as SLURM writes it: `1-12:00:00`, `12:00:00`, `30:00`; `None` of `infinite`.
fn wait_seconds(text: &str) -> Option<f64> {
    let (days, clock) = text.split_once('-').map_or((0.0, text), |(days, clock)| (days.parse().unwrap_or(0.0), clock));
    let parts: Vec<f64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match (parts.as_slice(), text.contains('-')) {
        ([hours], true) => hours * 3600.0,
        ([hours, minutes], true) => hours * 3600.0 + minutes * 60.0,
        ([minutes], false) => minutes * 60.0,
        ([minutes, seconds], false) => minutes * 60.0 + seconds,
        ([hours, minutes, seconds], _) => hours * 3600.0 + minutes * 60.0 + seconds,
        _ => return None,
    };
    Some(days * 86_400.0 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_behind_whatever_else_is_said() {
        for (text, expected) in [
            ("12\n", Some(12)),
            ("12;cluster\n", Some(12)),
            ("Your project has 3 hours left\n12\n", Some(12)),
            ("Submitted batch job 12\n", Some(12)),
            ("Stapelauftrag 12 eingereicht: 12\n", Some(12)),
            ("ok\n", None),
            ("", None),
        ] {
            assert_eq!(job_number(text), expected, "{text}");
        }
    }

    #[test]
    fn limits_of_partitions_are_read() {
        for (text, expected) in [
            ("1-12:00:00", Some(129_600.0)),
            ("12:00:00", Some(43_200.0)),
            ("10:00", Some(600.0)),
            ("30", Some(1800.0)),
            ("2-0", Some(172_800.0)),
            ("infinite", None),
            ("n/a", None),
        ] {
            assert_eq!(wait_seconds(text), expected, "{text}");
        }
    }
}
