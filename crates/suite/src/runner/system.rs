//! What GPUs say of themselves while runs are on them, under W&B's names (`system.gpu.0.memoryAllocated`): a line a look, in a file a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonnage_run::clock::now_ms;

use super::Runner;
use super::active::Active;
use crate::system::{Look, append_look};

/// What a GPU says: the names that CUDA_VISIBLE_DEVICES may know it by, and values by their names.
pub type Readings = Vec<(Vec<String>, BTreeMap<String, f64>)>;

/// Asks the GPUs; must not wait for them.
pub type LookAtGpus<'a> = dyn Fn() -> Readings + 'a;

/// When it is looked next.
pub(super) struct System {
    every: Duration,
    last: Option<Instant>,
    /// Whether a line could not be written, which is said once.
    fails: bool,
}

impl System {
    pub const fn new(runner: &Runner<'_>) -> Self {
        Self { every: runner.options.sample_every, last: None, fails: false }
    }

    /// Looks, when it is time, and writes what concerns each run. What cannot be written is not missed by anybody but a reader of curves.
    pub fn look_around(&mut self, runner: &Runner<'_>, active: &[Active]) {
        if active.is_empty() || self.last.is_some_and(|at| at.elapsed() < self.every) {
            return;
        }
        self.last = Some(Instant::now());
        let readings = (runner.look)();
        for one in active {
            let is_its = |names: &[String]| names.iter().any(|name| one.gpus.contains(name));
            let of_gpus = readings.iter().filter(|(names, _)| is_its(names));
            let metrics: BTreeMap<String, f64> = of_gpus.flat_map(|(_, values)| values.clone()).collect();
            if metrics.is_empty() {
                continue;
            }
            let at_ms = now_ms();
            let began = one.folder.run().created_ms;
            let look = Look { at_ms, seconds: at_ms.saturating_sub(began) as f64 / 1e3, metrics };
            let written = append_look(&runner.folder.path, &runner.plan.runs[one.at].id, &look);
            if let Err(error) = &written
                && !self.fails
            {
                (runner.say)(&format!("warning: what the GPUs do cannot be written: {error}"));
            }
            self.fails = written.is_err();
        }
    }
}
