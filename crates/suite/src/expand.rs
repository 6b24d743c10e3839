//! A suite's file becomes configurations: every combination of its lists, without those left out, with what was typed on top, the
//! rules of the world size applied, and every constraint held.

use std::collections::{BTreeMap, HashSet};
use tonnage_core::job::keys;

use toml::Value;
use tonnage_core::job::{JobError, Override};
use tonnage_core::plan::suite::{self, MOST_CONFIGURATIONS};

use crate::file::{Axes, Settings, SuiteFile, Table, text_number, value_text};

/// What is compared: runs of it differ in nothing but the seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// What to call it, different from all others.
    pub name: String,
    /// The groups that it is in: its table's name, and those that the table names.
    pub groups: Vec<String>,
    /// Keys of the job that it changes, what all share first.
    pub changes: Vec<Override>,
    /// How many of `changes` all configurations share.
    pub shared: usize,
    /// Every parameter with its value.
    pub parameters: BTreeMap<String, Value>,
    pub seeds: Vec<u64>,
    /// The line of its table, from 1.
    pub line: Option<usize>,
    /// What a rule made of its values, in words.
    pub rules: Vec<String>,
    /// Keys that it, or who typed, set: no rule touches them.
    set: HashSet<String>,
}

/// What was typed beside the file: values that win, and lists that make a configuration of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Typed {
    /// Keys with their values, in the order of typing.
    pub axes: Axes,
    /// Groups or configurations that are wanted; all where there are none.
    pub groups: Vec<String>,
}

impl Typed {
    /// Reads `a.b=1` or `a=1,2`.
    ///
    /// # Errors
    /// When a word sets nothing.
    pub fn read(words: &[String], groups: &[String]) -> Result<Self, JobError> {
        let axis = |word: &String| {
            let given = Override::assignment(word)?;
            let values = listed_values(&given.value);
            match values.is_empty() {
                true => {
                    Err(JobError::new(format!("`{word}` names no value")).hint("write it as `key=value` or `key=a,b`"))
                }
                false => Ok((given.key, values)),
            }
        };
        let axes: Axes = words.iter().map(axis).collect::<Result<_, JobError>>()?;
        if let Some((key, _)) = axes
            .iter()
            .enumerate()
            .find(|(at, one)| axes[..*at].iter().any(|other| other.0 == one.0))
            .map(|(_, one)| one)
        {
            return Err(JobError::new(format!("`{key}` is set twice")).hint("leave out one of them"));
        }
        Ok(Self { axes, groups: groups.iter().filter(|group| *group != ALL).cloned().collect() })
    }
}

impl Typed {
    /// Takes out the one value that was typed for `key`.
    pub fn take_one(&mut self, key: &str) -> Option<String> {
        let at = self.axes.iter().position(|(name, values)| name == key && values.len() == 1)?;
        self.axes.remove(at).1.first().map(value_text)
    }
}

/// The group of all configurations.
pub const ALL: &str = "all";

/// The values of a list without brackets; commas in quotes, brackets and braces part nothing.
fn listed_values(typed: &str) -> Vec<Value> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0i32, None);
    for letter in typed.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth <= 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().into_iter().for_each(|part| part.push(letter));
    }
    let value = |part: &String| {
        let read: Result<toml::Table, _> = toml::from_str(&format!("v = {}", part.trim()));
        let value = read.ok().and_then(|mut table| table.remove("v"));
        value.unwrap_or_else(|| Value::String(part.trim().to_owned()))
    };
    let mut values: Vec<Value> = parts.iter().filter(|part| !part.trim().is_empty()).map(value).collect();
    // `a=[1,2]` is a list as well.
    if let [Value::Array(list)] = values.as_slice() {
        values = list.clone();
    }
    values
}

