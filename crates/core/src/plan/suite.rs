//! [`Suite`]: configurations of one job that are to be run, with what each costs beside the first. Their file is read by
//! `tonnage-suite`.

use super::appraisal::{Appraisal, appraise_with_work};
use super::time::{Scale, cost_factor};
use crate::job::keys::MODEL;
use crate::job::{JobError, JobSource, JobSpec, Origin, Override, has_field};
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
    /// In the file's order.
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
#[non_exhaustive]
pub struct Priced {
    /// As the file has it.
    pub configuration: Configuration,
    /// Its bytes, hours and dollars, once; or why there is no such job.
    pub appraisal: Result<Appraisal, String>,
    /// Its simulated operations beside those of the first configuration.
    pub factor: Option<f64>,
}

impl Suite {
    /// Refuses what belongs to another model than the one that `source` names without changes, and nodes of a swarm that
    /// train on another number of questions than the first configuration's: those are no comparison.
    ///
    /// # Errors
    /// With the configuration, its line and the key.
    pub fn check(&self, source: &JobSource) -> Result<(), JobError> {
        let Ok(plain) = source.resolve(&[]) else { return Ok(()) };
        let mut first: Option<u64> = None;
        for configuration in &self.configurations {
            let changes = [self.set.as_slice(), configuration.changes.as_slice()].concat();
            let names_model = changes.iter().any(|change| change.key == MODEL);
            let model_type = &plain.job.model.model_type;
            let fields = changes.iter().filter_map(|change| change.key.strip_prefix("model."));
            if let Some(field) = fields.filter(|_| !names_model).find(|field| !has_field(model_type, field)) {
                let problem = format!("`model.{field}`: the config of a `{model_type}` has no such field");
                let error = JobError::new(configuration.place(&problem));
                return Err(error.hint("the suite is another model's: name none, and its own `job` is taken"));
            }
            let Ok(resolved) = source.resolve(&changes) else { continue };
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
        let configurations = all_combinations(axes)?.into_iter().map(|changes| Configuration {
            name: changes_in_words(&changes),
            changes,
            count: 1,
            line: None,
        });
        Ok(Self { configurations: configurations.collect(), ..Self::default() })
    }
}

/// A key set to `value`.
pub fn set_key(key: &str, value: &str) -> Override {
    Override::new(key, value, Origin::Suite(format!("{key}={value}")))
}

fn all_combinations(axes: &[Vec<Override>]) -> Result<Vec<Vec<Override>>, JobError> {
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

fn changes_in_words(changes: &[Override]) -> String {
    let short = |key: &str| key.strip_prefix("model.").unwrap_or(key).to_owned();
    match changes {
        [] => "as the job is".to_owned(),
        _ => changes.iter().map(|set| format!("{}={}", short(&set.key), set.value)).collect::<Vec<_>>().join(" "),
    }
}

/// The first configuration, which the others are compared with.
#[derive(Clone, Debug)]
pub struct CostReference {
    job: JobSpec,
    appraisal: Appraisal,
    work: Work,
    scale: Scale,
}

impl CostReference {
    /// Simulates the first configuration.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn new(job: &JobSpec) -> Result<Self, crate::estimate::EstimateError> {
        let (base, work) = appraise_with_work(job, Scale::Estimated)?;
        let scale = Scale::own(job).for_others(base.bill.as_ref().and_then(|bill| bill.estimated.as_ref()));
        let appraisal = base.rescaled(job, scale);
        Ok(Self { job: job.clone(), appraisal, work, scale })
    }

    /// What `configuration` costs.
    pub fn price_of(&self, configuration: &Configuration, set: &[Override], source: &JobSource) -> Priced {
        let configuration = configuration.clone();
        let changes = [set, configuration.changes.as_slice()].concat();
        let job = match source.resolve(&changes) {
            Ok(resolved) => resolved.job,
            Err(error) => return Priced { configuration, appraisal: Err(error.problem), factor: None },
        };
        let appraised = match job == self.job {
            true => Ok((self.appraisal.clone(), self.factor_of(&self.work))),
            false => appraise_with_work(&job, self.scale).map(|(appraisal, work)| (appraisal, self.factor_of(&work))),
        };
        match appraised {
            Ok((appraisal, factor)) => Priced { configuration, appraisal: Ok(appraisal), factor },
            Err(error) => Priced { configuration, appraisal: Err(error.to_string()), factor: None },
        }
    }

    /// How many times the reference's operations `work` has.
    fn factor_of(&self, work: &Work) -> Option<f64> {
        cost_factor(work, &self.work, self.steps())
    }

    /// Steps over which operations are compared.
    fn steps(&self) -> u64 {
        self.job.run.length.map_or(super::time::STEPS_OF_A_SAMPLE, |length| length.steps(&self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::keys::STEP_TIME;

    #[test]
    fn the_first_configuration_costs_what_its_own_simulation_says() {
        let plain = JobSource::model("gpt2").set("gpu", "l4").set("micro_batch_size", 2);
        let measured = plain.clone().set(STEP_TIME, 0.5);
        let without_rates = plain.clone().set("gpu", "24GiB").set(STEP_TIME, 0.5);
        for source in [plain, measured, without_rates] {
            let job = source.resolve(&[]).unwrap().job;
            let reference = CostReference::new(&job).unwrap();
            let priced = reference.price_of(&Configuration::default(), &[], &source);
            let (appraisal, _) = appraise_with_work(&job, reference.scale).unwrap();
            assert_eq!(priced.appraisal, Ok(appraisal));
            assert_eq!(priced.factor, Some(1.0));
        }
    }
}
