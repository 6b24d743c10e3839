//! [`Plan`]: every run of a suite with its identity, and what is predicted of it before anything starts.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tonnage_core::job::Override;
use tonnage_core::plan::appraisal::Appraisal;
use tonnage_core::plan::time::Range;
use tonnage_core::printable::printable;

use crate::code::Version;
use crate::expand::Configuration;
use crate::file::{SuiteFile, value_text};
use crate::identity::Makes;
use crate::pack::{Item, Machine, Placed, pack_items};

/// What a suite comes to; also the file in its folder that `status` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// The suite's name.
    pub suite: String,
    /// Where its file is.
    pub file: String,
    /// What was typed beside it.
    pub typed: Vec<String>,
    /// Groups that were wanted.
    pub groups: Vec<String>,
    /// The version of the code, for people.
    pub code: String,
    /// The folder that commands run in.
    pub directory: String,
    /// Where metrics of runs come from that do not write them themselves.
    #[cfg(unix)]
    pub sources: crate::measured::Sources,
    pub configurations: Vec<Planned>,
    pub runs: Vec<PlannedRun>,
}

/// A configuration in a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Planned {
    pub name: String,
    pub groups: Vec<String>,
    /// Keys of the job that it changes: key and value.
    pub changes: Vec<(String, String)>,
    /// Parameters of the command.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// What rules made of values.
    pub rules: Vec<String>,
    /// What is predicted of one run; `None` where no job was named.
    pub predicted: Option<Predicted>,
    /// Why there is no such job.
    pub error: Option<String>,
    /// Its runs that are another configuration's, too, and are no runs of their own.
    pub twins: Option<Twins>,
}

/// Runs that two configurations share, because nothing tells them apart but the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Twins {
    /// The configuration that has them.
    pub of: String,
    /// How many runs there are.
    pub runs: usize,
}

/// A run in a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedRun {
    pub id: String,
    /// The place of its configuration.
    pub configuration: usize,
    pub seed: u64,
}

/// What is predicted of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Predicted {
    /// A name of the catalog, or of the GPU file.
    pub gpu: String,
    /// GPUs that it takes.
    pub gpus: u64,
    /// Bytes of the fullest, contexts included.
    pub total_bytes: u64,
    /// What surely is enough.
    pub safe_bytes: u64,
    /// Peak of reserved bytes of a process.
    pub peak_reserved_bytes: u64,
    /// What the GPU has.
    pub usable_bytes: u64,
    /// `fits`, `tight` or `does not fit`.
    pub verdict: String,
    /// Wall time in seconds; `None` where the length of the training or the GPU's rates are not known.
    pub seconds: Option<Span>,
    /// Hours times GPUs.
    pub gpu_hours: Option<Span>,
    pub kilowatt_hours: Option<Span>,
    /// Only where a price is known.
    pub dollars: Option<Span>,
}

/// A range and the value that is likely within it, in the unit that the field names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub low: f64,
    pub typical: f64,
    pub high: f64,
}

impl From<Range> for Span {
    fn from(range: Range) -> Self {
        Self { low: range.low, typical: range.typical, high: range.high }
    }
}

impl Span {
    /// Both, one after the other.
    pub fn plus(self, other: Self) -> Self {
        Self { low: self.low + other.low, typical: self.typical + other.typical, high: self.high + other.high }
    }

    /// So many of it.
    pub fn times(self, count: f64) -> Self {
        Self { low: self.low * count, typical: self.typical * count, high: self.high * count }
    }
}

impl Predicted {
    /// What an appraisal says; time and what follows from it only of a training whose length is known.
    pub fn of_appraisal(appraisal: &Appraisal, gpu: &str, verdict: &str, gpus: u64) -> Self {
        let on_gpu = &appraisal.verdict;
        let costs = appraisal.bill.as_ref().filter(|bill| bill.is_whole).map(|bill| &bill.costs);
        Self {
            gpu: gpu.to_owned(),
            gpus,
            total_bytes: on_gpu.total_bytes,
            safe_bytes: on_gpu.safe_bytes,
            peak_reserved_bytes: on_gpu.peak_reserved_bytes,
            usable_bytes: on_gpu.usable_bytes,
            verdict: verdict.to_owned(),
            seconds: costs.map(|costs| costs.wall_seconds.into()),
            gpu_hours: costs.map(|costs| costs.gpu_hours.into()),
            kilowatt_hours: costs.and_then(|costs| costs.kilowatt_hours).map(Span::from),
            dollars: costs.and_then(|costs| costs.dollars).map(Span::from),
        }
    }
}

