//! [`Suite`]: configurations of one job that are to be run, with what each costs beside the first.

use toml::Value;

use super::Resolve;
use super::appraisal::{Appraisal, appraise};
use super::time::{Scale, cost_factor};
use crate::estimate::SimulatedJob;
use crate::job::{JobError, JobSpec, Override, has_field};
use crate::work::Work;

/// More configurations than this take too long to be meant.
pub const MOST_CONFIGURATIONS: usize = 10_000;

/// A list of configurations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suite {
    /// The job file that all start from, as the suite's file names it.
    pub job: Option<String>,
    /// What they all change.
    pub set: Vec<Override>,
    /// The configurations.
    pub configurations: Vec<Configuration>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// What to call it.
    pub name: String,
    /// What it changes.
    pub changes: Vec<Override>,
    /// How often it is run (seeds, data sets).
    pub count: u64,
    /// The line of the suite's file in which its table begins, from 1.
    pub line: Option<usize>,
}

impl Configuration {
    /// `problem` with where it stands.
    fn place(&self, problem: &str) -> String {
        let line = self.line.map_or_else(String::new, |line| format!("line {line}, "));
        format!("{line}configuration `{}`: {problem}", self.name)
    }
}

/// A configuration with what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// The configuration.
    pub configuration: Configuration,
    /// Its bytes, hours and dollars, once; or why there is no such job.
    pub appraisal: Result<Appraisal, String>,
    /// Its simulated operations beside those of the first configuration.
    pub factor: Option<f64>,
}

impl Suite {
    /// Reads `[[configuration]]` tables, what they share in `[set]`, and `job`. A list of values of a key makes a
    /// configuration of each.
    ///
    /// # Errors
    /// When the text is no TOML, or names what a suite does not have.
    pub fn from_toml(text: &str) -> Result<Self, JobError> {
        let file: toml::Table = toml::from_str(text)
            .map_err(|error| JobError::new(format!("the suite is no TOML: {}", error.message())))?;
        let mut suite = Self::default();
        for (key, value) in file {
            match (key.as_str(), value) {
                ("job", Value::String(job)) => suite.job = Some(job),
                ("set", Value::Table(table)) => {
                    suite.set = flat(&table, "").into_iter().map(single).collect::<Result<_, _>>()?
                }
                ("configuration", Value::Array(tables)) => {
                    for (table, line) in tables.iter().zip(lines_of_tables(text)) {
                        let line = Some(line);
                        let written_out = configurations(table)?;
                        suite.configurations.extend(written_out.into_iter().map(|one| Configuration { line, ..one }));
                    }
                }
                (other, _) => {
                    let error = JobError::new(format!("a suite has no `{other}`"));
                    return Err(error.hint("it has `job`, a table [set], and tables [[configuration]]"));
                }
            }
        }
        if suite.configurations.is_empty() {
            return Err(JobError::new("the suite has no configuration").hint("add a table [[configuration]]"));
        }
        Ok(suite)
    }

    /// Refuses what belongs to another model than the one that `resolve` names without changes, and nodes of a swarm that
    /// train on another number of questions than the first configuration's: those are no comparison.
    ///
    /// # Errors
    /// With the configuration, its line and the key.
    pub fn check(&self, resolve: &Resolve<'_>) -> Result<(), JobError> {
        let Ok(plain) = resolve(&[]) else { return Ok(()) };
        let mut first: Option<u64> = None;
        for configuration in &self.configurations {
            let changes = [self.set.as_slice(), configuration.changes.as_slice()].concat();
            let names_model = changes.iter().any(|change| change.key == "model");
            let model_type = &plain.job.model.model_type;
            let fields = changes.iter().filter_map(|change| change.key.strip_prefix("model."));
            if let Some(field) = fields.filter(|_| !names_model).find(|field| !has_field(model_type, field)) {
                let problem = format!("`model.{field}`: the config of a `{model_type}` has no such field");
                let error = JobError::new(configuration.place(&problem));
                return Err(error.hint("the suite is another model's: name none, and its own `job` is taken"));
            }
            let Ok(resolved) = resolve(&changes) else { continue };
            let Some(swarm) = resolved.job.task.swarm() else { continue };
            let questions = swarm.local_questions.saturating_add(swarm.external_questions);
            let expected = *first.get_or_insert(questions);
            if questions != expected {
                let problem = format!(
                    "`swarm.local_questions` {} + `swarm.external_questions` {} are {questions} questions a step, \
                     the first configuration has {expected}: nodes that train on unlike batches are no comparison",
                    swarm.local_questions, swarm.external_questions
                );
                let error = JobError::new(configuration.place(&problem));
                return Err(error.hint("keep their sum, or give the other its own suite"));
            }
        }
        Ok(())
    }

