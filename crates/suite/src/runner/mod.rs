//! [`Runner`]: a suite's runs on this machine. It decides what is started next; every run lives under a supervisor of its own, which
//! outlives this process, so that a death here loses nothing: started again it takes up those that live, and starts what is missing.

mod active;
mod admit;
mod pause;
mod signals;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tonnage_core::record::{Outcome, RunRecord};
use tonnage_run::RunError;
use tonnage_run::secrets::Secrets;
use tonnage_run::store::{RunFolder, Store};

use crate::folder::SuiteFolder;
use crate::journal::{Ended, Event, State, Where};
use crate::plan::{Plan, PlannedRun, Predicted, item};
use crate::records;
use active::Active;
use admit::Gpus;
use pause::Failures;

/// How often runs are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Makes the record of a run on GPUs, and the secrets of its command that the record does not hold.
pub type MakeRecord<'a> = dyn Fn(&PlannedRun, &[String]) -> Result<(RunRecord, Secrets), String> + 'a;

/// How a suite is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// GPUs of this machine, by the names that CUDA_VISIBLE_DEVICES takes; none where it has none.
    pub gpus: Vec<String>,
    /// Runs at once, at most.
    pub slots: usize,
    /// Between two starts.
    pub stagger: Duration,
    /// Equal failures at the start after which the suite pauses; 0 never.
    pub pause_after: usize,
    /// Whether the first failure ends it.
    pub fail_fast: bool,
    pub program: PathBuf,
}

/// A suite that is run.
pub struct Runner<'a> {
    /// What is to be run.
    pub plan: &'a Plan,
    /// Where what happens is kept.
    pub folder: &'a SuiteFolder,
    /// Where runs are kept.
    pub store: &'a Store,
    pub options: Options,
    /// What a run is.
    pub record: &'a MakeRecord<'a>,
    /// The file's text, for the report, without secrets.
    pub text: String,
    /// Patterns of the command's output that are metrics.
    pub metrics: Vec<String>,
    /// Whether runs of one seed see the same data.
    pub shares_data_order: Option<bool>,
    /// Says something to whoever watches.
    pub say: &'a dyn Fn(&str),
}

/// What a suite came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Runs that succeeded.
    pub succeeded: usize,
    /// That failed, or were refused.
    pub failed: usize,
    /// That are still to be done.
    pub missing: usize,
}

