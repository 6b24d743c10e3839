//! When nothing more is started: the same failure at the start of several runs will be that of all.

use std::collections::HashMap;

use tonnage_core::record::Outcome;

use super::Options;
use crate::journal::Ended;

/// Failures at the start, by what they say.
#[derive(Default)]
pub(super) struct Failures {
    counts: HashMap<(Option<String>, String), usize>,
}

impl Failures {
    /// Takes note of how a run ended; why nothing more is to be started, if so.
    pub fn note_end(&mut self, end: &Ended, options: &Options) -> Option<String> {
        if !matches!(end.outcome, Outcome::Failed | Outcome::Refused) {
            return None;
        }
        if options.fail_fast {
            return Some(format!("a run failed, and the suite is to end with the first: {}", end.reason));
        }
        if !end.at_start || options.pause_after == 0 {
            return None;
        }
        let count = self.counts.entry((end.class.clone(), plain_reason(&end.reason))).or_default();
        *count += 1;
        (*count == options.pause_after).then(|| {
            format!("{count} runs failed alike at their start, before any step: {} (run the suite again to go on all the same)", end.reason)
        })
    }
}

/// A reason without its numbers: seconds and processes differ from run to run.
fn plain_reason(reason: &str) -> String {
    reason.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>().replace("00", "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_failures_at_the_start_pause_and_others_do_not() {
        let options = Options { pause_after: 3, ..Options::default() };
        let fails = |reason: &str, at_start| Ended { reason: reason.to_owned(), at_start, ..Ended::default() };
        let mut failures = Failures::default();
        assert_eq!(failures.note_end(&fails("exit 1 after 1.2 s", true), &options), None);
        assert_eq!(failures.note_end(&fails("exit 1 after 2.3 s", true), &options), None);
        assert_eq!(failures.note_end(&fails("out of memory", true), &options), None);
        assert_eq!(failures.note_end(&fails("exit 1 after 1.0 s", false), &options), None, "it had begun to train");
        assert!(failures.note_end(&fails("exit 1 after 1.1 s", true), &options).is_some());
        let mut failures = Failures::default();
        let once = Options { fail_fast: true, ..Options::default() };
        assert!(failures.note_end(&fails("x", false), &once).is_some());
        let stopped = Ended { outcome: Outcome::Stopped, ..Ended::default() };
        assert_eq!(failures.note_end(&stopped, &once), None);
    }
}