/// All configurations of `file` with what was `typed`.
///
/// # Errors
/// When there are too many, two have one name, or a group is not there.
pub fn expand_file(file: &SuiteFile, typed: &Typed) -> Result<Vec<Configuration>, JobError> {
    let mut all: Vec<Configuration> = Vec::new();
    for table in &file.tables {
        let room = MOST_CONFIGURATIONS - all.len();
        all.extend(of_table(file, table, typed, room)?);
    }
    distinct_names(&all)?;
    choose_groups(all, &typed.groups)
}

/// The configurations of one table.
fn of_table(file: &SuiteFile, table: &Table, typed: &Typed, room: usize) -> Result<Vec<Configuration>, JobError> {
    let is_typed = |key: &str| typed.axes.iter().any(|(name, _)| name == key);
    let in_table = |key: &str| table.axes.iter().any(|(name, _)| name == key);
    let of_matrix = file.matrix.iter().filter(|(key, _)| !in_table(key));
    let axes: Axes =
        table.axes.iter().chain(of_matrix).filter(|(key, _)| !is_typed(key)).chain(&typed.axes).cloned().collect();
    let excluded: Vec<&Settings> = file.exclude.iter().chain(&table.exclude).collect();
    let mut combinations = axes_product(&axes, room)?;
    combinations.retain(|values| !excluded.iter().any(|rule| matches_rule(rule, values)));
    // A key with one value tells no configuration from another, unless the table has no name.
    let varied: Vec<&str> = axes
        .iter()
        .filter(|(key, values)| values.len() > 1 || (table.name.is_none() && !is_typed(key)))
        .map(|(key, _)| key.as_str())
        .collect();
    let made = combinations.into_iter().map(|values| {
        let shown = values.iter().filter(|(key, _)| varied.contains(&key.as_str()));
        make_configuration(file, table, &values, shown.cloned().collect())
    });
    Ok(made.collect())
}

fn make_configuration(file: &SuiteFile, table: &Table, values: &Settings, shown: Settings) -> Configuration {
    let (of_command, of_job): (Vec<_>, Vec<_>) = values.iter().cloned().partition(|(key, _)| file.is_parameter(key));
    let (set_command, set_job): (Vec<_>, Vec<_>) =
        file.set.iter().cloned().partition(|(key, _)| file.is_parameter(key));
    let parameters = file.parameters.iter().chain(&set_command).chain(&of_command).cloned().collect();
    let shared: Vec<Override> =
        set_job.iter().filter(|(key, _)| of_job.iter().all(|(other, _)| other != key)).map(as_override).collect();
    let seeds = match (&table.seeds, &file.seeds, table.count) {
        (Some(seeds), _, _) | (None, Some(seeds), _) => seeds.clone(),
        (None, None, count) => (0..count.unwrap_or(1)).collect(),
    };
    // Naming a model sets its fields anew: it comes first.
    let (models, others): (Vec<_>, Vec<_>) =
        of_job.iter().map(as_override).partition(|change| change.key == keys::MODEL);
    Configuration {
        name: configuration_name(table.name.as_deref(), &shown),
        groups: table.name.iter().chain(&table.groups).cloned().collect(),
        shared: shared.len(),
        changes: shared.into_iter().chain(models).chain(others).collect(),
        parameters,
        seeds,
        line: table.line,
        rules: Vec::new(),
        set: values.iter().map(|(key, _)| key.clone()).collect(),
    }
}

fn as_override((key, value): &(String, Value)) -> Override {
    suite::set_key(key, &value_text(value))
}

fn configuration_name(table: Option<&str>, shown: &Settings) -> String {
    let short = |key: &str| key.strip_prefix("model.").unwrap_or(key).to_owned();
    let values: Vec<String> =
        shown.iter().map(|(key, value)| format!("{}={}", short(key), value_text(value))).collect();
    match (table, values.is_empty()) {
        (Some(name), true) => name.to_owned(),
        (Some(name), false) => format!("{name} {}", values.join(" ")),
        (None, true) => "as the job is".to_owned(),
        (None, false) => values.join(" "),
    }
}

