//! Writes `docs/failures.md`: every class of failure, and every sample of `testdata/failures` with its source.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tonnage_core::failure::CLASSES;
use tonnage_core::printable::printable;
use tonnage_doctor::Scanner;

/// Arguments of `failures`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the samples.
    #[arg(long, default_value = "testdata/failures")]
    samples: PathBuf,
    /// The page to write or check.
    #[arg(long, default_value = "docs/failures.md")]
    out: PathBuf,
    /// Fails when the document is not what would be written, and writes nothing.
    #[arg(long)]
    check: bool,
}

const INTRODUCTION: &str = "# What `tonnage doctor` recognises

Written by `cargo xtask failures` from the samples in `testdata/failures`; a test reads every sample by its own class
alone, as it is, among other lines, behind launchers' prefixes, in colour and wrapped, and finds none of them in ordinary
logs, in this document or in the doctor's own output. Quoted lines (`>`, tables, comments) are not read.

A cause explains the rest; a death is a cause without a reason; an ending was asked for from outside; an echo follows from
another rank's death; a warning is often printed and not fatal. Exceptions are found wherever they stand, each rank's by
itself, with the innermost line of the program's own code; launchers' and victims' are told apart from the program's. Of
several causes the root is the one of the rank that a launcher names, else the earliest by the logs' own times; in one
process the last exception that nobody caught. A first rank is named only where a launcher, a lone exception or a
collective that stopped earlier than others' names it, or where several raised the same into one log, the first of them all
of its traceback before the next; who only waited in a collective that timed out is none, whoever names it.

Of commands that write one after another into a log the last one counts: what stands before is over where a launcher had
closed and another failed or went on, where the log's first lines come again, or where more follows than a program holds back
until it ends. Behind a scheduler's word that it cancelled the job, broken pipes and lost peers are no causes.

What shells, schedulers and C's library say in fixed words (`nvcc: not found`, `free(): invalid pointer`) counts as a log's last
words alone, for elsewhere it is talk.

What a job went on after (steps that rise, a good end, a new start) is no cause, nor is what is quoted: samples of data,
code, documents, git's output, warnings. The verdict says whether the same job may be started again as it is.

An out-of-memory message is told apart by its numbers. Missing is what was asked for less what was free (which is read
after the failure: up to 64 MiB more than was asked for counts as not free). Others' processes that held what was missing
are a `neighbour`; a process that holds more than the card has beside the allocator is the job itself. When the message is
written the allocator has given back every whole free segment, so that what is cached lies in pieces: three quarters of
it could be had by expandable segments, hence `fragmentation` where twice what was missing, and 512 MiB, are cached. Free
memory that was not given is `allocator_cap` where a limit or private pools are stated, or 512 MiB and 5 % more were free
and nobody else was there. Enough in this process beside the allocator is `outside_allocator`; else the job needs more
(`gpu_memory`).

`python testdata/ordinary/speed.py target/release/tonnage` measures how fast it reads a gigabyte of each kind of log
(ordinary training, tracebacks in colour, broken and interleaved lines, lines that are nearly failures), beside what
counting the same file's lines takes, and in how much memory.

DeepSpeed's launcher, and `torch.distributed.launch` of PyTorch 1, print the command of the last process they started
(`--local_rank=7`), whichever failed: it is taken for the first rank only where it is 0, for then there is no other.
";

struct Sample {
    class: String,
    form: String,
    source: String,
    text: String,
    signature: &'static str,
}

/// Writes the document, or checks it.
pub fn run(args: &Args) -> Result<()> {
    let document = failures_page(&args.samples)?;
    let path = &args.out;
    if !args.check {
        return fs::write(path, document).with_context(|| path.display().to_string());
    }
    let written = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    ensure!(document == written, "{} is out of date: run `cargo xtask failures`", path.display());
    Ok(())
}

fn failures_page(folder: &Path) -> Result<String> {
    let samples = read_samples(folder)?;
    let mut text =
        format!("{INTRODUCTION}\n## Classes\n\n| class | what happened | weight | samples |\n|---|---|---|---|\n");
    for (class, name, title) in CLASSES {
        let weight = class.strength().name();
        let count = samples.iter().filter(|sample| sample.class == *name).count();
        text.push_str(&format!("| [`{name}`](#{name}) | {title} | {weight} | {count} |\n"));
    }
    for (_, name, title) in CLASSES {
        text.push_str(&format!(
            "\n## {name}\nWhat happened: {title}.\n\n| text | source | signature | form |\n|---|---|---|---|\n"
        ));
        for sample in samples.iter().filter(|sample| sample.class == *name) {
            let Sample { text: line, source, signature, form, .. } = sample;
            text.push_str(&format!("| `{line}` | {source} | `{signature}` | {form} |\n"));
        }
    }
    Ok(text)
}

fn read_samples(folder: &Path) -> Result<Vec<Sample>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    paths.iter().map(|path| read_sample(path).with_context(|| path.display().to_string())).collect()
}

fn read_sample(path: &Path) -> Result<Sample> {
    let file = fs::read_to_string(path)?;
    let (header, text) = file.split_once("---\n").context("no header")?;
    let value = |key: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.map(str::to_owned).with_context(|| format!("no `{key}`"))
    };
    let mut scanner = Scanner::new();
    scanner.feed(text.as_bytes());
    let scan = scanner.finish();
    let found = scan.findings.first().context("is not recognised")?;
    Ok(Sample {
        class: value("class")?,
        form: value("form")?,
        source: value("source")?,
        text: table_cell(&found.text),
        signature: found.signature,
    })
}

/// The line as a table's cell: short, and without what ends a cell or code.
fn table_cell(text: &str) -> String {
    let text = printable(text).replace('|', "\\|").replace('`', "'");
    let short: String = text.chars().take(150).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}