/// What the plan of a file is made of.
pub struct Making<'a> {
    pub file: &'a SuiteFile,
    /// As it was typed.
    pub path: &'a Path,
    /// The suite's name.
    pub name: &'a str,
    /// Its configurations, settled.
    pub configurations: &'a [Configuration],
    /// The folder that commands run in.
    pub directory: &'a Path,
    /// The version of the code.
    pub code: &'a Version,
    /// Keys that the job's file and those who typed say, for the identity.
    pub said: &'a [(String, String)],
    /// What was typed beside the file.
    pub typed: &'a [String],
    /// Groups that were wanted.
    pub groups: &'a [String],
}

impl Plan {
    /// The plan, `predicted` saying what each configuration is predicted to take, or why there is no such job.
    pub fn make_plan(making: &Making<'_>, predicted: Vec<Result<Option<Predicted>, String>>) -> Self {
        let directory = making.directory.display().to_string();
        let mut plan = Self {
            suite: making.name.to_owned(),
            file: making.path.display().to_string(),
            typed: making.typed.to_vec(),
            groups: making.groups.to_vec(),
            code: making.code.said.clone(),
            directory: directory.clone(),
            #[cfg(unix)]
            sources: making.file.metric_sources(),
            ..Self::default()
        };
        let mut known: HashMap<String, usize> = HashMap::new();
        for (at, (one, predicted)) in making.configurations.iter().zip(predicted).enumerate() {
            let command = fill_command(&making.file.command, &one.parameters, [making.name, &one.name], &str::to_owned);
            let mut job: BTreeMap<&str, &str> =
                making.said.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            job.extend(one.changes.iter().map(|change| (change.key.as_str(), change.value.as_str())));
            let mut makes = Makes {
                job: job.into_iter().collect(),
                parameters: one.parameters.iter().map(|(key, value)| (key.as_str(), value_text(value))).collect(),
                seed: 0,
                command: &command,
                directory: &directory,
                code: &making.code.id,
            };
            let mut twins: Option<Twins> = None;
            for seed in &one.seeds {
                makes.seed = *seed;
                let id = makes.identity();
                match known.entry(id.clone()) {
                    Entry::Occupied(first) => {
                        let of = || making.configurations[*first.get()].name.clone();
                        twins.get_or_insert_with(|| Twins { of: of(), runs: 0 }).runs += 1;
                    }
                    Entry::Vacant(free) => {
                        free.insert(at);
                        plan.runs.push(PlannedRun { id, configuration: at, seed: *seed });
                    }
                }
            }
            plan.configurations.push(Planned { twins, ..plan_configuration(one, predicted) });
        }
        plan
    }

    /// Of configurations whose runs are those of others: each run is made once, under the first name.
    pub fn twin_names(&self) -> Vec<String> {
        let sentence = |one: &Planned| {
            let Twins { of, runs } = one.twins.as_ref()?;
            let (are, they) = if *runs == 1 { ("run is one", "it is") } else { ("runs are", "they are") };
            let (name, of) = (printable(&one.name), printable(of));
            Some(format!("{runs} {are} of `{of}` under the name `{name}`, which differs in nothing: {they} made once"))
        };
        self.configurations.iter().filter_map(sentence).collect()
    }

    /// The configuration of a run.
    pub fn planned_of(&self, run: &PlannedRun) -> &Planned {
        static NONE: std::sync::LazyLock<Planned> = std::sync::LazyLock::new(Planned::default);
        self.configurations.get(run.configuration).unwrap_or(&NONE)
    }

    /// A run's name for people.
    pub fn run_name(&self, run: &PlannedRun) -> String {
        format!("{} seed {}", self.planned_of(run).name, run.seed)
    }

    /// Every run as what is to be placed.
    pub fn pack_items(&self) -> Vec<Item> {
        self.runs.iter().map(|run| pack_item(self.planned_of(run).predicted.as_ref())).collect()
    }

    /// Where and when every run would run on `machine`.
    pub fn packed_on(&self, machine: &Machine) -> Vec<Placed> {
        pack_items(&self.pack_items(), machine)
    }

