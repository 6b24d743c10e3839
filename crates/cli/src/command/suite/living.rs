//! Suites that live, for `watch` and `status`: read again only when something was written. SLURM is asked beside whoever looks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tonnage_core::record::SuiteSummary;
use tonnage_run::clock::now_ms;
use tonnage_run::store::{RunFolder, Store};
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::journal::{State, Where};
use tonnage_suite::plan::Plan;
use tonnage_suite::slurm::follow::has_open;
use tonnage_suite::slurm::{Poll, View};
use tonnage_suite::status::Status;

use super::submit::looked_after;

/// Started runs of a suite without a runner that are asked whether they live.
const MOST_ASKED: usize = 64;

/// Between two looks at what was sent to SLURM, however often its controller may be asked.
const LEAST: Duration = Duration::from_secs(1);

/// When and how long plan and journal were written last.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// Where runs are that were sent to SLURM, by their suite's folder, as the controller said last.
type Views = Arc<Mutex<HashMap<PathBuf, View>>>;

/// Suites as they were read last.
#[derive(Default)]
pub struct Living {
    read: HashMap<PathBuf, (Stamp, Plan, State)>,
    views: Views,
    begun: Option<Once>,
}

impl Living {
    /// Of whoever looks for long: SLURM is asked in a thread of its own, as often as it may be, so that a silent controller holds up nothing.
    pub fn beside() -> Self {
        Self { begun: Some(Once::new()), ..Self::default() }
    }

    /// Those that a runner has, or whose runs go on without one, here or on SLURM.
    pub fn look(&mut self, store: &Store) -> Vec<SuiteSummary> {
        self.ask_slurm(store);
        let folders = SuiteFolder::all_suites(store.root());
        folders.iter().filter_map(|folder| self.suite_summary(folder, store)).collect()
    }

    /// Whether a suite has a runner, or runs that go on without one.
    pub fn lives(&mut self, folder: &SuiteFolder, store: &Store) -> bool {
        self.ask_slurm(store);
        self.suite_summary(folder, store).is_some()
    }

    fn ask_slurm(&self, store: &Store) {
        match &self.begun {
            None => ask_controller(store, &self.views),
            Some(begun) => begun.call_once(|| ask_always(store.clone(), Arc::clone(&self.views))),
        }
    }

    fn suite_summary(&mut self, folder: &SuiteFolder, store: &Store) -> Option<SuiteSummary> {
        let view = locked_views(&self.views).get(&folder.path).cloned();
        let (plan, state) = self.read_suite(folder)?;
        let is_sent = has_open(state);
        // Whoever looks after what was sent holds the lock for a moment, and runs nothing.
        let is_run = folder.is_run() && (!is_sent || state.runner.is_some_and(is_process));
        if !is_run && !is_sent && !goes_on(plan, state, store) {
            return None;
        }
        let status = Status::new(plan, state, is_run, now_ms());
        Some(match &view {
            Some(view) => status.elsewhere(view).summary(),
            None => status.summary(),
        })
    }

    fn read_suite(&mut self, folder: &SuiteFolder) -> Option<(&Plan, &State)> {
        let stamp = ["plan.json", "journal.log"].map(|name| {
            let file = std::fs::metadata(folder.path.join(name)).ok()?;
            Some((file.modified().ok()?, file.len()))
        });
        if self.read.get(&folder.path).is_none_or(|(known, _, _)| *known != stamp) {
            // What cannot be read is said by `suite status`; here it is not there.
            let (plan, state) = (folder.read_plan().ok()?, folder.journal.read_state().ok()?);
            self.read.insert(folder.path.clone(), (stamp, plan, state));
        }
        self.read.get(&folder.path).map(|(_, plan, state)| (plan, state))
    }
}

fn locked_views(views: &Views) -> MutexGuard<'_, HashMap<PathBuf, View>> {
    views.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_process(pid: u32) -> bool {
    kill(Pid::from_raw(pid.cast_signed()), None).is_ok()
}

/// Asks SLURM where the runs are that were sent to it.
fn ask_controller(store: &Store, views: &Views) {
    for folder in SuiteFolder::all_suites(store.root()) {
        // What cannot be read, or is another's for now, keeps what was said before.
        let Ok(plan) = folder.read_plan() else { continue };
        if let Ok(Some(view)) = looked_after(&folder, store.root(), &plan) {
            locked_views(views).insert(folder.path.clone(), view);
        }
    }
}

/// The same for as long as this program lives.
fn ask_always(store: Store, views: Views) {
    thread::spawn(move || {
        loop {
            ask_controller(&store, &views);
            thread::sleep(Poll::pause().max(LEAST));
        }
    });
}

/// Whether runs live although nobody starts more.
fn goes_on(plan: &Plan, state: &State, store: &Store) -> bool {
    let started = plan.runs.iter().filter_map(|run| match state.where_is(&run.id) {
        Where::Started(known) => Some(known),
        _ => None,
    });
    let lives = |run: &str| RunFolder::open(store.root().join("runs").join(run)).is_ok_and(|run| run.is_supervised());
    started.take(MOST_ASKED).any(|known| lives(&known.run))
}
