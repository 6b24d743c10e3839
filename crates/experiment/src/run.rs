//! [`Run`]: what was read of one run, whatever wrote it.

use std::collections::BTreeMap;

use crate::record::{End, Identity, Item, Memory};
use crate::series::Series;

/// What was read of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What identifies it: records of one place are of one run.
    pub place: String,
    /// Who it is.
    pub identity: Identity,
    /// Whether the seed was read, and not only counted.
    pub seed_is_known: bool,
    /// Files that it was read from.
    pub files: Vec<String>,
    /// Its metrics, and its axes under their own names (`seconds`, `gpu_hours`, `tokens_generated`, `tokens_trained`, `flops`).
    pub series: BTreeMap<String, Series>,
    /// Questions and answers.
    pub items: Vec<Item>,
    pub memory: Memory,
    /// How it ended, where that is known.
    pub end: Option<End>,
    /// Nodes that it is the mean of; 1 of a run that is one process.
    pub nodes: usize,
    /// Things to know about it: points replaced, nodes put together.
    pub notes: Vec<String>,
}

impl Run {
    /// Its name in tables: configuration, seed, node.
    pub fn name(&self) -> String {
        let mut name = self.identity.configuration.clone();
        if let Some(seed) = self.identity.seed {
            name.push_str(&format!(" seed {seed}"));
        }
        if let Some(node) = &self.identity.node {
            name.push_str(&format!(" {node}"));
        }
        name
    }

    /// A metric's series.
    pub fn metric(&self, name: &str) -> Option<&Series> {
        self.series.get(name).filter(|series| !series.is_empty())
    }

    /// Adds a value.
    pub fn push(&mut self, metric: &str, step: f64, value: f64, line: usize) {
        match self.series.get_mut(metric) {
            Some(series) => series.push(step, value, line),
            None => {
                let mut series = Series::default();
                series.push(step, value, line);
                self.series.insert(metric.to_owned(), series);
            }
        }
    }

    /// Puts all series in order, and notes what was written twice.
    pub fn finish(&mut self) {
        let replaced = self.series.values_mut().map(Series::finish_points).max().unwrap_or(0);
        if replaced > 0 {
            self.notes.push(format!(
                "{replaced} steps were written twice, as by a run that was resumed: the later ones count"
            ));
        }
        self.since_the_beginning();
        if let (Some(gpus), Some(seconds), None) =
            (self.identity.gpus, self.series.get("seconds"), self.series.get("gpu_hours"))
        {
            let hours = Series::of_points(seconds.points().map(|(step, value)| (step, value * gpus as f64 / 3600.0)));
            self.series.insert("gpu_hours".to_owned(), hours);
        }
    }

    /// A clock's time becomes seconds of the run.
    fn since_the_beginning(&mut self) {
        let Some(first) = self.series.get("seconds").and_then(|seconds| seconds.values().first().copied()) else {
            return;
        };
        // No run takes three years.
        if first > 1e8 {
            let seconds = self.series.remove("seconds").unwrap_or_default();
            self.series
                .insert("seconds".to_owned(), Series::of_points(seconds.points().map(|(step, at)| (step, at - first))));
        }
    }

    /// Takes up what another reader found of the same run.
    pub fn join(&mut self, other: Self) {
        if self.identity.configuration.is_empty() || (!self.seed_is_known && other.seed_is_known) {
            self.identity = other.identity;
            self.seed_is_known = other.seed_is_known;
        }
        self.files.extend(other.files);
        for (name, series) in other.series {
            match self.series.get_mut(&name) {
                Some(mine) => {
                    let lines = (mine.lines.0, series.lines.1);
                    series.points().for_each(|(step, value)| mine.push(step, value, 0));
                    mine.lines = lines;
                }
                None => {
                    self.series.insert(name, series);
                }
            }
        }
        self.items.extend(other.items);
        let (mine, theirs) = (&mut self.memory, other.memory);
        mine.predicted_bytes = mine.predicted_bytes.or(theirs.predicted_bytes);
        mine.rehearsed_bytes = mine.rehearsed_bytes.or(theirs.rehearsed_bytes);
        mine.measured_bytes = mine.measured_bytes.or(theirs.measured_bytes);
        self.end = self.end.take().or(other.end);
        self.notes.extend(other.notes);
    }
}
