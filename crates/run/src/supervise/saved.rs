//! [`Saved`]: how far a training is by the newest `trainer_state.json` in its output folder, where its log does not say.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tonnage_core::progress::Progress;

use crate::guard::checkpoint::saved_progress;

/// Seconds between two looks; a checkpoint takes as long to write.
const LOOK_SECONDS: u64 = 5;

/// The checkpoints of an attempt. Those that were there before it began are none of its steps.
pub(super) struct Saved {
    folder: Option<PathBuf>,
    before: u64,
    looked: Instant,
    newest: Option<Progress>,
}

impl Saved {
    /// What an attempt that begins now finds in `folder`.
    pub fn new(folder: Option<PathBuf>) -> Self {
        let before = folder.as_deref().and_then(|folder| saved_progress(folder, 0)).map_or(0, |found| found.step);
        Self { folder, before, looked: Instant::now(), newest: None }
    }

    /// The newest step that this attempt has saved, as of the last look.
    pub const fn progress(&self) -> Option<Progress> {
        self.newest
    }

    /// Steps from what was there before to the newest.
    pub fn steps_made(&self) -> Option<u64> {
        self.newest.map(|newest| newest.step - self.before)
    }

    /// Looks for a newer one, every few seconds.
    pub fn tick_second(&mut self) {
        if self.looked.elapsed() >= Duration::from_secs(LOOK_SECONDS) {
            self.look_for_saved();
        }
    }

    /// Looks for a newer one.
    pub fn look_for_saved(&mut self) {
        self.looked = Instant::now();
        let beyond = self.newest.map_or(self.before, |newest| newest.step);
        let found = |folder: &Path| saved_progress(folder, beyond);
        self.newest = self.folder.as_deref().and_then(found).or(self.newest);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::private::TemporaryFolder;

    #[test]
    fn only_what_was_saved_since_the_start_counts() {
        let folder = TemporaryFolder::make().unwrap();
        let write = |step: u64, text: &str| {
            let checkpoint = folder.path().join(format!("checkpoint-{step}"));
            fs::create_dir(&checkpoint).unwrap();
            fs::write(checkpoint.join("trainer_state.json"), text).unwrap();
        };
        write(10, "{\"global_step\": 10, \"max_steps\": 100}");
        let mut saved = Saved::new(Some(folder.path().to_owned()));
        saved.look_for_saved();
        assert_eq!((saved.progress(), saved.steps_made()), (None, None));
        write(30, "{\"global_step\": 30, \"max_steps\": 100, \"log_history\": [{\"loss\": 1}]}");
        // Torn, and of another step than its folder: neither is a step.
        write(40, "{\"global_");
        write(50, "{\"global_step\": 30, \"max_steps\": 100}");
        saved.look_for_saved();
        assert_eq!(saved.progress().map(|now| (now.step, now.total)), Some((30, Some(100))));
        assert_eq!(saved.steps_made(), Some(20));
    }
}