    /// Every combination of the values of `axes`.
    ///
    /// # Errors
    /// When there are too many.
    pub fn of_axes(axes: &[Vec<Override>]) -> Result<Self, JobError> {
        let configurations = product(axes)?.into_iter().map(|changes| Configuration {
            name: named(&changes),
            changes,
            count: 1,
            line: None,
        });
        Ok(Self { configurations: configurations.collect(), ..Self::default() })
    }
}

/// The lines in which tables [[configuration]] begin, then the last line for all that are written otherwise.
fn lines_of_tables(text: &str) -> impl Iterator<Item = usize> {
    let is_head = |line: &str| line.split_whitespace().collect::<String>().starts_with("[[configuration]]");
    let heads: Vec<usize> = text.lines().zip(1..).filter(|(line, _)| is_head(line)).map(|(_, at)| at).collect();
    heads.into_iter().chain(std::iter::repeat(text.lines().count().max(1)))
}

/// The configurations that one table writes out.
fn configurations(table: &Value) -> Result<Vec<Configuration>, JobError> {
    let Value::Table(table) = table else {
        return Err(JobError::new("`configuration` must be tables: [[configuration]]"));
    };
    let mut table = table.clone();
    let name = match table.remove("name") {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err(JobError::new("a configuration's `name` must be a text")),
    };
    let count = match table.remove("count") {
        None => 1,
        Some(Value::Integer(count)) if count > 0 => count.unsigned_abs(),
        Some(_) => return Err(JobError::new("a configuration's `count` must be a whole number from 1")),
    };
    let axes: Vec<Vec<Override>> = flat(&table, "").into_iter().map(|(key, value)| values(&key, &value)).collect();
    let all = product(&axes)?;
    let several = all.len() > 1;
    Ok(all
        .into_iter()
        .map(|changes| Configuration {
            name: match &name {
                Some(name) if several => format!("{name} {}", named(&changes)),
                Some(name) => name.clone(),
                None => named(&changes),
            },
            changes,
            count,
            line: None,
        })
        .collect())
}

/// The keys of nested tables, joined by dots.
fn flat(table: &toml::Table, begin: &str) -> Vec<(String, Value)> {
    let one = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) => flat(inner, &format!("{begin}{key}.")),
        _ => vec![(format!("{begin}{key}"), value.clone())],
    };
    table.iter().flat_map(one).collect()
}

/// A value, or each of a list.
fn values(key: &str, value: &Value) -> Vec<Override> {
    match value {
        Value::Array(list) => list.iter().map(|value| set(key, value)).collect(),
        value => vec![set(key, value)],
    }
}

fn single((key, value): (String, Value)) -> Result<Override, JobError> {
    match value {
        Value::Array(_) => Err(JobError::new(format!("`{key}`: what all configurations share has one value"))
            .hint("put the list into a [[configuration]]")),
        value => Ok(set(&key, &value)),
    }
}

fn set(key: &str, value: &Value) -> Override {
    let value = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Override { key: key.to_owned(), flag: format!("{key}={value}"), value }
}

fn product(axes: &[Vec<Override>]) -> Result<Vec<Vec<Override>>, JobError> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        if all.len().saturating_mul(axis.len()) > MOST_CONFIGURATIONS {
            return Err(
                JobError::new(format!("more than {MOST_CONFIGURATIONS} configurations")).hint("give fewer values")
            );
        }
        let with =
            |changes: &Vec<Override>, change: &Override| [changes.as_slice(), std::slice::from_ref(change)].concat();
        all = all
            .iter()
            .flat_map(|changes| axis.iter().map(|change| with(changes, change)).collect::<Vec<_>>())
            .collect();
    }
    Ok(all)
}

fn named(changes: &[Override]) -> String {
    let short = |key: &str| key.strip_prefix("model.").unwrap_or(key).to_owned();
    match changes {
        [] => "as the job is".to_owned(),
        _ => changes.iter().map(|set| format!("{}={}", short(&set.key), set.value)).collect::<Vec<_>>().join(" "),
    }
}

/// The first configuration, which the others are compared with.
#[derive(Clone, Debug)]
pub struct Yardstick {
    job: JobSpec,
    work: Work,
    scale: Scale,
}

