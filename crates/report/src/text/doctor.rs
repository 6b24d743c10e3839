//! What killed a job: cause, numbers, evidence, echoes, and what to do.
//!
//! Evidence stands behind `> `, as quotations do: this screen in a log is not read as a failure. Nothing of a log or of
//! a file's name is printed but through [`printable`].

use tonnage_core::failure::{Class, Figure, Located, advice, printable};
use tonnage_core::units::Bytes;

use super::paint::{BAD, BOLD, DIM, FLAG, WARN, paint, wrap};
use super::plan;
use crate::doctor::{DoctorAnswer, JobAnswer};
use crate::look::Look;

/// Findings of a list that are shown.
const MOST_SHOWN: usize = 6;
/// A job that writes so many lines after an error has survived it.
const MANY_LINES: u64 = 1000;
/// How much more than predicted a run may need before the job file is doubted.
const TOLERANCE: f64 = 1.02;

/// The screen for `answer`.
pub fn doctor(answer: &DoctorAnswer<'_>, look: &Look) -> String {
    let Some(root) = &answer.diagnosis.root else { return nothing(answer, look) };
    let mut text = head(answer, root, look);
    text.push_str(&evidence("evidence", std::slice::from_ref(root), look));
    text.push_str(&evidence("also found", &answer.diagnosis.others, look));
    text.push_str(&evidence("follows from a rank's death", &answer.diagnosis.echoes, look));
    text.push_str(&evidence("often printed and not fatal", &answer.diagnosis.warnings, look));
    text.push_str(&remedies(root, look));
    match &answer.job {
        Some(job) => text.push_str(&against(answer, job, look)),
        None if answer.memory().is_some() => {
            let hint = "with `--job JOB.toml` the message is held against the estimate, and every remedy is estimated";
            text.push_str(&format!("\n{}\n", paint(DIM, &wrap(hint, look.width, 0))));
        }
        None => {}
    }
    text
}

fn nothing(answer: &DoctorAnswer<'_>, look: &Look) -> String {
    let lines: u64 = answer.sources.iter().map(|source| source.scan.lines).sum();
    let logs = answer.sources.len();
    let mut text = format!("no known failure in {lines} lines of {logs} log{}\n", if logs == 1 { "" } else { "s" });
    if answer.not_read > 0 {
        text.push_str(&format!("{} files that do not look like logs were not read\n", answer.not_read));
    }
    text.push_str(&evidence("often printed and not fatal", &answer.diagnosis.warnings, look));
    let raised: Vec<_> = answer.raised().collect();
    if !raised.is_empty() {
        text.push_str(&format!(
            "\n{}\n",
            paint(BOLD, "ends with an exception of Python, whose text is not a known failure's")
        ));
    }
    for (source, raised) in raised.iter().take(MOST_SHOWN) {
        let place = cut(&format!("{}:{}", source.name, raised.line), look, 2);
        text.push_str(&format!("  {}\n  > {}\n", paint(DIM, &place), cut(&raised.text, look, 4)));
    }
    if !raised.is_empty() {
        return text;
    }
    let hint = "if the job died without a word, give its exit status: tonnage doctor LOG --exit-status 137";
    text.push_str(&format!("{}\n", paint(DIM, &wrap(hint, look.width, 0))));
    text
}

fn head(answer: &DoctorAnswer<'_>, root: &Located<'_>, look: &Look) -> String {
    let class = root.finding.cause.class();
    let rank = answer.diagnosis.first_rank.map(|rank| format!(", first on rank {rank}")).unwrap_or_default();
    let title = format!("{} {}{rank}", look.pick("✘", "x"), class.title());
    let mut text = format!("{}\n", paint(BAD, &wrap(&title, look.width, 2)));
    let mut figures: Vec<String> = root.finding.cause.figures().into_iter().map(shown).collect();
    if let Some(memory) = answer.memory() {
        let others: Vec<&str> = memory.reasons().into_iter().skip(1).map(Class::title).collect();
        figures.extend((!others.is_empty()).then(|| format!("also: {}", others.join("; "))));
        figures
            .extend(memory.likely.then(|| "the message states no numbers; low memory is the likely reason".to_owned()));
    }
    if !figures.is_empty() {
        text.push_str(&format!("  {}\n", wrap(&figures.join(look.pick(" · ", ", ")), look.width, 2)));
    }
    if answer.diagnosis.lines_after > MANY_LINES {
        let note = format!(
            "the log goes on for {} lines after it: the job may have survived it",
            answer.diagnosis.lines_after
        );
        text.push_str(&format!("  {}\n", paint(WARN, &wrap(&note, look.width, 2))));
    }
    text
}