fn matches_rule(rule: &Settings, values: &Settings) -> bool {
    rule.iter().all(|(key, value)| values.iter().any(|(other, of)| other == key && value_text(of) == value_text(value)))
}

/// Every combination of the axes' values.
fn axes_product(axes: &Axes, room: usize) -> Result<Vec<Settings>, JobError> {
    let count = axes.iter().try_fold(1usize, |count, (_, values)| count.checked_mul(values.len()));
    if count.is_none_or(|count| count > room) {
        return Err(JobError::new(format!("more than {MOST_CONFIGURATIONS} configurations")).hint("give fewer values"));
    }
    let mut all = vec![Vec::new()];
    for (key, values) in axes {
        let with = |before: &Settings, value: &Value| {
            before.iter().cloned().chain([(key.clone(), value.clone())]).collect::<Settings>()
        };
        all =
            all.iter().flat_map(|before| values.iter().map(|value| with(before, value)).collect::<Vec<_>>()).collect();
    }
    Ok(all)
}

fn distinct_names(all: &[Configuration]) -> Result<(), JobError> {
    let mut names = HashSet::new();
    match all.iter().find(|one| !names.insert(one.name.as_str())) {
        Some(one) => Err(JobError::new(format!("{}: an earlier one is called so", one.place()))
            .hint("give each its own `name`: results are put together by it")),
        None => Ok(()),
    }
}

/// Those of the groups, in the order of the file.
fn choose_groups(all: Vec<Configuration>, groups: &[String]) -> Result<Vec<Configuration>, JobError> {
    let known = |group: &String| all.iter().any(|one| one.is_of(group));
    if let Some(unknown) = groups.iter().find(|group| !known(group)) {
        let mut there: Vec<&str> = all.iter().flat_map(|one| one.groups.iter().map(String::as_str)).collect();
        there.dedup();
        there.truncate(20);
        return Err(JobError::new(format!("the suite has no `{}`", unknown.escape_debug()))
            .hint(format!("it has {}, and {ALL}", there.join(", "))));
    }
    let kept: Vec<Configuration> =
        all.into_iter().filter(|one| groups.is_empty() || groups.iter().any(|group| one.is_of(group))).collect();
    match kept.is_empty() {
        true => Err(JobError::new("every combination is excluded")),
        false => Ok(kept),
    }
}

impl Configuration {
    fn is_of(&self, group: &str) -> bool {
        self.name == group || self.groups.iter().any(|own| own == group)
    }

    /// Where it stands, for errors.
    pub fn place(&self) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("line {line}, "));
        format!("{line}configuration `{}`", self.name)
    }

    /// The error, with where it stands.
    fn placed(&self, error: JobError) -> JobError {
        error.within(&self.place())
    }

    /// Applies the rules of the world size and holds the constraints; `job` says the value of a key of the job with changes.
    fn settle_one(&mut self, file: &SuiteFile, job: &Lookup<'_>) -> Result<(), JobError> {
        let world_size = self.value(keys::WORLD_SIZE, job).and_then(|text| text_number(&text)).unwrap_or(1.0) as u64;
        for (key, _) in &file.scaling.rules {
            let base = match self.parameters.get(key) {
                Some(value) => Some(value.clone()),
                None => job(&self.changes, key).map(|text| read(&text)),
            };
            let Some(base) = base.filter(|_| !self.set.contains(key)) else { continue };
            let scaled = file.scaling.apply_to(key, &base, world_size).map_err(|error| self.placed(error))?;
            let Some(scaled) = scaled else { continue };
            match self.parameters.get_mut(key) {
                Some(value) => *value = scaled.value,
                None => self.changes.push(suite::set_key(key, &value_text(&scaled.value))),
            }
            self.rules.push(scaled.said);
        }
        Ok(())
    }

    /// A key's value, of the command or of the job.
    pub fn value(&self, key: &str, job: &Lookup<'_>) -> Option<String> {
        self.parameters.get(key).map(value_text).or_else(|| job(&self.changes, key))
    }
}