    /// The sum over all runs of what `of` says of one; `None` where one's is not known.
    pub fn total(&self, of: impl Fn(&Predicted) -> Option<Span>) -> Option<Span> {
        let mut counts: HashMap<usize, usize> = HashMap::new();
        self.runs.iter().for_each(|run| *counts.entry(run.configuration).or_default() += 1);
        let each = counts
            .into_iter()
            .map(|(at, count)| Some(of(self.configurations.get(at)?.predicted.as_ref()?)?.times(count as f64)));
        each.collect::<Option<Vec<Span>>>().map(|spans| spans.into_iter().fold(Span::default(), Span::plus))
    }

    /// Jobs one after the other, each of `hours`, that the longest run of a configuration needs; `None` where its time is not
    /// known, and where nothing limits it.
    pub fn chain_links(&self, one: &Planned, hours: f64) -> Option<u64> {
        let seconds = one.predicted.as_ref()?.seconds?;
        (hours > 0.0).then(|| (seconds.high / (hours * 3600.0)).ceil().max(1.0) as u64)
    }
}

/// What of a run is to be placed.
pub fn pack_item(predicted: Option<&Predicted>) -> Item {
    predicted.map_or(Item { gpus: 1, bytes: 0, seconds: 0.0 }, |predicted| Item {
        gpus: usize::try_from(predicted.gpus).unwrap_or(usize::MAX),
        // Alone a run has the whole GPU; beside others what surely is enough for it.
        bytes: predicted.safe_bytes.min(predicted.usable_bytes).max(predicted.total_bytes),
        seconds: predicted.seconds.map_or(0.0, |span| span.typical),
    })
}

fn plan_configuration(one: &Configuration, predicted: Result<Option<Predicted>, String>) -> Planned {
    let pair = |change: &Override| (change.key.clone(), change.value.clone());
    let json = |value: &toml::Value| serde_json::to_value(value).unwrap_or_else(|_| value_text(value).into());
    Planned {
        name: one.name.clone(),
        groups: one.groups.clone(),
        changes: one.changes.iter().map(pair).collect(),
        parameters: one.parameters.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
        rules: one.rules.clone(),
        error: predicted.as_ref().err().cloned(),
        predicted: predicted.ok().flatten(),
        twins: None,
    }
}

/// The command with the suite's own names filled in: parameters, `{suite}`, `{configuration}`. All others are left to `tonnage run`.
/// `written` says how a value is written.
pub fn fill_command(
    command: &[String],
    parameters: &BTreeMap<String, toml::Value>,
    [suite, configuration]: [&str; 2],
    written: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let meaning = |name: &str| match name {
        "suite" => Some(written(suite)),
        "configuration" => Some(written(configuration)),
        _ => parameters.get(name).map(|value| written(&value_text(value))),
    };
    fill_names(command, &meaning)
}

/// The command with every name filled in that means something.
pub fn fill_names(command: &[String], meaning: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    command.iter().map(|word| fill_word(word, meaning)).collect()
}

/// One pass from the left: what a value holds is no name again, and `{{name}}` is `{name}`.
fn fill_word(word: &str, meaning: &dyn Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let doubled = rest.strip_prefix("{{").and_then(|rest| rest.split_once("}}"));
        if let Some((name, after)) = doubled.filter(|(name, _)| meaning(name).is_some()) {
            filled.push_str(&format!("{{{name}}}"));
            rest = after;
            continue;
        }
        match rest.find('}').and_then(|end| Some((end, meaning(&rest[1..end])?))) {
            Some((end, value)) => {
                filled.push_str(&value);
                rest = &rest[end + 1..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_once() {
        let parameters = BTreeMap::from([
            ("lr".to_owned(), toml::Value::Float(3e-4)),
            ("text".to_owned(), toml::Value::String("{lr} $(rm -rf /) `x` \"'\n".to_owned())),
        ]);
        let command: Vec<String> = ["t", "--lr={lr}", "{text}", "{seed}", "{{lr}}", "{nothing}", "{configuration}"]
            .map(str::to_owned)
            .to_vec();
        let filled = fill_command(&command, &parameters, ["s", "4/4 seed"], &str::to_owned);
        let expected = ["t", "--lr=0.0003", "{lr} $(rm -rf /) `x` \"'\n", "{seed}", "{lr}", "{nothing}", "4/4 seed"];
        assert_eq!(filled, expected);
    }
}
