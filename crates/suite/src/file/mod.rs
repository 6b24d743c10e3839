//! [`SuiteFile`]: a suite's file as it is written. The one reader, of `tonnage suite` and of `tonnage cost --suite`.

mod tables;
mod values;

use toml::Value;
use tonnage_core::job::JobError;

use crate::scaling::Scaling;
pub use tables::{Constraint, Elsewhere, GoesOn, Limits, Run, Table};
pub(crate) use values::flatten_table;
pub use values::{Axes, Settings, text_number, value_text};
use values::{check_value, read_axes, text_values};

/// More seeds of a configuration than this are not meant.
const MOST_SEEDS: u64 = 100_000;

/// A suite's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SuiteFile {
    /// What the suite is called; else the file is.
    pub name: Option<String>,
    /// The job file, or a model, that all start from.
    pub job: Option<String>,
    /// What is run, word by word, with `{names}`.
    pub command: Vec<String>,
    /// The folder that it runs in, from the file's own.
    pub directory: Option<String>,
    /// Files and folders whose content is the code's version.
    pub code: Vec<String>,
    /// The seeds of every configuration that names none.
    pub seeds: Option<Vec<u64>>,
    /// Whether runs of one seed see the same data in the same order.
    pub shares_data_order: Option<bool>,
    /// What only the command hears, with the value it has where nobody says another.
    pub parameters: Settings,
    /// What all configurations share.
    pub set: Settings,
    /// Axes of every configuration.
    pub matrix: Axes,
    /// Combinations that are left out.
    pub exclude: Vec<Settings>,
    pub tables: Vec<Table>,
    /// What must hold of every run.
    pub constraints: Vec<Constraint>,
    /// What follows the world size.
    pub scaling: Scaling,
    /// How runs are kept alive here.
    pub run: Run,
    /// Limits of sessions and jobs.
    pub limits: Limits,
    /// What schedulers are told.
    pub elsewhere: Elsewhere,
    /// Lines of the command's output that are metrics, with `{names}` for numbers.
    pub metrics: Vec<String>,
    /// The folder of a run's TensorBoard files, with `{names}`, from `directory`.
    pub tensorboard: Option<String>,
    /// The file itself.
    pub text: String,
}

/// The keys of a file, for who misspells one.
const KEYS: &str = "it has `name`, `job`, `command`, `directory`, `code`, `seeds`, `shares_data_order`, `metrics`, `tensorboard`, tables [parameters], \
                    [set], [matrix], [scaling], [run], [limits], [slurm], and tables [[configuration]], [[exclude]], [[constraint]]";

