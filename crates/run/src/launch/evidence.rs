//! [`Evidence`]: how a command ended, left by its keeper in the attempt's folder. A supervisor that dies between the end of a command
//! and its own last line is followed by one that finds it there: what succeeded is not run again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_core::limit::JSON_BYTES;
use tonnage_core::record::ExitRecord;

use crate::bounded::read_text;

/// The file in an attempt's folder.
const NAME: &str = "exit.json";

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    pub exit: ExitRecord,
    /// Whether it was sent a signal before: one that saves and exits with 0 has not finished.
    pub asked: bool,
    /// Seconds from its start.
    pub seconds: f64,
}

impl Evidence {
    /// Whether the command came to its end by itself and says that it succeeded.
    pub const fn is_success(&self) -> bool {
        self.exit.is_success() && !self.asked
    }
}

/// Leaves it in the folder of an attempt, on the disk before anybody is told of the end.
pub(super) fn leave_evidence(attempt: &Path, evidence: &Evidence) -> io::Result<()> {
    let aside = attempt.join("exit.json.tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(serde_json::to_string(evidence)?.as_bytes())?;
    file.sync_data()?;
    fs::rename(&aside, attempt.join(NAME))?;
    File::open(attempt)?.sync_all()
}

/// Removes what an attempt of the same number left that no journal knows.
pub(super) fn forget_evidence(attempt: &Path) {
    // Where there is none nothing is to be removed.
    let _ = fs::remove_file(attempt.join(NAME));
}

/// What was left in the folder of an attempt, if anything was.
pub fn left_evidence(attempt: &Path) -> Option<Evidence> {
    serde_json::from_str(&read_text(attempt.join(NAME), JSON_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::TemporaryFolder;

    #[test]
    fn only_an_end_of_its_own_is_a_success() {
        let folder = TemporaryFolder::make().unwrap();
        assert_eq!(left_evidence(folder.path()), None);
        let done = Evidence { exit: ExitRecord { code: Some(0), signal: None }, asked: false, seconds: 2.5 };
        leave_evidence(folder.path(), &done).unwrap();
        assert_eq!(left_evidence(folder.path()), Some(done));
        assert!(done.is_success() && !Evidence { asked: true, ..done }.is_success());
        assert!(!Evidence { exit: ExitRecord { code: None, signal: Some(15) }, ..done }.is_success());
        fs::write(folder.path().join(NAME), "{\"exit\"").unwrap();
        assert_eq!(left_evidence(folder.path()), None, "what is torn says nothing");
        forget_evidence(folder.path());
        assert!(!folder.path().join(NAME).exists());
    }
}
