//! [`Going`]: a suite while it is run: what waits, what lives, and what is decided of them.

use std::time::{Duration, Instant};

use tonnage_core::record::Outcome;
use tonnage_core::units::Seconds;
use tonnage_run::RunError;
use tonnage_run::store::RunFolder;

use super::active::Active;
use super::admit::{self, Gpus};
use super::pause::Failures;
use super::signals::Signals;
use super::system::System;
use super::{Place, Runner, word};
use crate::folder::host_name;
use crate::journal::{Ended, Event, State, Where};
use crate::pack::packing_order;
use crate::peaks::Peaks;
use crate::plan::{PlannedRun, Predicted, pack_item};
use crate::records;

/// How often runs are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Supervisors of one run that may die one after the other; whatever kills them will go on.
const MOST_DEATHS: usize = 5;

/// A suite while it is run.
pub(super) struct Going<'a> {
    runner: &'a Runner<'a>,
    /// What the journal comes to.
    pub state: State,
    gpus: Gpus,
    active: Vec<Active>,
    /// Places in the plan; the next one is at the end.
    waiting: Vec<usize>,
    failures: Failures,
    system: System,
    began: Instant,
    /// Runs that have ended since.
    done: usize,
    /// Runs that are to end.
    all: usize,
}

impl<'a> Going<'a> {
    /// Takes up what the journal says.
    pub fn begin_runner(runner: &'a Runner<'a>) -> Result<Self, RunError> {
        let mut state = runner.folder.journal.read_state()?;
        let gpus = Gpus::open(runner.store.root(), &runner.options)?;
        refuse_runs_of_others(runner, &state)?;
        let opened = Event::Opened { pid: std::process::id(), host: host_name() };
        runner.folder.journal.note_event(opened, &mut state)?;
        let mut going = Self {
            runner,
            state,
            gpus,
            active: Vec::new(),
            waiting: Vec::new(),
            failures: Failures::default(),
            system: System::new(runner),
            began: Instant::now(),
            done: 0,
            all: 0,
        };
        going.adopt_runs()?;
        going.waiting = going.to_start();
        going.all = going.waiting.len() + going.active.len();
        Ok(going)
    }

    /// Until all is done, nothing more may be started, or somebody asks it to end.
    pub fn run(&mut self, signals: &Signals) -> Result<(), RunError> {
        let mut last_start = None::<Instant>;
        loop {
            let asked = signals.times_asked();
            if asked > 0 {
                self.waiting.clear();
                self.active.iter_mut().for_each(|one| one.ask_to_end(asked));
            }
            self.take_ends(asked > 0)?;
            self.system.look_around(self.runner, &self.active);
            let is_due = last_start.is_none_or(|at| at.elapsed() >= self.runner.options.stagger);
            let may_start = is_due && !self.waiting.is_empty() && self.active.len() < self.runner.options.slots;
            if may_start && self.start_one()? {
                last_start = Some(Instant::now());
                continue;
            }
            if self.active.is_empty() && (self.waiting.is_empty() || may_start) {
                break;
            }
            std::thread::sleep(TICK);
        }
        if !self.waiting.is_empty() {
            let left = self.waiting.len();
            (self.runner.say)(&format!("{left} runs are left: what others were promised leaves them no room"));
        }
        Ok(())
    }

    fn note_event(&mut self, event: Event) -> Result<(), RunError> {
        self.runner.folder.journal.note_event(event, &mut self.state)
    }

    /// What is to be started, the longest first.
    fn to_start(&self) -> Vec<usize> {
        let runs = &self.runner.plan.runs;
        let order = packing_order(&self.runner.plan.pack_items());
        let mut waiting: Vec<usize> =
            order.into_iter().filter(|at| matches!(self.state.where_is(&runs[*at].id), Where::Waiting(_))).collect();
        let sent = runs.iter().filter(|run| matches!(self.state.where_is(&run.id), Where::Submitted(_))).count();
        if sent > 0 {
            let hint = "`tonnage suite status` says where they are";
            (self.runner.say)(&format!("{sent} runs were sent to SLURM, and are left to it: {hint}"));
        }
        let all = waiting.len();
        waiting.retain(|at| self.could_run(&runs[*at]));
        if waiting.len() < all {
            let left = all - waiting.len();
            (self.runner.say)(&format!("{left} runs fit no GPU here: `tonnage suite plan` says which"));
        }
        waiting.reverse();
        waiting
    }