fn shown((name, figure): (&str, Figure)) -> String {
    let name = name.replace('_', " ");
    match figure {
        Figure::Bytes(bytes) => format!("{name} {}", Bytes(bytes)),
        Figure::Number(number) => format!("{name} {number}"),
        Figure::Text(text) => format!("{name} {}", printable(&text)),
    }
}

/// Where it stands, and the line.
fn evidence(title: &str, found: &[Located<'_>], look: &Look) -> String {
    if found.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", paint(BOLD, title));
    for located in found.iter().take(MOST_SHOWN) {
        text.push_str(&format!("  {}\n", paint(DIM, &place(located, look))));
        if located.finding.line > 0 {
            text.push_str(&format!("  > {}\n", cut(&located.finding.text, look, 4)));
        }
    }
    if found.len() > MOST_SHOWN {
        text.push_str(&format!("  and {} more\n", found.len() - MOST_SHOWN));
    }
    text
}

fn place(located: &Located<'_>, look: &Look) -> String {
    let finding = located.finding;
    let line = if finding.line > 0 { format!(":{}", finding.line) } else { String::new() };
    let rank = located.rank().map(|rank| format!(" rank {rank}")).unwrap_or_default();
    let count = if finding.count > 1 { format!(" {} times", finding.count) } else { String::new() };
    let class = finding.cause.class();
    cut(&format!("{}{line}{rank}{count} {}", located.source.name, class.name()), look, 2)
}

/// The text, printable, in what is left of a line.
fn cut(text: &str, look: &Look, indent: usize) -> String {
    let mut text = printable(text);
    if !look.unicode {
        text = ascii(&text);
    }
    let room = look.width.saturating_sub(indent).max(20);
    if text.chars().count() <= room {
        return text;
    }
    let end = look.pick("…", "...");
    let head: String = text.chars().take(room - end.chars().count()).collect();
    head + end
}

fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() { plain.push(character) } else { plain.extend(character.escape_unicode()) }
    }
    plain
}

fn remedies(root: &Located<'_>, look: &Look) -> String {
    let mut text = format!("\n{}\n", paint(BOLD, "what to do"));
    for advice in advice(&root.finding.cause) {
        text.push_str(&format!("  {} {}\n", look.pick("•", "-"), wrap(&advice.text, look.width, 4)));
        if let Some(flag) = &advice.flag {
            // Not wrapped: it is there to be copied.
            text.push_str(&format!("      {}\n", paint(FLAG, flag)));
        }
    }
    text
}

/// The message beside the job's estimate, and what would make the job fit where it ran.
fn against(answer: &DoctorAnswer<'_>, job: &JobAnswer, look: &Look) -> String {
    let base = &job.proposals.base.judgement;
    let mut text = format!("\n{}\n", paint(BOLD, "against the job"));
    let predicted =
        format!("predicted {} allocated, {} in all", Bytes(base.peak_allocated_bytes), Bytes(base.total_bytes));
    text.push_str(&format!("  {}\n", wrap(&predicted, look.width, 2)));
    if let Some(needed) = answer.needed_bytes() {
        text.push_str(&format!("  {}\n", wrap(&verdict(needed, base.peak_allocated_bytes), look.width, 2)));
    }
    if let (Some(other), Some(total)) = (job.other_gpu, answer.memory().and_then(|memory| memory.total)) {
        let note = format!(
            "the log is of a GPU with {}, the job names one with {}: another GPU, or a slice of it; what follows is for the log's",
            Bytes(total),
            Bytes(other)
        );
        text.push_str(&format!("  {}\n", paint(WARN, &wrap(&note, look.width, 2))));
    }
    let neighbour = answer.memory().is_some_and(|memory| memory.reasons().contains(&Class::Neighbour));
    if neighbour {
        let note = "the GPU below is what the other processes left of it";
        text.push_str(&format!("  {}\n", paint(DIM, note)));
    }
    text.push('\n');
    text.push_str(&plan(&job.job, &job.proposals, &job.with, look));
    text
}

fn verdict(needed: u64, predicted: u64) -> String {
    let needed_text = format!("the run needed at least {} allocated", Bytes(needed));
    if needed as f64 > predicted as f64 * TOLERANCE {
        format!("{needed_text}: more than this job needs, so something else ran (batch, length, precision, evaluation)")
    } else {
        format!("{needed_text}: within what was predicted")
    }
}
