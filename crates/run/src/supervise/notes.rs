//! What a supervisor writes down. A disk that is full, or a folder that is gone, ends no training: what cannot be written now is
//! kept, and written when it can be.

use std::cell::{Cell, RefCell};

use tonnage_core::record::{Entry, Event, write_entry};

use crate::clock::now_ms;
use crate::store::RunFolder;

/// So many lines are kept; of more, progress is left out.
const MOST: usize = 10_000;

/// A run's journal, as its supervisor writes it.
pub(super) struct Notes<'a> {
    folder: &'a RunFolder,
    pending: RefCell<Vec<String>>,
    fails: Cell<bool>,
}

impl<'a> Notes<'a> {
    pub const fn new(folder: &'a RunFolder) -> Self {
        Self { folder, pending: RefCell::new(Vec::new()), fails: Cell::new(false) }
    }

    /// Writes an event, after those that could not be written before. A sentence where that begins to fail, or works again.
    pub fn add(&self, event: Event) -> Option<String> {
        let mut pending = self.pending.borrow_mut();
        if pending.len() < MOST || !matches!(event, Event::Progress { .. }) {
            pending.push(write_entry(&Entry { at_ms: now_ms(), event }));
        }
        let written = self.folder.append_entries(&pending.concat());
        let failed_before = self.fails.replace(written.is_err());
        match written {
            Ok(()) => {
                pending.clear();
                failed_before.then(|| "the record can be written again".to_owned())
            }
            Err(error) if !failed_before => {
                Some(format!("the record cannot be written ({error}); the run goes on, its end is said here"))
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tonnage_core::record::RunRecord;

    use super::*;
    use crate::store::Store;

    #[test]
    fn what_could_not_be_written_is_written_later_in_order() {
        let root = std::env::temp_dir().join(format!("tonnage-notes-{}", std::process::id()));
        let run = Store::new(root.clone()).create(RunRecord::default()).unwrap();
        let notes = Notes::new(&run);
        assert_eq!(notes.add(Event::Supervised { pid: 1 }), None);
        let aside = root.join("aside");
        std::fs::rename(run.path(), &aside).unwrap();
        assert!(notes.add(Event::Supervised { pid: 2 }).unwrap().contains("cannot be written"));
        assert_eq!(notes.add(Event::Supervised { pid: 3 }), None, "said once");
        std::fs::rename(&aside, run.path()).unwrap();
        assert!(notes.add(Event::Supervised { pid: 4 }).unwrap().contains("again"));
        let pids: Vec<_> = run.journal().entries.into_iter().map(|entry| entry.event).collect();
        assert_eq!(pids, [1, 2, 3, 4].map(|pid| Event::Supervised { pid }));
        std::fs::remove_dir_all(root).unwrap();
    }
}
