//! [`View`]: where every run is that was sent to SLURM: by what its own script left, then by what the controller says, then by what is
//! kept of jobs that are gone.

use std::collections::HashMap;
use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use tonnage_run::RunError;

use super::accounts::{Past, of_jobs};
use super::client::Client;
use super::evidence::Evidence;
use super::harvest::{Finding, harvest_run};
use super::job_name;
use super::poll::Poll;
use super::queue::Queued;
use super::state::JobState;
use crate::folder::SuiteFolder;
use crate::journal::{Batch, Event, Link, RunState, State, Where};
use crate::plan::{Plan, PlannedRun};

/// After how long a batch whose number nobody heard, and of which the controller knows nothing, never arrived: far longer than a client
/// waits for a controller, and a controller for a client (`MessageTimeout` is at most 100 s).
const NEVER_ARRIVED_MS: u64 = 300_000;

/// Where a run is that was sent to SLURM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the queue.
    Queued {
        job: String,
        /// Why it waits, in SLURM's word.
        reason: String,
    },
    /// On its nodes.
    Running {
        job: String,
        /// As SLURM writes lists of hosts.
        nodes: String,
        /// When its last start began, in seconds since 1970 by its node's clock; `None` where it has not said so.
        began: Option<u64>,
    },
    /// Neither squeue nor sacct knows it.
    Unknown { why: String },
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

/// Whether something that was sent is not known to have ended.
pub fn has_open(state: &State) -> bool {
    state.batches.iter().any(|(name, batch)| is_open(state, name, batch))
}

/// Looks after all that was sent of a suite, by what the controller said, and writes down what has ended since. The caller holds the
/// suite's lock.
///
/// # Errors
/// When the suite's folder cannot be written.
pub fn follow_jobs(
    client: &Client,
    poll: &Poll,
    root: &Path,
    folder: &SuiteFolder,
    plan: &Plan,
) -> Result<View, RunError> {
    let state = folder.journal.read_state()?;
    let open: Vec<(&String, &Batch)> =
        state.batches.iter().filter(|(name, batch)| is_open(&state, name, batch)).collect();
    if open.is_empty() {
        return Ok(View::default());
    }
    let view = View { at_ms: poll.at_ms, silence: poll.jobs.is_none().then(|| poll.why.clone()), ..View::default() };
    let planned = plan.runs.iter().map(|run| (run.id.as_str(), run)).collect();
    let (suite, queued) = (plan.suite.as_str(), by_task(poll.jobs.as_deref().unwrap_or_default()));
    let (jobs, past, ended) = (Vec::new(), None, Vec::new());
    let mut follower = Follower { client, root, folder, plan, planned, suite, poll, queued, jobs, past, view, ended };
    let mut settled = Vec::new();
    for (name, batch) in open {
        let links = follower.settled_links(name, batch)?;
        follower.jobs.extend(links.iter().filter_map(|link| link.job));
        settled.push((name, batch, links));
    }
    for (name, batch, links) in &settled {
        for (task, id) in batch.ids.iter().enumerate() {
            if let Some(run) = open_of(&state, id, name) {
                let sent = Sent { name, batch, links, task: task as u64, id, refusals: run.refusals };
                follower.follow_run(&sent)?;
            }
        }
    }
    follower.note()?;
    Ok(follower.view)
}

/// What the controller has of each task, by the job's number and the task's.
fn by_task(jobs: &[Queued]) -> HashMap<(u64, u64), Vec<&Queued>> {
    let mut found: HashMap<(u64, u64), Vec<&Queued>> = HashMap::new();
    for one in jobs {
        one.tasks.iter().for_each(|task| found.entry((one.job, *task)).or_default().push(one));
    }
    found
}

/// Whether something of a batch is not known to have ended.
fn is_open(state: &State, name: &str, batch: &Batch) -> bool {
    batch.ids.iter().any(|id| open_of(state, id, name).is_some())
}

/// A run whose newest submission is of this batch, and open.
fn open_of<'s>(state: &'s State, id: &str, batch: &str) -> Option<&'s RunState> {
    match state.where_is(id) {
        Where::Submitted(run) if run.batch.as_deref() == Some(batch) => Some(run),
        _ => None,
    }
}

