//! [`View`]: where every run is that was sent to SLURM: by what its own script left, then by what the controller says, then by what is
//! kept of jobs that are gone.

use std::collections::HashMap;
use std::path::Path;

use tonnage_run::RunError;

use super::accounts::{Past, of_jobs};
use super::client::Client;
use super::evidence::Evidence;
use super::harvest::{Finding, harvest};
use super::job_name;
use super::poll::Poll;
use super::queue::Queued;
use super::state::JobState;
use crate::folder::SuiteFolder;
use crate::journal::{Batch, Event, Link, State, Where};
use crate::plan::Plan;

/// After how long a batch whose number nobody heard, and of which the controller knows nothing, never arrived: far longer than a client
/// waits for a controller, and a controller for a client (`MessageTimeout` is at most 100 s).
const NEVER_ARRIVED_MS: u64 = 300_000;

/// Where a run is that was sent to SLURM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the queue.
    Queued {
        /// The job.
        job: String,
        /// Why it waits, in SLURM's word.
        reason: String,
    },
    /// On its nodes.
    Running {
        /// The job.
        job: String,
        /// Its nodes.
        nodes: String,
    },
    /// Nobody knows.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Standing {
    /// In a word, as JSON has it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Running { .. } => "running",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// The job.
    pub fn job(&self) -> Option<&str> {
        match self {
            Self::Queued { job, .. } | Self::Running { job, .. } => Some(job),
            Self::Unknown { .. } => None,
        }
    }

    /// Why it waits, on which nodes it runs, or why nothing is known.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Queued { reason: why, .. } | Self::Running { nodes: why, .. } | Self::Unknown { why } => Some(why),
        }
    }
}

/// Where runs are, by identity; those that have ended are in the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Each run that is not known to have ended.
    pub runs: HashMap<String, Standing>,
    /// Why the controller's answer is missing.
    pub silence: Option<String>,
    /// When the controller was asked, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Looks after all that was sent of a suite, and writes down what has ended since. The caller holds the suite's lock.
///
/// # Errors
/// When the suite's folder cannot be written.
pub fn follow(client: &Client, root: &Path, folder: &SuiteFolder, plan: &Plan) -> Result<View, RunError> {
    let state = folder.journal.state()?;
    let open: Vec<(&String, &Batch)> =
        state.batches.iter().filter(|(name, batch)| is_open(&state, name, batch)).collect();
    if open.is_empty() {
        return Ok(View::default());
    }
    let poll = Poll::take(client, root);
    let view = View { at_ms: poll.at_ms, silence: poll.jobs.is_none().then(|| poll.why.clone()), ..View::default() };
    let mut follower =
        Follower { client, root, folder, plan, suite: &plan.suite, poll: &poll, jobs: Vec::new(), past: None, view };
    let mut settled = Vec::new();
    for (name, batch) in open {
        let links = follower.settled(name, batch)?;
        follower.jobs.extend(links.iter().filter_map(|link| link.job));
        settled.push((name, batch, links));
    }
    for (name, batch, links) in settled {
        let waiting = batch.ids.iter().enumerate().filter(|(_, id)| is_of(&state, id, name));
        for (task, id) in waiting {
            follower.run(name, batch, &links, task as u64, id)?;
        }
    }
    Ok(follower.view)
}

/// Whether something of a batch is not known to have ended.
fn is_open(state: &State, name: &str, batch: &Batch) -> bool {
    batch.ids.iter().any(|id| is_of(state, id, name))
}

/// Whether the newest submission of a run is of this batch, and open.
fn is_of(state: &State, id: &str, batch: &str) -> bool {
    matches!(state.of(id), Where::Submitted(run) if run.batch.as_deref() == Some(batch))
}

struct Follower<'a> {
    client: &'a Client,
    root: &'a Path,
    folder: &'a SuiteFolder,
    plan: &'a Plan,
    suite: &'a str,
    poll: &'a Poll,
    /// All jobs of the suite that something is open of.
    jobs: Vec<u64>,
    /// What is kept of ended jobs, asked for once.
    past: Option<Result<Vec<Past>, String>>,
    view: View,
}