    /// Whether a run fits this machine with nothing else on it.
    fn could_run(&self, run: &PlannedRun) -> bool {
        let one = self.runner.plan.planned_of(run);
        let fits = |predicted: &Predicted| {
            let item = pack_item(Some(predicted));
            item.bytes <= predicted.usable_bytes && item.gpus <= self.runner.options.gpus.len()
        };
        one.error.is_none() && one.predicted.as_ref().is_none_or(fits)
    }

    /// What runs of the same configuration were measured to take.
    fn peaks_of(&self, run: &PlannedRun) -> Peaks {
        let one = self.runner.plan.planned_of(run);
        one.predicted.as_ref().map(|known| self.state.peaks(&one.name, known.total_bytes)).unwrap_or_default()
    }

    /// Takes up runs that an earlier runner started; those that nobody supervises go on where they ended.
    fn adopt_runs(&mut self) -> Result<(), RunError> {
        for (at, run) in self.runner.plan.runs.iter().enumerate() {
            let Where::Started(known) = self.state.where_is(&run.id) else { continue };
            let known = known.clone();
            let Ok(folder) = RunFolder::open(self.runner.store.root().join("runs").join(&known.run)) else {
                // Its folder was never whole, or somebody removed it: nothing of it was said to be done.
                let end =
                    Ended { outcome: Outcome::Stopped, reason: "its folder is gone".to_owned(), ..Ended::default() };
                self.note_event(Event::Ended { id: run.id.clone(), end })?;
                continue;
            };
            let mut one = Active::new(at, folder, known.gpus, known.bytes);
            if !one.has_ended() && !one.folder.is_supervised() {
                self.start_run(&mut one)?;
            }
            self.active.push(one);
        }
        Ok(())
    }

    /// Starts a run's supervisor.
    fn start_run(&self, one: &mut Active) -> Result<(), RunError> {
        let run = &self.runner.plan.runs[one.at];
        let place = Place { gpus: &one.gpus, peaks: &self.peaks_of(run) };
        let secrets = (self.runner.record)(run, &place).map(|(_, secrets)| secrets).unwrap_or_default();
        one.start_run(self.runner, run, &secrets)
    }

