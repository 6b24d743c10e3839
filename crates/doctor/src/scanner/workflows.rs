//! Reports of workflow engines that a log ends with: the rule of Snakemake or the process of Nextflow that failed.

use tonnage_core::failure::Class;

use crate::cause::FailureCause;
use crate::exception::{Exception, Files};
use crate::line::Line;
use crate::text::{has_phrase, text_after};
use crate::traceback::cut_text;
use crate::wording;

/// Bytes of a report's words that are kept.
const LONGEST: usize = 200;

fn reported(text: &str) -> FailureCause {
    FailureCause::Stated { class: Class::Reported, detail: Some(cut_text(text, LONGEST).to_owned()) }
}

/// The first rule that failed, else what Snakemake itself raised.
pub(super) fn of_snakemake(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let text_of = |at: usize| closing.get(at).map_or("", |(line, _)| line.text.as_str());
    let of_rule = |(line, _): &(Line, u64)| line.text.starts_with("Error in rule ") && line.text.ends_with(':');
    // A rule may be tried again.
    let is_done = |(line, _): &(Line, u64)| line.text.ends_with("(100%) done");
    if closing.iter().any(is_done) {
        return None;
    }
    if let Some(at) = closing.iter().rposition(of_rule) {
        let said = text_of(at.saturating_sub(1)).strip_prefix("message: ").unwrap_or_default();
        return Some((at, reported(&format!("{} {said}", text_of(at)))));
    }
    let raised = closing.iter().rposition(|(line, _)| raised_in(&line.text).is_some());
    // Its log has no more where the job's own words went elsewhere.
    let Some(at) = raised else {
        let at = closing.iter().take(ENDING).position(|(line, _)| is_failed(&line.text))?;
        return Some((at, reported(text_of(at))));
    };
    let name = raised_in(text_of(at))?;
    let message = cut_text(text_of(at.checked_sub(1)?), LONGEST);
    Some((at, FailureCause::Raised(Exception::new(name, message, &Files::default()))))
}

/// Lines behind the one in which Snakemake says that it ends.
const ENDING: usize = 6;

/// What Snakemake says of a job that failed, beside the job's own words.
fn is_failed(text: &str) -> bool {
    text.starts_with("Exiting because a job execution failed.")
        || text.starts_with("Removing output files of failed job ")
}

/// `MissingInputException in rule a in file Snakefile, line 5:`, and `WorkflowError:` with its words in the next line.
fn raised_in(text: &str) -> Option<&str> {
    let head = text.strip_suffix(':')?;
    let (name, place) = head.split_once(" in ").unwrap_or((head, ""));
    let is_name = name.ends_with("Exception") || name.ends_with("Error");
    let is_place = ["rule ", "line ", "file "].iter().any(|word| place.starts_with(word));
    (is_name && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) && (is_place || head == "WorkflowError"))
        .then_some(name)
}

/// The process that failed: the last of what its command wrote, else how it ended.
pub(super) fn of_nextflow(closing: &[(Line, u64)]) -> Option<(usize, FailureCause)> {
    let at = closing.iter().rposition(|(line, _)| has_phrase(&line.text, "Error executing process > "))?;
    let below = || closing.iter().take(at).rev().map(|(line, _)| line.text.as_str());
    let block = |head: &'static str| {
        below().skip_while(move |text| !text.starts_with(head)).skip(1).take_while(|text| !is_head(text))
    };
    let ended = block("Caused by:").next().unwrap_or_default();
    let status = text_after(ended, "terminated with an error exit status (").unwrap_or_default();
    if status.starts_with("137)") {
        return Some((at, wording::cause_of(Class::Killed)));
    }
    let said = block("Command error:").last().or_else(|| block("Command output:").last()).unwrap_or(ended);
    Some((at, wording::of_line(said, true).unwrap_or_else(|| reported(said))))
}

/// Whether a line is the head of a part of Nextflow's report.
fn is_head(text: &str) -> bool {
    ["Caused by:", "Command ", "Work dir:", "Tip: ", "Container:"].iter().any(|head| text.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lines(log: &str) -> Vec<(Line, u64)> {
        let mut lines: Vec<(Line, u64)> =
            log.lines().zip(1..).map(|(text, number)| (Line::new(text.as_bytes()), number)).collect();
        lines.reverse();
        lines
    }

    #[test]
    fn a_rule_that_failed_is_named_with_its_message() {
        let log = "Error in rule map_reads:\n    message: no such partition\n    jobid: 4\nShutting down, this might take some time.\n";
        let found = of_snakemake(&of_lines(log)).map(|(at, _)| at);
        assert_eq!(found, Some(3));
        assert!(of_snakemake(&of_lines("rule map_reads:\n    jobid: 4\n")).is_none());
    }

    #[test]
    fn a_process_is_told_by_what_its_command_wrote() {
        let log = "ERROR ~ Error executing process > 'ALIGN (s1)'\nCaused by:\n  Process `ALIGN (s1)` terminated with an error exit status (1)\n\
            Command error:\n  reading the index\n  index is truncated\nWork dir:\n  /w/1a\n";
        let Some((_, FailureCause::Stated { detail, .. })) = of_nextflow(&of_lines(log)) else { panic!() };
        assert_eq!(detail.as_deref(), Some("index is truncated"));
        let killed = log.replace("(1)\n", "(137)\n");
        assert_eq!(of_nextflow(&of_lines(&killed)).map(|(_, cause)| cause.class()), Some(Class::Killed));
    }
}
