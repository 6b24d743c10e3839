//! What killed a job: cause, numbers, evidence, echoes, and what to do.
//!
//! Evidence stands behind `> `, as quotations do: this screen in a log is not read as a failure. Nothing of a log or of
//! a file's name is printed but through [`printable`].

use tonnage_core::failure::{Class, Strength};
use tonnage_core::printable::printable;
use tonnage_core::units::Bytes;
use tonnage_doctor::{Diagnosis, End, FailureCause, Figure, Located, Ranks, advise};

use super::paint::{BAD, BOLD, DIM, FLAG, WARN, paint_text, wrap_text};
use super::plan::plan_screen;
use crate::doctor::{DoctorAnswer, JobAnswer};
use crate::look::Look;

/// Findings of a list that are shown.
const MOST_SHOWN: usize = 6;
/// A job that writes so many lines after an error has survived it.
const MANY_LINES: u64 = 1000;
/// How much more than predicted a run may need before the job file is doubted.
const TOLERANCE: f64 = 1.02;

/// The screen for `answer`.
pub fn doctor_screen(answer: &DoctorAnswer<'_>, look: &Look) -> String {
    let Some(root) = &answer.diagnosis.root else { return nothing_found(answer, look) };
    let diagnosis = &answer.diagnosis;
    let mut text = cause_head(answer, root, look);
    text.push_str(&evidence_lines("evidence", std::slice::from_ref(root), look));
    text.push_str(&lines_before(root, look));
    text.push_str(&rank_lines(diagnosis, look));
    text.push_str(&evidence_lines("also found", &diagnosis.others, look));
    text.push_str(&evidence_lines(echoes_heading(root.finding.strength(), &diagnosis.ranks), &diagnosis.echoes, look));
    text.push_str(&evidence_lines("often printed and not fatal", &diagnosis.warnings, look));
    text.push_str(&evidence_lines("the job went on after", &diagnosis.survived, look));
    text.push_str(&evidence_lines("earlier attempts ended with", &diagnosis.earlier, look));
    text.push_str(&remedy_lines(answer, root, look));
    match &answer.job {
        Some(job) => text.push_str(&against_job(answer, job, look)),
        None if answer.memory().is_some() => {
            let hint = "with `--job JOB.toml` the message is held against the estimate, and every remedy is estimated";
            text.push_str(&format!("\n{}\n", paint_text(DIM, &wrap_text(hint, look.width, 0))));
        }
        None => {}
    }
    text
}

/// What stands above echoes: of a rank only where a log names any.
fn echoes_heading(strength: Strength, ranks: &Ranks) -> &'static str {
    match strength > Strength::Echo {
        true if ranks.ends.is_empty() => "follows from it",
        true => "follows from a rank's death",
        false => "found with it",
    }
}

fn nothing_found(answer: &DoctorAnswer<'_>, look: &Look) -> String {
    let lines: u64 = answer.sources.iter().map(|source| source.scan.lines).sum();
    let logs = answer.sources.len();
    let diagnosis = &answer.diagnosis;
    let went_on = !diagnosis.survived.is_empty() || !diagnosis.earlier.is_empty();
    let well = answer.sources.iter().find_map(|source| Some((&source.name, source.scan.ended_well?)));
    let what = match (went_on, well) {
        (true, _) => "no failure that ended it",
        (false, Some(_)) => "no known failure",
        (false, None) => "not identified: no known failure",
    };
    let mut text = format!("{what} in {lines} lines of {logs} log{}\n", if logs == 1 { "" } else { "s" });
    if answer.not_read > 0 {
        text.push_str(&format!("{} files that do not look like logs were not read\n", answer.not_read));
    }
    text.push_str(&evidence_lines("often printed and not fatal", &diagnosis.warnings, look));
    text.push_str(&evidence_lines("the job went on after", &diagnosis.survived, look));
    text.push_str(&evidence_lines("earlier attempts ended with", &diagnosis.earlier, look));
    if went_on {
        return text;
    }
    if let Some((name, line)) = well {
        let said = format!("{}:{line} says that it ended well", printable(name));
        text.push_str(&format!("{}\n", wrap_text(&said, look.width, 0)));
        return text;
    }
    text.push_str(&last_error(answer, look));
    let hint = "if the job died without a word, give its exit status: tonnage doctor LOG --exit-status 137";
    text.push_str(&format!("{}\n", paint_text(DIM, &wrap_text(hint, look.width, 0))));
    text
}

/// What the logs themselves call an error, last: shown as what it is, for it is not known to have ended the job.
fn last_error(answer: &DoctorAnswer<'_>, look: &Look) -> String {
    let of = |source: &tonnage_doctor::Source| {
        let error = source.scan.last_error.as_ref()?;
        let place = paint_text(DIM, &format!("{}:{}", printable(&source.name), error.line));
        Some(format!("  {place}\n  > {}\n", cut_line(&error.text, look, 4)))
    };
    let lines: String = answer.sources.iter().filter_map(of).take(MOST_SHOWN).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\n{}\n{lines}\n", paint_text(BOLD, "the last line that calls itself an error"))
    }
}