    /// Starts the first run for which there is room; whether there was one.
    fn start_one(&mut self) -> Result<bool, RunError> {
        for place in (0..self.waiting.len()).rev().take(admit::LOOKAHEAD) {
            let at = self.waiting[place];
            let run = &self.runner.plan.runs[at];
            let predicted = self.runner.plan.planned_of(run).predicted.as_ref();
            let peaks = self.peaks_of(run);
            let need = Gpus::need_of(predicted, &peaks);
            let Some(chosen) = self.gpus.room_for(&need, &self.active)? else { continue };
            self.waiting.remove(place);
            self.begin_run(at, chosen, need.bytes, &peaks)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives a run its folder and its promise, writes that down, and starts it, in this order: whoever finds the one finds the others.
    fn begin_run(&mut self, at: usize, chosen: Vec<String>, bytes: u64, peaks: &Peaks) -> Result<(), RunError> {
        let run = &self.runner.plan.runs[at];
        let place = Place { gpus: &chosen, peaks };
        let (record, secrets) = match (self.runner.record)(run, &place) {
            Ok(made) => made,
            Err(why) => return self.refuse_run(run, why),
        };
        let kept = match self.state.where_is(&run.id) {
            Where::Waiting(Some(known)) => RunFolder::open(self.runner.store.root().join("runs").join(&known.run)).ok(),
            _ => None,
        };
        let is_new = kept.is_none();
        let folder = match kept {
            Some(folder) => folder,
            None => self.runner.store.create(record)?,
        };
        let started = Event::Started { id: run.id.clone(), run: folder.id().to_owned(), gpus: chosen.clone(), bytes };
        if let Err(error) = self.note_event(started) {
            // What no journal knows would never be taken up.
            if is_new {
                let _ = folder.remove();
            }
            return Err(error);
        }
        self.gpus.promise_bytes(&folder, &chosen, bytes)?;
        let mut one = Active::new(at, folder, chosen, bytes);
        one.start_run(self.runner, run, &secrets)?;
        self.active.push(one);
        Ok(())
    }

    /// A run that cannot be, as its configuration says it.
    fn refuse_run(&mut self, run: &PlannedRun, why: String) -> Result<(), RunError> {
        (self.runner.say)(&format!("{}: not started: {why}", self.runner.plan.run_name(run)));
        let started = Event::Started { id: run.id.clone(), run: String::new(), gpus: Vec::new(), bytes: 0 };
        self.note_event(started)?;
        let end = Ended { outcome: Outcome::Refused, reason: why, at_start: true, ..Ended::default() };
        self.note_event(Event::Ended { id: run.id.clone(), end: end.clone() })?;
        self.done += 1;
        self.judge_end(&end)
    }

    /// Takes note of runs that have ended since, with their records whole. One whose supervisor died goes on, unless all are to end.
    fn take_ends(&mut self, is_ending: bool) -> Result<(), RunError> {
        let mut at = 0;
        while at < self.active.len() {
            if !self.active[at].has_ended() {
                at += 1;
                continue;
            }
            let mut one = self.active.swap_remove(at);
            if !is_ending && one.has_died() && one.deaths < MOST_DEATHS {
                one.deaths += 1;
                let name = self.runner.plan.run_name(&self.runner.plan.runs[one.at]);
                (self.runner.say)(&format!("{name}: its supervisor died; another takes it up"));
                self.start_run(&mut one)?;
                self.active.push(one);
                continue;
            }
            self.take_end(one)?;
        }
        Ok(())
    }

    fn take_end(&mut self, mut one: Active) -> Result<(), RunError> {
        let run = &self.runner.plan.runs[one.at];
        let planned = self.runner.plan.planned_of(run);
        let mut end = one.end_run(planned.predicted.as_ref());
        end.configuration.clone_from(&planned.name);
        records::finish_records(self.runner, run, &one.folder, &end)?;
        self.note_event(Event::Ended { id: run.id.clone(), end: end.clone() })?;
        self.done += 1;
        self.tell_end(run, &end);
        self.judge_end(&end)
    }

    /// Starts nothing more where an end says that it would be in vain.
    fn judge_end(&mut self, end: &Ended) -> Result<(), RunError> {
        let Some(why) = self.failures.note_end(end, &self.runner.options) else { return Ok(()) };
        (self.runner.say)(&format!("paused: {why}"));
        self.waiting.clear();
        self.note_event(Event::Paused { why })
    }

    fn tell_end(&self, run: &PlannedRun, end: &Ended) {
        let (done, all) = (self.done, self.all.max(self.done));
        let left = self.began.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
        // What failed or was stopped says nothing of how long others take.
        let eta = match all - done {
            left_runs if left_runs > 0 && end.outcome == Outcome::Succeeded => {
                format!(", about {} left", Seconds(left))
            }
            _ => String::new(),
        };
        let how = match end.outcome {
            Outcome::Succeeded => "done".to_owned(),
            _ => format!("{}: {}", word(end.outcome), end.reason),
        };
        (self.runner.say)(&format!("{done} of {all}: {} {how}{eta}", self.runner.plan.run_name(run)));
    }
}

/// Runs that were started on another machine may live there, where this one sees no process.
fn refuse_runs_of_others(runner: &Runner<'_>, state: &State) -> Result<(), RunError> {
    let own = host_name();
    let is_of_other = |known: &&crate::journal::RunState| !known.host.is_empty() && known.host != own;
    let mut others: Vec<&str> = Vec::new();
    for run in &runner.plan.runs {
        if let Where::Started(known) = state.where_is(&run.id)
            && is_of_other(&known)
        {
            others.push(&known.host);
        }
    }
    if others.is_empty() || runner.options.take_over {
        return Ok(());
    }
    let (count, host) = (others.len(), others[0]);
    Err(RunError::NoSuchRun(format!(
        "{count} runs of suite {} were started on {host} and have not ended: they may live there, where no process is seen from here; \
         go on with the suite there, or say `--take-over` if that machine is gone",
        runner.plan.suite
    )))
}