/// A run that was sent, and is not known to have ended.
struct Sent<'a> {
    /// Its batch's name.
    name: &'a str,
    batch: &'a Batch,
    links: &'a [Link],
    /// Its place in the array.
    task: u64,
    id: &'a str,
    /// How often in a row SLURM has not started it before.
    refusals: u32,
}

struct Follower<'a> {
    client: &'a Client,
    root: &'a Path,
    folder: &'a SuiteFolder,
    plan: &'a Plan,
    /// The plan's runs by their identities.
    planned: HashMap<&'a str, &'a PlannedRun>,
    suite: &'a str,
    poll: &'a Poll,
    /// What the controller has of each task.
    queued: HashMap<(u64, u64), Vec<&'a Queued>>,
    /// All jobs of the suite that something is open of.
    jobs: Vec<u64>,
    /// What is kept of ended jobs, asked for once: by the job's number and the task's.
    past: Option<Result<Kept, String>>,
    view: View,
    /// Ends that the journal is to have.
    ended: Vec<Event>,
}

/// Ended jobs by their numbers and tasks.
type Kept = HashMap<(u64, Option<u64>), Past>;

/// Ends that are written down at once: each time the disk is waited for.
const AT_ONCE: usize = 500;

impl Follower<'_> {
    /// The links of a batch, those that nobody heard the number of found by their name.
    fn settled_links(&self, name: &str, batch: &Batch) -> Result<Vec<Link>, RunError> {
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
                settled.map_or(Ok(()), |event| self.folder.journal.append_event(event))?;
            }
            links.push(link);
        }
        Ok(links)
    }

    const fn is_long_ago(&self, link: &Link) -> bool {
        self.poll.at_ms >= link.sent_ms + NEVER_ARRIVED_MS
    }

    fn has_never_begun(&self, batch: &Batch, name: &str) -> bool {
        batch
            .ids
            .iter()
            .all(|id| Evidence::read_evidence(&self.folder.path.join("runs").join(id)).last_of(name).is_none())
    }

    /// What the controller said after `link` was sent.
    fn jobs_since(&self, link: &Link) -> Option<&[Queued]> {
        self.poll.jobs.as_deref().filter(|_| self.poll.at_ms > link.sent_ms)
    }

    /// Says where a run is, or writes down how it ended.
    fn follow_run(&mut self, sent: &Sent<'_>) -> Result<(), RunError> {
        // What waits in the queue has nothing to say: of thousands of runs only those that have begun are looked at.
        if let Some(standing) = self.waits_as(sent) {
            self.view.runs.insert(sent.id.to_owned(), standing);
            return Ok(());
        }
        let evidence = Evidence::read_evidence(&self.folder.path.join("runs").join(sent.id));
        let last = evidence.last_of(sent.name);
        // Its own word holds, whatever a controller says: the job may be in the queue still, or be gone for long.
        if evidence.is_done || last.is_some_and(|last| last.ended.is_some() && !last.goes_on) {
            return self.end_run(sent, &evidence, None);
        }
        let goes_on = last.is_some_and(|last| last.goes_on);
        let standing = match self.standing_of(sent, goes_on) {
            Ok(Some(Standing::Running { job, nodes, .. })) => {
                Standing::Running { job, nodes, began: last.map(|last| last.began.max(0.0) as u64) }
            }
            Ok(Some(standing)) => standing,
            Err(why) => Standing::Unknown { why },
            Ok(None) => match self.past_of(sent) {
                Err(why) => Standing::Unknown { why },
                // Accounting may lag behind: what it has running is not gone.
                Ok(Some(past)) if !past.state.has_ended() => {
                    Standing::Unknown { why: "it left the queue, and is not accounted for yet".to_owned() }
                }
                Ok(past) => return self.end_run(sent, &evidence, past.as_ref()),
            },
        };
        self.view.runs.insert(sent.id.to_owned(), standing);
        Ok(())
    }

    /// Where a run of one job is that waits for its turn.
    fn waits_as(&self, sent: &Sent<'_>) -> Option<Standing> {
        let [link] = sent.links else { return None };
        let (job, [one]) = (link.job?, self.queued.get(&(link.job?, sent.task))?.as_slice()) else { return None };
        let is_it = self.poll.at_ms > link.sent_ms && one.name == job_name(self.suite, sent.name, link.number);
        (is_it && one.state == JobState::Pending)
            .then(|| Standing::Queued { job: format!("{job}_{}", sent.task), reason: one.reason.clone() })
    }

    /// Writes down how a run ended.
    fn end_run(&mut self, sent: &Sent<'_>, evidence: &Evidence, past: Option<&Past>) -> Result<(), RunError> {
        let run = self.planned.get(sent.id).copied();
        let (state, seconds) = past.map_or((None, None), |past| (Some(past.state), past.seconds));
        let Sent { name, batch, task, id, refusals, .. } = *sent;
        let finding = Finding { plan: self.plan, run, refusals, name, batch, task, id, evidence, state, seconds };
        self.ended.push(harvest_run(self.folder, &finding)?);
        if self.ended.len() >= AT_ONCE { self.note() } else { Ok(()) }
    }

    fn note(&mut self) -> Result<(), RunError> {
        self.folder.journal.append_all(std::mem::take(&mut self.ended))
    }

    /// Where the controller has it; `None` where it does not have it any more. One that `goes_on` may seem to have ended while it is put
    /// back into the queue.
    fn standing_of(&self, sent: &Sent<'_>, goes_on: bool) -> Result<Option<Standing>, String> {
        if self.poll.jobs.is_none() {
            return Err(self.poll.why.clone());
        }
        let (mut waits, mut is_sent) = (None, false);
        for link in sent.links {
            let wanted = job_name(self.suite, sent.name, link.number);
            let Some(job) = link.job else {
                let why = format!("SLURM did not say whether it took job `{wanted}`");
                is_sent |= !self.is_long_ago(link);
                waits = waits.or_else(|| is_sent.then_some(Standing::Unknown { why }));
                continue;
            };
            let shown = format!("{job}_{}", sent.task);
            // A job that was sent after the controller was asked is not missing from its answer.
            let is_asked = self.poll.at_ms > link.sent_ms;
            let all = self.queued.get(&(job, sent.task)).filter(|_| is_asked);
            let mut mine = all.into_iter().flatten().filter(|one| one.name == wanted);
            match mine.find(|one| goes_on || !one.state.has_ended()) {
                Some(one) if one.state == JobState::Running => {
                    return Ok(Some(Standing::Running { job: shown, nodes: one.nodes.clone(), began: None }));
                }
                Some(one) => waits = waits.or(Some(Standing::Queued { job: shown, reason: one.reason.clone() })),
                None if !is_asked => {
                    waits = waits.or(Some(Standing::Queued { job: shown, reason: "sent just now".to_owned() }));
                }
                None => {}
            }
        }
        Ok(waits)
    }

    /// How its last job ended: by the controller, which remembers jobs for `MinJobAge`, else by what is kept of ended jobs.
    fn past_of(&mut self, sent: &Sent<'_>) -> Result<Option<Past>, String> {
        let mut links: Vec<(u64, String)> = sent
            .links
            .iter()
            .filter_map(|link| Some((link.job?, job_name(self.suite, sent.name, link.number))))
            .collect();
        // The newest first.
        links.small_sort_by_key(|(job, _)| std::cmp::Reverse(*job));
        for (job, name) in &links {
            let mut all = self.queued.get(&(*job, sent.task)).into_iter().flatten().rev();
            if let Some(one) = all.find(|one| one.name == *name && one.state.has_ended()) {
                let (job, task, name) = (*job, Some(sent.task), name.clone());
                return Ok(Some(Past { job, task, name, state: one.state, seconds: None }));
            }
        }
        let (client, root, jobs) = (self.client, self.root, &self.jobs);
        let kept = self.past.get_or_insert_with(|| match Poll::may_ask_accounts(root) {
            true => Ok(of_jobs(client, jobs)?.into_iter().map(|past| ((past.job, past.task), past)).collect()),
            false => Err("it left the queue; what SLURM keeps of ended jobs is asked for in a moment".to_owned()),
        });
        let kept = kept.as_ref().map_err(Clone::clone)?;
        let found =
            links.iter().find_map(|(job, name)| kept.get(&(*job, Some(sent.task))).filter(|past| past.name == *name));
        Ok(found.cloned())
    }
}
