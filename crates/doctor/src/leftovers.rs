//! What tools complain of beside the job: files that are not there to be removed, windows, a node's own tidying.

use crate::text::has_phrase;

/// Whether a line that calls itself an error is of no part of the job.
pub(crate) fn is_leftover(text: &str) -> bool {
    // Chromium's, in which programs show their windows: `[5048:0419/124642.498:ERROR:backend.cc(984)] text`.
    let is_of_a_window = has_phrase(text, ":ERROR:") && has_phrase(text, ".cc(") && text.starts_with('[');
    is_of_a_window || is_of_cleaning(text) || is_of_a_node(text) || is_of_a_helper(text)
}

/// slurmstepd's, of the groups of processes that it takes down when a job has ended.
fn is_of_a_node(text: &str) -> bool {
    let is_tidying = has_phrase(text, "cgroup") && !has_phrase(text, "emory") && !has_phrase(text, "oom");
    text.starts_with("slurmstepd: error: ") && is_tidying
}

/// What coreutils say of a file that is not there, or there already, which a script has no need of.
fn is_of_cleaning(text: &str) -> bool {
    const TOOLS: &[&str] = &["rm: ", "ls: ", "find: ", "rmdir: ", "mkdir: ", "ln: ", "kill: "];
    const SAID: &[&str] = &[": No such file or directory", ": File exists", ": No such process"];
    TOOLS.iter().any(|tool| text.starts_with(tool)) && SAID.iter().any(|words| text.ends_with(words))
}

/// What a helper could not do for a program that goes on without: Spark's sweeper, the desktop that is to show a picture
/// (run-mailcap, xdg-open), which a node does not have.
pub(crate) fn is_of_a_helper(text: &str) -> bool {
    const HELPERS: &[&str] = &[
        "IOException: Failed to delete: ",
        " mailcap rules found for type \"",
        "\" passed its test case",
        "xdg-open: no method available for opening ",
    ];
    HELPERS.iter().any(|words| has_phrase(text, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_tidies_up_tells_of_no_job() {
        assert!(is_leftover("slurmstepd: error: rmdir(/sys/fs/cgroup/job_7): Device or resource busy"));
        assert!(!is_leftover("slurmstepd: error: Job 7 exceeded memory limit of its cgroup"));
        assert!(is_leftover("rm: cannot remove 'a.ckpt': No such file or directory"));
        assert!(!is_leftover("cp: cannot stat 'a.ckpt': No such file or directory"));
        assert!(is_leftover("Error: no \"view\" mailcap rules found for type \"image/png\""));
    }
}