impl Runner<'_> {
    /// Runs what is missing, until all is done, nothing more may be started, or somebody asks it to end.
    ///
    /// # Errors
    /// When the suite's folder or a ledger cannot be used.
    pub fn run(&self) -> Result<Outcomes, RunError> {
        let signals = signals::take();
        let mut state = self.folder.journal.state()?;
        self.folder.journal.append(Event::Opened { pid: std::process::id() })?;
        let mut gpus = Gpus::open(self.store.root(), &self.options)?;
        let mut active = self.adopted(&state)?;
        let mut waiting = self.waiting(&state);
        let mut failures = Failures::default();
        let began = Instant::now();
        let (mut last_start, mut done, all) = (None::<Instant>, 0, waiting.len() + active.len());
        loop {
            let mut why_paused = None;
            for ended in self.ended(&mut active)? {
                done += 1;
                let configuration = &self.plan.configuration(&self.plan.runs[ended.0]).name;
                gpus.learn(configuration, ended.1.measured_bytes, ended.1.predicted_bytes);
                self.tell(&ended, done, all, began);
                why_paused = why_paused.or_else(|| failures.note(&ended.1, &self.options));
                state = self.folder.journal.state()?;
            }
            if let Some(why) = why_paused {
                (self.say)(&format!("paused: {why}"));
                self.folder.journal.append(Event::Paused { why })?;
                waiting.clear();
            }
            match signals.asked() {
                0 => {}
                asked => {
                    waiting.clear();
                    active.iter_mut().for_each(|one| one.ask_to_end(asked));
                }
            }
            let is_due = last_start.is_none_or(|at| at.elapsed() >= self.options.stagger);
            let may_start = is_due && !waiting.is_empty() && active.len() < self.options.slots;
            if may_start && self.start_one(&mut waiting, &mut active, &mut gpus, &state)? {
                last_start = Some(Instant::now());
                continue;
            }
            if active.is_empty() && (waiting.is_empty() || may_start) {
                break;
            }
            std::thread::sleep(TICK);
        }
        if !waiting.is_empty() {
            (self.say)(&format!("{} runs are left: what others were promised leaves them no room", waiting.len()));
        }
        self.outcomes()
    }

    /// What is to be started, the longest first.
    fn waiting(&self, state: &State) -> Vec<usize> {
        let order = crate::pack::order(&self.plan.items());
        let mut waiting: Vec<usize> =
            order.into_iter().filter(|at| matches!(state.of(&self.plan.runs[*at].id), Where::Waiting(_))).collect();
        let all = waiting.len();
        waiting.retain(|at| self.could_run(&self.plan.runs[*at]));
        if waiting.len() < all {
            (self.say)(&format!("{} runs fit no GPU here: `tonnage suite plan` says which", all - waiting.len()));
        }
        // The next one is at the end.
        waiting.reverse();
        waiting
    }

    /// Whether a run fits this machine with nothing else on it.
    fn could_run(&self, run: &PlannedRun) -> bool {
        let one = self.plan.configuration(run);
        let fits = |predicted: &Predicted| {
            let item = item(Some(predicted));
            item.bytes <= predicted.usable_bytes && item.gpus <= self.options.gpus.len()
        };
        one.error.is_none() && one.predicted.as_ref().is_none_or(fits)
    }

    /// Runs that an earlier runner started: those that live are taken up, those that do not are started again where they ended.
    fn adopted(&self, state: &State) -> Result<Vec<Active>, RunError> {
        let mut active = Vec::new();
        for (at, run) in self.plan.runs.iter().enumerate() {
            let Where::Started(known) = state.of(&run.id) else { continue };
            let Ok(folder) = RunFolder::open(self.store.root().join("runs").join(&known.run)) else {
                // Its folder was never whole, or somebody removed it: nothing of it was said to be done.
                let end =
                    Ended { outcome: Outcome::Stopped, reason: "its folder is gone".to_owned(), ..Ended::default() };
                self.folder.journal.append(Event::Ended { id: run.id.clone(), end })?;
                continue;
            };
            let gpus: Vec<String> = known.gpus.clone();
            let mut one = Active::new(at, folder, gpus, known.bytes);
            if !one.has_ended() && !one.folder.is_supervised() {
                let secrets = (self.record)(run, &one.gpus).map(|(_, secrets)| secrets).unwrap_or_default();
                one.start(self, run, &secrets)?;
            }
            active.push(one);
        }
        Ok(active)
    }

    /// Starts the first run for which there is room; whether there was one.
    fn start_one(
        &self,
        waiting: &mut Vec<usize>,
        active: &mut Vec<Active>,
        gpus: &mut Gpus,
        state: &State,
    ) -> Result<bool, RunError> {
        for place in (0..waiting.len()).rev().take(admit::LOOKAHEAD) {
            let at = waiting[place];
            let run = &self.plan.runs[at];
            let predicted = self.plan.configuration(run).predicted.as_ref();
            let need = gpus.need(&item(predicted), predicted, &self.plan.configuration(run).name);
            let Some(chosen) = gpus.room(&need, active)? else { continue };
            waiting.remove(place);
            let kept = match state.of(&run.id) {
                Where::Waiting(Some(known)) => RunFolder::open(self.store.root().join("runs").join(&known.run)).ok(),
                _ => None,
            };
            match self.begin(at, kept, chosen, need.bytes, gpus) {
                Ok(one) => active.push(one),
                Err(why) => {
                    let end = Ended {
                        outcome: Outcome::Refused,
                        reason: why.to_string(),
                        at_start: true,
                        ..Ended::default()
                    };
                    (self.say)(&format!("{}: not started: {why}", self.plan.name(run)));
                    // What cannot even be written down is not started and not lost: it is tried when the suite is run again.
                    self.folder.journal.append(Event::Started {
                        id: run.id.clone(),
                        run: String::new(),
                        gpus: Vec::new(),
                        bytes: 0,
                    })?;
                    self.folder.journal.append(Event::Ended { id: run.id.clone(), end })?;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives a run its folder and its promise, writes that down, and starts it, in this order: whoever finds the one finds the others.
    fn begin(
        &self,
        at: usize,
        kept: Option<RunFolder>,
        chosen: Vec<String>,
        bytes: u64,
        gpus: &Gpus,
    ) -> Result<Active, RunError> {
        let run = &self.plan.runs[at];
        let (record, secrets) = (self.record)(run, &chosen).map_err(RunError::NoSuchRun)?;
        let folder = match kept {
            Some(folder) => folder,
            None => self.store.create(record)?,
        };
        let started = Event::Started { id: run.id.clone(), run: folder.id().to_owned(), gpus: chosen.clone(), bytes };
        self.folder.journal.append(started)?;
        gpus.promise(&folder, &chosen, bytes)?;
        let mut one = Active::new(at, folder, chosen, bytes);
        one.start(self, run, &secrets)?;
        Ok(one)
    }

    /// Runs that have ended since, written down and with their records whole.
    fn ended(&self, active: &mut Vec<Active>) -> Result<Vec<(usize, Ended)>, RunError> {
        let mut ended = Vec::new();
        let mut at = 0;
        while at < active.len() {
            if !active[at].has_ended() {
                at += 1;
                continue;
            }
            let mut one = active.swap_remove(at);
            let run = &self.plan.runs[one.at];
            let end = one.end();
            records::finish(self, run, &one.folder, &end)?;
            self.folder.journal.append(Event::Ended { id: run.id.clone(), end: end.clone() })?;
            ended.push((one.at, end));
        }
        Ok(ended)
    }

    fn tell(&self, (at, end): &(usize, Ended), done: usize, all: usize, began: Instant) {
        let name = self.plan.name(&self.plan.runs[*at]);
        let left = began.elapsed().as_secs_f64() / done as f64 * all.saturating_sub(done) as f64;
        let eta = match all.saturating_sub(done) {
            0 => String::new(),
            _ => format!(", about {} left", tonnage_core::units::Seconds(left)),
        };
        let how = match end.outcome {
            Outcome::Succeeded => "done".to_owned(),
            _ => format!("{}: {}", word(end.outcome), end.reason),
        };
        (self.say)(&format!("{done} of {all}: {name} {how}{eta}"));
    }

    fn outcomes(&self) -> Result<Outcomes, RunError> {
        let state = self.folder.journal.state()?;
        let mut outcomes = Outcomes::default();
        for run in &self.plan.runs {
            match state.of(&run.id) {
                Where::Ended(end) if end.outcome == Outcome::Succeeded => outcomes.succeeded += 1,
                Where::Ended(_) => outcomes.failed += 1,
                _ => outcomes.missing += 1,
            }
        }
        Ok(outcomes)
    }
}

/// An outcome in a word.
pub const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Stopped => "stopped",
        Outcome::Refused => "refused",
    }
}