fn cause_head(answer: &DoctorAnswer<'_>, root: &Located<'_>, look: &Look) -> String {
    let title = format!("{} {}", look.pick("✘", "x"), cause_title(answer, root));
    let mut text = format!("{}\n", paint_text(BAD, &wrap_text(&title, look.width, 2)));
    let mut figures: Vec<String> = root.finding.cause.figures().into_iter().map(shown_figure).collect();
    if let Some(memory) = answer.memory() {
        figures.extend(memory.words());
        let others: Vec<&str> = memory.reasons().into_iter().skip(1).map(Class::title).collect();
        figures.extend((!others.is_empty()).then(|| format!("also: {}", others.join("; "))));
        figures
            .extend(memory.likely.then(|| "the message states no numbers; low memory is the likely reason".to_owned()));
    }
    if !figures.is_empty() {
        text.push_str(&format!("  {}\n", wrap_text(&figures.join(look.pick(" · ", ", ")), look.width, 2)));
    }
    for line in circumstance_lines(&answer.diagnosis, root) {
        text.push_str(&format!("  {}\n", wrap_text(&line, look.width, 2)));
    }
    if answer.diagnosis.lines_after > MANY_LINES {
        let note = format!(
            "the log goes on for {} lines after it: the job may have survived it",
            answer.diagnosis.lines_after
        );
        text.push_str(&format!("  {}\n", paint_text(WARN, &wrap_text(&note, look.width, 2))));
    }
    text
}

/// What happened and to which rank: an exception in its own words.
fn cause_title(answer: &DoctorAnswer<'_>, root: &Located<'_>) -> String {
    let class = root.finding.class();
    let first = answer.diagnosis.first_rank;
    if let FailureCause::Raised(exception) = &root.finding.cause
        && class == Class::Raised
    {
        let message = printable(&exception.message);
        let said = if message.is_empty() {
            String::new()
        } else {
            format!(": {}", message.chars().take(160).collect::<String>())
        };
        let who = first.map_or_else(|| "the program".to_owned(), |rank| format!("rank {rank}"));
        return format!("{who} raised {}{said}", printable(exception.short_name()));
    }
    let rank = first.map(|rank| format!(", first on rank {rank}")).unwrap_or_default();
    let vague = if class == Class::WorkerFailed { ": not identified why" } else { "" };
    format!("{}{rank}{vague}", root.finding.cause.title())
}

/// When it happened, where, and whether to start again.
fn circumstance_lines(diagnosis: &Diagnosis<'_>, root: &Located<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(place) = root.finding.place() {
        let function =
            if place.function.is_empty() { String::new() } else { format!(" in {}", printable(&place.function)) };
        lines.push(format!("at {}:{}{function}", printable(&place.file), place.line));
    }
    let phase = diagnosis.phase.map(|phase| format!("phase {}", phase.name()));
    let step = diagnosis.step.map(|step| match step.of {
        Some(of) => format!("after step {} of {of}", step.step),
        None => format!("after step {}", step.step),
    });
    let node = diagnosis.node.as_deref().map(|node| format!("machine {}", printable(node)));
    let gpu = diagnosis.gpu.as_deref().map(|gpu| format!("GPU {}", printable(gpu)));
    let parts: Vec<String> = [phase, step, node, gpu].into_iter().flatten().collect();
    if !parts.is_empty() {
        lines.push(parts.join(", "));
    }
    lines.push(root.finding.class().verdict().words().to_owned());
    lines
}