impl Yardstick {
    /// Simulates the first configuration.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn new(job: &JobSpec) -> Result<Self, crate::estimate::EstimateError> {
        let work = SimulatedJob::new(job)?.work().clone();
        let base = appraise(job, &job.gpu, Scale::Estimated)?;
        let scale = Scale::own(job).for_others(base.bill.as_ref().and_then(|bill| bill.estimated.as_ref()));
        Ok(Self { job: job.clone(), work, scale })
    }

    /// What `configuration` costs.
    pub fn price(&self, configuration: &Configuration, set: &[Override], resolve: &Resolve<'_>) -> Priced {
        let configuration = configuration.clone();
        let changes = [set, configuration.changes.as_slice()].concat();
        let job = match resolve(&changes) {
            Ok(resolved) => resolved.job,
            Err(error) => return Priced { configuration, appraisal: Err(error.problem), factor: None },
        };
        let factor =
            SimulatedJob::new(&job).ok().and_then(|simulated| cost_factor(simulated.work(), &self.work, self.steps()));
        let appraisal = appraise(&job, &job.gpu, self.scale).map_err(|error| error.to_string());
        Priced { configuration, appraisal, factor }
    }

    /// Steps over which operations are compared.
    fn steps(&self) -> u64 {
        self.job.run.length.map_or(super::time::STEPS_OF_A_SAMPLE, |length| length.steps(&self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Inputs, resolve};

    #[test]
    fn lists_make_a_configuration_of_each_value() {
        let text = "job = \"job.toml\"\n[set]\ngpu = \"h100\"\n[[configuration]]\nname = \"cycles\"\ncount = 3\n\
            model.H_cycles = [1, 2]\nmodel.L_cycles = [1, 2]\n[[configuration]]\nname = \"wide\"\nmodel.hidden_size = 768\n";
        let suite = Suite::from_toml(text).unwrap();
        assert_eq!((suite.job.as_deref(), suite.set[0].value.as_str()), (Some("job.toml"), "h100"));
        let names: Vec<_> = suite.configurations.iter().map(|one| (one.name.as_str(), one.count)).collect();
        let expected = [
            ("cycles H_cycles=1 L_cycles=1", 3),
            ("cycles H_cycles=1 L_cycles=2", 3),
            ("cycles H_cycles=2 L_cycles=1", 3),
            ("cycles H_cycles=2 L_cycles=2", 3),
            ("wide", 1),
        ];
        assert_eq!(names, expected);
    }

    fn checked(text: &str, model: &str) -> Result<(), JobError> {
        let model = Override { key: "model".to_owned(), value: model.to_owned(), flag: "MODEL".to_owned() };
        let resolve = |changes: &[Override]| {
            resolve(&Inputs {
                job_file: None,
                overrides: &[std::slice::from_ref(&model), changes].concat(),
                read_config: &|_| None,
            })
        };
        Suite::from_toml(text).unwrap().check(&resolve)
    }

    #[test]
    fn a_suite_of_another_model_or_of_unlike_nodes_is_refused_with_its_place() {
        let hrm = "[[configuration]]\nname = \"as it is\"\n\n[[configuration]]\nname = \"deep\"\nmodel.H_cycles = 4\n";
        let error = checked(hrm, "gpt2").unwrap_err();
        assert_eq!(
            error.problem,
            "line 4, configuration `deep`: `model.H_cycles`: the config of a `gpt2` has no such field"
        );
        assert_eq!(checked(hrm, "sapientinc/HRM-checkpoint-ARC-2"), Ok(()));
        let nodes = |external: u64| {
            format!(
                "[set]\ntask = \"swarm\"\n[[configuration]]\nname = \"8/0\"\nswarm.local_questions = 8\n\
                 [[configuration]]\nname = \"4/x\"\nswarm.local_questions = 4\nswarm.external_questions = {external}\n"
            )
        };
        assert_eq!(checked(&nodes(4), "gpt2"), Ok(()));
        let error = checked(&nodes(5), "gpt2").unwrap_err().problem;
        let expected =
            "line 6, configuration `4/x`: `swarm.local_questions` 4 + `swarm.external_questions` 5 are 9 questions";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            ("", "the suite has no configuration"),
            ("jobs = 1", "a suite has no `jobs`"),
            ("[[configuration]]\ncount = 0", "`count` must be"),
            ("[set]\nseq_len = [1, 2]\n[[configuration]]", "has one value"),
            ("=", "the suite is no TOML"),
        ];
        for (text, expected) in cases {
            let error = Suite::from_toml(text).unwrap_err();
            assert!(error.problem.contains(expected), "{text}: {error}");
        }
        let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
        let list = many.join(", ");
        let error = Suite::from_toml(&format!("[[configuration]]\nseq_len = [{list}]\nsteps = [{list}]")).unwrap_err();
        assert!(error.problem.contains("10000 configurations"));
    }
}
