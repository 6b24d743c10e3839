//! The parts of a report, a file and a line in `SECTIONS` each: numbers of the experiment become blocks of the document.

mod answers;
mod axes;
mod claims;
mod configurations;
mod cost;
mod cumulative;
mod curves;
mod memory;
mod milestones;
mod rewards;
mod sources;

use crate::axis::Axis;
use crate::check::{self, Flag};
use crate::compare::{Comparison, compare_configurations};
use crate::document::{Block, Document};
use crate::experiment::Experiment;
use crate::source::{Gathered, NotRead};
use crate::statistics::Resampling;

/// What a report was made of and by, so that it can be made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// What was read, as it was named.
    pub of: String,
    /// The command, to be pasted.
    pub command: String,
    /// The version of Tonnage.
    pub version: String,
}

/// What sections see.
pub struct Context<'a> {
    pub all: &'a Experiment,
    /// What the checks found.
    pub flags: &'a [Flag],
    /// Comparisons with the baseline, by axis.
    pub comparisons: &'a [(Axis, Vec<Comparison>)],
    /// Files read, by reader.
    pub read: &'a [(String, &'static str)],
    /// Files not read.
    pub not_read: &'a [NotRead],
    /// Files that hold no metrics.
    pub others: &'a [String],
    /// Series that were thinned.
    pub thinned: usize,
    /// By what the report was made.
    pub made: &'a Made,
}

/// All sections, in the order of the report.
const SECTIONS: &[fn(&Context<'_>) -> Vec<Block>] = &[
    claims::section,
    configurations::section,
    curves::section,
    axes::section,
    cumulative::section,
    rewards::section,
    answers::section,
    milestones::section,
    memory::section,
    cost::section,
    sources::section,
];

/// The report of `all`.
pub fn make_document(all: &Experiment, gathered: &Gathered, made: &Made) -> (Document, Vec<Flag>) {
    let flags = check::all_flags(all);
    let refuted = |configuration: &str| check::refuted(&flags, configuration);
    let comparisons: Vec<(Axis, Vec<Comparison>)> =
        all.axes.iter().map(|axis| (*axis, compare_configurations(all, *axis, &refuted))).collect();
    let context = Context {
        all,
        flags: &flags,
        comparisons: &comparisons,
        read: &gathered.read,
        not_read: &gathered.not_read,
        others: &gathered.others,
        thinned: gathered.thinned,
        made,
    };
    let blocks = SECTIONS.iter().flat_map(|section| section(&context)).collect();
    (Document { title: format!("Report of {}", made.of), blocks }, flags)
}

/// Configurations in one table; further ones are counted.
const MOST_ROWS: usize = 200;

impl Context<'_> {
    /// The axis that comes first.
    fn axis(&self) -> Axis {
        self.all.axes.first().copied().unwrap_or(Axis::Steps)
    }

    /// How far all configurations got on it.
    fn budget(&self) -> f64 {
        self.all.budget(self.axis()).unwrap_or(f64::INFINITY)
    }
}

/// The resampling of a report with so many configurations: bounded as a whole.
fn resampling(configurations: usize, values: usize) -> Resampling {
    Resampling::default().within(40_000_000 / configurations.max(1), values)
}

/// `1 run`, `3 runs`.
fn counted_words(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
