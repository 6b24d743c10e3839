//! What was sent of a suite, cancelled: only jobs that bear both the number and the name that the journal has.

use super::client::{Answer, Client};
use super::job_name;
use crate::journal::{State, Where};

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Jobs that SLURM was asked to cancel.
    pub asked: usize,
    /// What it said of those that it did not cancel.
    pub refused: Vec<String>,
    /// Why nothing is known, where it did not answer.
    pub silence: Option<String>,
}

/// Cancels all that is not known to have ended.
pub fn cancel_jobs(client: &Client, state: &State, suite: &str) -> Cancelled {
    let mut done = Cancelled::default();
    for (name, batch) in &state.batches {
        let is_open =
            |id: &String| matches!(state.where_is(id), Where::Submitted(run) if run.batch.as_ref() == Some(name));
        if !batch.ids.iter().any(is_open) {
            continue;
        }
        // The last link first: one whose job before it is cancelled would begin.
        for link in batch.links.iter().rev() {
            // With a name beside the number, a number that was given out a second time is nobody else's job.
            let mut words = vec![format!("--name={}", job_name(suite, name, link.number))];
            words.push(format!("--user={}", user_name()));
            words.extend(link.job.map(|job| job.to_string()));
            match client.call_program("scancel", &words, None) {
                Answer::Said(_) => done.asked += 1,
                Answer::Refused(why) => done.refused.push(why),
                Answer::Silent(why) => done.silence = Some(why),
            }
        }
    }
    done
}

/// The user's name, which `scancel` wants, or the number where it has none.
fn user_name() -> String {
    let own = nix::unistd::Uid::current();
    nix::unistd::User::from_uid(own).ok().flatten().map_or_else(|| own.to_string(), |user| user.name)
}
