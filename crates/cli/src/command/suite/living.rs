//! Suites that live, for `watch` and `status`: read again only when something was written.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::SystemTime;

use tonnage_run::clock::now_ms;
use tonnage_run::store::{RunFolder, Store};
use tonnage_suite::folder::SuiteFolder;
use tonnage_suite::journal::{State, Where};
use tonnage_suite::plan::Plan;
use tonnage_suite::status::{Status, Summary};
use tonnage_watch::{SuiteRun, SuiteView};

/// Started runs of a suite without a runner that are asked whether they live.
const MOST_ASKED: usize = 64;

/// When and how long plan and journal were written last.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// Suites as they were read last.
#[derive(Default)]
pub struct Living {
    read: HashMap<PathBuf, (Stamp, Plan, State)>,
}

impl Living {
    /// Those that a runner has, or whose runs go on without one.
    pub fn look(&mut self, store: &Store) -> Vec<Summary> {
        let folders = SuiteFolder::all(store.root());
        folders.iter().filter_map(|folder| self.summary(folder, store)).collect()
    }

    /// Whether a suite has a runner, or runs that go on without one.
    pub fn lives(&mut self, folder: &SuiteFolder, store: &Store) -> bool {
        self.summary(folder, store).is_some()
    }

    fn summary(&mut self, folder: &SuiteFolder, store: &Store) -> Option<Summary> {
        let is_run = folder.is_run();
        let (plan, state) = self.read(folder)?;
        (is_run || goes_on(plan, state, store)).then(|| Status::new(plan, state, is_run, now_ms()).summary())
    }

    fn read(&mut self, folder: &SuiteFolder) -> Option<(&Plan, &State)> {
        let stamp = ["plan.json", "journal.log"].map(|name| {
            let file = std::fs::metadata(folder.path.join(name)).ok()?;
            Some((file.modified().ok()?, file.len()))
        });
        if self.read.get(&folder.path).is_none_or(|(known, _, _)| *known != stamp) {
            // What cannot be read is said by `suite status`; here it is not there.
            let (plan, state) = (folder.plan().ok()?, folder.journal.state().ok()?);
            self.read.insert(folder.path.clone(), (stamp, plan, state));
        }
        self.read.get(&folder.path).map(|(_, plan, state)| (plan, state))
    }
}

/// Whether runs live although nobody starts more.
fn goes_on(plan: &Plan, state: &State, store: &Store) -> bool {
    let started = plan.runs.iter().filter_map(|run| match state.of(&run.id) {
        Where::Started(known) => Some(known),
        _ => None,
    });
    let lives = |run: &str| RunFolder::open(store.root().join("runs").join(run)).is_ok_and(|run| run.is_supervised());
    started.take(MOST_ASKED).any(|known| lives(&known.run))
}

/// As `watch` shows it.
pub fn view(summary: Summary) -> SuiteView {
    let run = |run: tonnage_suite::status::Running| SuiteRun {
        name: run.name,
        run: run.run,
        gpus: run.gpus,
        seconds: run.seconds,
    };
    SuiteView {
        name: summary.suite,
        is_run: summary.is_run,
        paused: summary.paused,
        succeeded: summary.succeeded,
        failed: summary.failed,
        waiting: summary.waiting,
        seconds_left: summary.seconds_left,
        running: summary.running.into_iter().map(run).collect(),
        next: summary.next,
    }
}