/// The lines just before the evidence.
fn lines_before(root: &Located<'_>, look: &Look) -> String {
    let lines = root.finding.context.iter().map(|line| format!("  > {}\n", cut_line(line, look, 4)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{}\n{lines}", paint_text(BOLD, "just before")) }
}

/// Ranks by how they ended; nothing where one rank alone is known.
fn rank_lines(diagnosis: &Diagnosis<'_>, look: &Look) -> String {
    const WORDS: &[(End, &str)] = &[
        (End::Raised, "failed by themselves"),
        (End::Waited, "waited for others"),
        (End::Lost, "lost the others"),
        (End::TornDown, "were told to end"),
        (End::Silent, "not heard of"),
    ];
    let ranks = &diagnosis.ranks;
    if ranks.ends.len() < 2 {
        return String::new();
    }
    let mut text = format!("\n{}\n", paint_text(BOLD, "ranks"));
    for (end, words) in WORDS {
        let with = ranks.with(*end);
        if !with.is_empty() {
            text.push_str(&format!("  {words}: {}\n", wrap_text(&rank_list(&with), look.width, 4)));
        }
    }
    let waited = !ranks.with(End::Waited).is_empty();
    if !ranks.behind.is_empty() {
        text.push_str(&format!("  behind the others: {}\n", wrap_text(&rank_list(&ranks.behind), look.width, 4)));
    } else if waited && diagnosis.root.is_some_and(|root| root.finding.class() == Class::NcclTimeout) {
        text.push_str("  none is seen to be behind: those that report a timeout only waited\n");
    }
    text
}

/// `0 to 6, 9`
fn rank_list(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    runs.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn shown_figure((name, figure): (&str, Figure)) -> String {
    let name = name.replace('_', " ");
    match figure {
        Figure::Bytes(bytes) => format!("{name} {}", Bytes(bytes)),
        Figure::Number(number) => format!("{name} {number}"),
        Figure::Text(text) => format!("{name} {}", printable(&text)),
    }
}

/// Where it stands, and the line.
fn evidence_lines(title: &str, found: &[Located<'_>], look: &Look) -> String {
    if found.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", paint_text(BOLD, title));
    for located in found.iter().take(MOST_SHOWN) {
        text.push_str(&format!("  {}\n", paint_text(DIM, &place_words(located, look))));
        if located.finding.line > 0 {
            text.push_str(&format!("  > {}\n", cut_line(&located.finding.text, look, 4)));
        }
    }
    if found.len() > MOST_SHOWN {
        text.push_str(&format!("  and {} more\n", found.len() - MOST_SHOWN));
    }
    text
}

fn place_words(located: &Located<'_>, look: &Look) -> String {
    let finding = located.finding;
    let line = if finding.line > 0 { format!(":{}", finding.line) } else { String::new() };
    let rank = located.rank().map(|rank| format!(" rank {rank}")).unwrap_or_default();
    let count = if finding.count > 1 { format!(" {} times", finding.count) } else { String::new() };
    let class = finding.cause.class();
    cut_line(&format!("{}{line}{rank}{count} {}", located.source.name, class.name()), look, 2)
}

/// The text, printable, in what is left of a line.
fn cut_line(text: &str, look: &Look, indent: usize) -> String {
    let mut text = printable(text);
    if !look.unicode {
        text = ascii_text(&text);
    }
    let room = look.width.saturating_sub(indent).max(20);
    if text.chars().count() <= room {
        return text;
    }
    let end = look.pick("…", "...");
    let head: String = text.chars().take(room - end.chars().count()).collect();
    head + end
}

fn ascii_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() { plain.push(character) } else { plain.extend(character.escape_unicode()) }
    }
    plain
}

fn remedy_lines(answer: &DoctorAnswer<'_>, root: &Located<'_>, look: &Look) -> String {
    let mut text = format!("\n{}\n", paint_text(BOLD, "what to do"));
    for advice in advise(&root.finding.cause, &answer.advice_context()) {
        text.push_str(&format!("  {} {}\n", look.pick("•", "-"), wrap_text(&advice.text, look.width, 4)));
        if let Some(flag) = &advice.flag {
            // Not wrapped: it is there to be copied.
            text.push_str(&format!("      {}\n", paint_text(FLAG, flag)));
        }
    }
    text
}

/// The message beside the job's estimate, and what would make the job fit where it ran.
fn against_job(answer: &DoctorAnswer<'_>, job: &JobAnswer, look: &Look) -> String {
    let base = &job.proposals.base.verdict;
    let mut text = format!("\n{}\n", paint_text(BOLD, "against the job"));
    let predicted =
        format!("predicted {} allocated, {} in all", Bytes(base.peak_allocated_bytes), Bytes(base.total_bytes));
    text.push_str(&format!("  {}\n", wrap_text(&predicted, look.width, 2)));
    if let Some(needed) = answer.needed_bytes() {
        text.push_str(&format!("  {}\n", wrap_text(&verdict_words(needed, base.peak_allocated_bytes), look.width, 2)));
    }
    if let (Some(other), Some(total)) = (job.other_gpu, answer.memory().and_then(|memory| memory.total)) {
        let note = format!(
            "the log is of a GPU with {}, the job names one with {}: another GPU, or a slice of it; what follows is for the log's",
            Bytes(total),
            Bytes(other)
        );
        text.push_str(&format!("  {}\n", paint_text(WARN, &wrap_text(&note, look.width, 2))));
    }
    let neighbour = answer.memory().is_some_and(|memory| memory.reasons().contains(&Class::Neighbour));
    if neighbour {
        let note = "the GPU below is what the other processes left of it";
        text.push_str(&format!("  {}\n", paint_text(DIM, note)));
    }
    text.push('\n');
    text.push_str(&plan_screen(&job.job, &job.proposals, &job.with, look));
    text
}

fn verdict_words(needed: u64, predicted: u64) -> String {
    let needed_text = format!("the run needed at least {} allocated", Bytes(needed));
    if needed as f64 > predicted as f64 * TOLERANCE {
        format!("{needed_text}: more than this job needs, so something else ran (batch, length, precision, evaluation)")
    } else {
        format!("{needed_text}: within what was predicted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_follow_from_a_rank_only_where_there_are_ranks() {
        let ranks = Ranks { ends: vec![(1, End::Raised)], behind: Vec::new() };
        assert_eq!(echoes_heading(Strength::Cause, &ranks), "follows from a rank's death");
        assert_eq!(echoes_heading(Strength::Cause, &Ranks::default()), "follows from it");
        assert_eq!(echoes_heading(Strength::Echo, &ranks), "found with it");
    }
}