impl Follower<'_> {
    /// The links of a batch, those that nobody heard the number of found by their name.
    fn settled(&self, name: &str, batch: &Batch) -> Result<Vec<Link>, RunError> {
        let mut links = Vec::new();
        for link in &batch.links {
            let mut link = *link;
            let wanted = job_name(self.suite, name, link.number);
            if let (None, Some(jobs)) = (link.job, self.jobs_since(&link)) {
                link.job = jobs.iter().find(|job| job.name == wanted).map(|job| job.job);
                let settled = match link.job {
                    Some(job) => Some(Event::Submitted { batch: name.to_owned(), link: link.number, job }),
                    None if self.has_never_begun(batch, name) && self.is_long_ago(&link) => {
                        let why = format!("SLURM has no job `{wanted}`: it never arrived");
                        Some(Event::Unsubmitted { batch: name.to_owned(), link: link.number, why })
                    }
                    None => None,
                };
                settled.map_or(Ok(()), |event| self.folder.journal.append(event))?;
            }
            links.push(link);
        }
        Ok(links)
    }

    const fn is_long_ago(&self, link: &Link) -> bool {
        self.poll.at_ms >= link.sent_ms + NEVER_ARRIVED_MS
    }

    fn has_never_begun(&self, batch: &Batch, name: &str) -> bool {
        batch.ids.iter().all(|id| Evidence::read(&self.folder.path.join("runs").join(id)).last_of(name).is_none())
    }

    /// What the controller said after `link` was sent.
    fn jobs_since(&self, link: &Link) -> Option<&[Queued]> {
        self.poll.jobs.as_deref().filter(|_| self.poll.at_ms > link.sent_ms)
    }

    /// Says where a run is, or writes down how it ended.
    fn run(&mut self, name: &str, batch: &Batch, links: &[Link], task: u64, id: &str) -> Result<(), RunError> {
        let evidence = Evidence::read(&self.folder.path.join("runs").join(id));
        let finding =
            |state, seconds| Finding { plan: self.plan, name, batch, task, id, evidence: &evidence, state, seconds };
        let last = evidence.last_of(name);
        // Its own word holds, whatever a controller says: the job may be in the queue still, or be gone for long.
        if evidence.is_done || last.is_some_and(|last| last.ended.is_some() && !last.goes_on) {
            return harvest(self.folder, &finding(None, None));
        }
        let goes_on = last.is_some_and(|last| last.goes_on);
        let standing = match self.standing(name, links, task, goes_on) {
            Ok(Some(standing)) => standing,
            Err(why) => Standing::Unknown { why },
            Ok(None) => match self.past(name, links, task) {
                Err(why) => Standing::Unknown { why },
                Ok(past) => {
                    let (state, seconds) = past.map_or((None, None), |past| (Some(past.state), past.seconds));
                    // Accounting may lag behind: what it has running is not gone.
                    match state {
                        Some(state) if !state.has_ended() => {
                            Standing::Unknown { why: "it left the queue, and is not accounted for yet".to_owned() }
                        }
                        _ => return harvest(self.folder, &Finding { ..finding(state, seconds) }),
                    }
                }
            },
        };
        self.view.runs.insert(id.to_owned(), standing);
        Ok(())
    }

    /// Where the controller has it; `None` where it does not have it any more. One that `goes_on` may seem to have ended while it is put
    /// back into the queue.
    fn standing(&self, name: &str, links: &[Link], task: u64, goes_on: bool) -> Result<Option<Standing>, String> {
        let Some(all) = &self.poll.jobs else { return Err(self.poll.why.clone()) };
        let (mut waits, mut is_sent) = (None, false);
        for link in links {
            // A job that was sent after the controller was asked is not missing from its answer.
            let jobs = if self.poll.at_ms > link.sent_ms { all.as_slice() } else { &[] };
            let Some(job) = link.job else {
                let why =
                    format!("SLURM did not say whether it took job `{}`", job_name(self.suite, name, link.number));
                is_sent |= !self.is_long_ago(link);
                waits = waits.or_else(|| is_sent.then_some(Standing::Unknown { why }));
                continue;
            };
            let wanted = job_name(self.suite, name, link.number);
            let shown = format!("{job}_{task}");
            let mine = |one: &&Queued| one.job == job && one.name == wanted && one.tasks.contains(&task);
            match jobs.iter().filter(mine).find(|one| goes_on || !one.state.has_ended()) {
                Some(one) if one.state == JobState::Running => {
                    return Ok(Some(Standing::Running { job: shown, nodes: one.nodes.clone() }));
                }
                Some(one) => waits = waits.or(Some(Standing::Queued { job: shown, reason: one.reason.clone() })),
                None if self.poll.at_ms <= link.sent_ms => {
                    waits = waits.or(Some(Standing::Queued { job: shown, reason: "sent just now".to_owned() }));
                }
                None => {}
            }
        }
        Ok(waits)
    }

    /// How its last job ended: by the controller, which remembers jobs for `MinJobAge`, else by what is kept of ended jobs.
    fn past(&mut self, name: &str, links: &[Link], task: u64) -> Result<Option<Past>, String> {
        let ours = |job: u64, called: &str| {
            links.iter().any(|link| link.job == Some(job) && called == job_name(self.suite, name, link.number))
        };
        let queued = self.poll.jobs.iter().flatten();
        let remembered = |one: &&Queued| one.tasks.contains(&task) && one.state.has_ended() && ours(one.job, &one.name);
        if let Some(one) = queued.filter(remembered).max_by_key(|one| one.job) {
            let (job, state, name) = (one.job, one.state, one.name.clone());
            return Ok(Some(Past { job, task: Some(task), name, state, seconds: None }));
        }
        let kept = match self.past.take() {
            Some(kept) => kept,
            None if Poll::may_ask_accounts(self.root) => of_jobs(self.client, &self.jobs),
            None => Err("it left the queue; what SLURM keeps of ended jobs is asked for in a moment".to_owned()),
        };
        let mine = |past: &&Past| past.task == Some(task) && ours(past.job, &past.name);
        let found = kept.as_ref().map(|all| all.iter().filter(mine).max_by_key(|past| past.job).cloned());
        let found = found.map_err(Clone::clone);
        self.past = Some(kept);
        found
    }
}
