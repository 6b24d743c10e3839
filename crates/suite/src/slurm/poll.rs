//! [`Poll`]: what the controller said of a user's jobs, and when. It is asked at most every [`POLL_SECONDS`], whoever asks: an answer is
//! kept for all suites of the user.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_run::clock::now_ms;
use tonnage_run::store::{create_private_folder, write_atomically};

use super::client::{Answer, Client};
use super::queue::{Queued, TEXT, of_json, of_text};
use crate::folder::host_name;

/// Seconds between two questions: what administrators of large clusters ask of scripts.
pub const POLL_SECONDS: u64 = 30;
/// Another number of seconds, for a controller of one's own, as in tests.
const VARIABLE: &str = "TONNAGE_SLURM_POLL_SECONDS";

/// An answer of the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Poll {
    /// When it was asked, in milliseconds since 1970 by this machine's clock.
    pub at_ms: u64,
    /// Which machine asked which SLURM: the file that says so.
    pub cluster: String,
    /// The user's jobs; `None` where it did not answer.
    pub jobs: Option<Vec<Queued>>,
    /// Why nothing is known.
    pub why: String,
}

impl Poll {
    /// The newest answer: one that is kept below `root`, or the controller's own, where that may be asked again.
    pub fn take_poll(client: &Client, root: &Path) -> Self {
        let path = root.join("slurm").join("queue.json");
        let now = now_ms();
        // An answer of another machine was given by another clock.
        let cluster = format!("{} {}", host_name(), std::env::var("SLURM_CONF").unwrap_or_default());
        let kept = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        // A clock that was put back makes an answer of the future: that one is no answer.
        let is_fresh = |kept: &Self| kept.cluster == cluster && kept.at_ms <= now && now - kept.at_ms < pause_ms();
        if let Some(kept) = kept.filter(is_fresh) {
            return kept;
        }
        let (jobs, why) = match ask_squeue(client) {
            Ok(jobs) => (Some(jobs), String::new()),
            Err(why) => (None, why),
        };
        let poll = Self { at_ms: now, cluster, jobs, why };
        let keep = || write_atomically(&path, &serde_json::to_vec(&poll).unwrap_or_default());
        // An answer that cannot be kept is asked for again: slower, and no less true.
        let _ = path.parent().map(create_private_folder).map(|made| made.and_then(|()| keep()));
        poll
    }

    /// Between two questions.
    pub fn pause() -> std::time::Duration {
        std::time::Duration::from_millis(pause_ms())
    }

    /// Whether what is kept of ended jobs may be asked for again, as often as the queue.
    pub(super) fn may_ask_accounts(root: &Path) -> bool {
        let path = root.join("slurm").join("accounts.json");
        let now = now_ms();
        let last = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let may = last.is_none_or(|last| last > now || now - last >= pause_ms());
        if may {
            // Where this cannot be written, nobody is kept from asking.
            let _ = write_atomically(&path, now.to_string().as_bytes());
        }
        may
    }
}

fn pause_ms() -> u64 {
    let asked = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
    asked.unwrap_or(POLL_SECONDS).saturating_mul(1000)
}

/// Asks for the user's jobs: as JSON, and where that cannot be read (SLURM before 21.08, a build without it) as text.
fn ask_squeue(client: &Client) -> Result<Vec<Queued>, String> {
    let user = format!("--user={}", nix::unistd::Uid::current());
    let as_json = match client.call_program("squeue", &["--json", &user, "--states=all"], None) {
        Answer::Said(text) => of_json(&text),
        Answer::Refused(words) => Err(words),
        // A silent controller is not asked a second time.
        Answer::Silent(why) => return Err(why),
    };
    let Err(problem) = as_json else { return as_json };
    let words = ["--noheader", &user, &format!("--format={TEXT}"), "--states=all"];
    match client.call_program("squeue", &words, None) {
        Answer::Said(text) => of_text(&text).map_err(|error| format!("squeue: {problem}; as text: {error}")),
        Answer::Refused(why) | Answer::Silent(why) => Err(why),
    }
}