/// The value of a job's key with changes; `None` where the job has no such key, or there is none.
pub type Lookup<'a> = dyn Fn(&[Override], &str) -> Option<String> + 'a;

fn read(written: &str) -> Value {
    listed_values(written).into_iter().next().unwrap_or_else(|| Value::String(written.to_owned()))
}

/// Applies the rules of the world size to all, and holds every constraint.
///
/// # Errors
/// When a rule has nothing to scale, or a constraint does not hold; with the configuration and its line.
pub fn settle_all(all: &mut [Configuration], file: &SuiteFile, job: &Lookup<'_>) -> Result<(), JobError> {
    for one in all.iter_mut() {
        one.settle_one(file, job)?;
    }
    for constraint in &file.constraints {
        constraint.check()?;
        let mut first: Option<f64> = None;
        for one in all.iter() {
            let (value, said) = constraint.value(one, job).map_err(|error| one.placed(error))?;
            let expected = *first.get_or_insert(value);
            if let Some(broken) = constraint.broken_by(value, expected) {
                let error = JobError::new(format!("{said} is {value}, {broken}"));
                return Err(one.placed(error.hint("change the configuration, or the [[constraint]]")));
            }
        }
    }
    Ok(())
}

impl crate::file::Constraint {
    fn check(&self) -> Result<(), JobError> {
        match (self.sum.is_empty(), self.product.is_empty()) {
            (true, true) | (false, false) => {
                Err(JobError::new("a [[constraint]] has either `sum` or `product`, a list of keys"))
            }
            _ => Ok(()),
        }
    }

    /// The sum or the product, and how it is made.
    fn value(&self, one: &Configuration, job: &Lookup<'_>) -> Result<(f64, String), JobError> {
        let (keys, sign) = if self.sum.is_empty() { (&self.product, " x ") } else { (&self.sum, " + ") };
        let mut numbers = Vec::new();
        for key in keys {
            let text = one.value(key, job).ok_or_else(|| {
                JobError::new(format!("a [[constraint]] names `{key}`, which is no parameter and no key of the job"))
            })?;
            let value = text_number(&text).ok_or_else(|| JobError::new(format!("`{key}` = {text} is no number")))?;
            numbers.push((format!("`{key}` {value}"), value));
        }
        let said: Vec<&str> = numbers.iter().map(|(said, _)| said.as_str()).collect();
        let values = numbers.iter().map(|(_, value)| value);
        let value = if self.sum.is_empty() { values.product() } else { values.sum() };
        Ok((value, said.join(sign)))
    }

    /// How `value` breaks it.
    fn broken_by(&self, value: f64, first: f64) -> Option<String> {
        let is_said = self.is.is_some() || self.at_least.is_some() || self.at_most.is_some();
        match self {
            Self { is: Some(is), .. } if value != *is => Some(format!("it must be {is}")),
            Self { at_least: Some(least), .. } if value < *least => Some(format!("it must be at least {least}")),
            Self { at_most: Some(most), .. } if value > *most => Some(format!("it must be at most {most}")),
            _ if !is_said && value != first => Some(format!("the first configuration has {first}")),
            _ => None,
        }
    }
}

/// The suite as `tonnage cost` prices it: what changes the job, each configuration as often as it has seeds.
pub fn priced_suite(file: &SuiteFile, all: &[Configuration]) -> suite::Suite {
    let shared = file.set.iter().filter(|(key, _)| !file.is_parameter(key)).map(as_override).collect();
    let one = |one: &Configuration| suite::Configuration {
        name: one.name.clone(),
        changes: one.changes[one.shared..].to_vec(),
        count: one.seeds.len() as u64,
        line: one.line,
    };
    suite::Suite { job: file.job.clone(), set: shared, configurations: all.iter().map(one).collect() }
}

#[cfg(test)]
mod tests;