impl SuiteFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// When it is no TOML, or says what a suite does not have.
    pub fn read(source: &str) -> Result<Self, JobError> {
        let file: toml::Table = toml::from_str(source).map_err(|error| {
            let line = error.span().map_or(1, |span| source[..span.start].matches('\n').count() + 1);
            JobError::new(format!("line {line}: the suite is no TOML: {}", error.message()))
        })?;
        let mut suite = Self { text: source.to_owned(), ..Self::default() };
        for (key, value) in &file {
            suite.take_table(key, value, source)?;
        }
        if suite.tables.is_empty() && suite.matrix.is_empty() {
            return Err(JobError::new("the suite has no configuration").hint("add a table [[configuration]]"));
        }
        if suite.tables.is_empty() {
            suite.tables.push(Table::default());
        }
        suite.check()?;
        Ok(suite)
    }

    fn take_table(&mut self, key: &str, value: &Value, source: &str) -> Result<(), JobError> {
        match (key, value) {
            ("name", Value::String(name)) => self.name = Some(checked_name(name)?),
            ("job", Value::String(job)) => self.job = Some(job.clone()),
            ("command", value) => self.command = text_values(key, value)?,
            ("directory", Value::String(folder)) => self.directory = Some(folder.clone()),
            ("code", value) => self.code = text_values(key, value)?,
            ("seeds", value) => self.seeds = Some(read_seeds(value)?),
            ("shares_data_order", Value::Boolean(shares)) => self.shares_data_order = Some(*shares),
            ("metrics", value) => self.metrics = text_values(key, value)?,
            ("tensorboard", Value::String(folder)) => self.tensorboard = Some(folder.clone()),
            ("parameters", Value::Table(table)) => self.parameters = read_settings(table)?,
            ("set", Value::Table(table)) => self.set = read_settings(table)?,
            ("matrix", Value::Table(table)) => self.matrix = read_axes(table),
            ("scaling", Value::Table(table)) => self.scaling = Scaling::read(table)?,
            ("run", value @ Value::Table(_)) => self.run = tables::read("run", value)?,
            ("limits", value @ Value::Table(_)) => self.limits = tables::read("limits", value)?,
            ("slurm", value @ Value::Table(_)) => self.elsewhere = tables::read("slurm", value)?,
            ("exclude", Value::Array(rows)) => self.exclude = tables::read_exclusions(rows)?,
            ("constraint", Value::Array(rows)) => {
                self.constraints = rows.iter().map(|row| tables::read("constraint", row)).collect::<Result<_, _>>()?;
            }
            ("configuration", Value::Array(rows)) => self.tables = tables::read_configurations(rows, source)?,
            (
                "name" | "job" | "directory" | "shares_data_order" | "tensorboard" | "parameters" | "set" | "matrix"
                | "scaling" | "run" | "limits" | "slurm" | "exclude" | "constraint" | "configuration",
                _,
            ) => return Err(JobError::new(format!("`{key}` is of another kind")).hint(KEYS)),
            (other, _) => return Err(JobError::new(format!("a suite has no `{other}`")).hint(KEYS)),
        }
        Ok(())
    }

    /// What is said twice, or of nobody.
    fn check(&self) -> Result<(), JobError> {
        for table in &self.tables {
            if self.seeds.is_some() && table.count.is_some() {
                let problem = format!("{}: `count` beside the suite's `seeds`", table.place());
                return Err(JobError::new(problem).hint("give the configuration its own `seeds`"));
            }
        }
        if self.job.is_some() {
            return Ok(());
        }
        let everywhere = self.set.iter().chain(self.exclude.iter().flatten()).map(|(key, _)| key);
        let listed = self.tables.iter().flat_map(|table| table.axes.iter()).chain(&self.matrix).map(|(key, _)| key);
        match everywhere.chain(listed).find(|key| !self.is_parameter(key)).filter(|_| !self.command.is_empty()) {
            Some(key) => {
                Err(JobError::new(format!("`{key}` is no parameter, and the suite has no `job` whose key it might be"))
                    .hint(format!("declare it: [parameters] {key} = ..., or name the job")))
            }
            None => Ok(()),
        }
    }

    /// Where metrics of runs come from that do not write them themselves.
    #[cfg(unix)]
    pub fn metric_sources(&self) -> crate::measured::Sources {
        crate::measured::Sources { patterns: self.metrics.clone(), tensorboard: self.tensorboard.clone() }
    }

    /// Whether only the command hears `key`.
    pub fn is_parameter(&self, key: &str) -> bool {
        self.parameters.iter().any(|(name, _)| name == key)
    }

    /// The suite's name: its own, or that of its file.
    ///
    /// # Errors
    /// When the file's name is none that a folder may have.
    pub fn called(&self, file_stem: &str) -> Result<String, JobError> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => checked_name(file_stem),
        }
    }
}

/// A name that a folder, a SLURM job and a label may have.
fn checked_name(name: &str) -> Result<String, JobError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(fits) && !name.starts_with(['.', '-']);
    match is_name {
        true => Ok(name.to_owned()),
        false => Err(JobError::new(format!("`{}` is no name of a suite", name.escape_debug()))
            .hint("up to 64 letters, digits, `-`, `_` and `.`: name = \"...\" at the top of the file")),
    }
}

/// A list of seeds, or how many, from 0.
fn read_seeds(value: &Value) -> Result<Vec<u64>, JobError> {
    let wrong = || JobError::new("`seeds` is a number of seeds from 1, or a list of different whole numbers from 0");
    match value {
        Value::Integer(count) => match u64::try_from(*count) {
            Ok(count @ 1..=MOST_SEEDS) => Ok((0..count).collect()),
            _ => Err(wrong()),
        },
        Value::Array(list) => {
            let seed = |value: &Value| value.as_integer().and_then(|seed| u64::try_from(seed).ok());
            let seeds: Vec<u64> = list.iter().map(seed).collect::<Option<_>>().ok_or_else(wrong)?;
            let mut distinct = seeds.clone();
            distinct.sort_unstable();
            distinct.dedup();
            if seeds.is_empty() || distinct.len() < seeds.len() { Err(wrong()) } else { Ok(seeds) }
        }
        _ => Err(wrong()),
    }
}

/// A table whose keys have one value each.
fn read_settings(table: &toml::Table) -> Result<Settings, JobError> {
    flatten_table(table).into_iter().map(check_value).collect()
}
