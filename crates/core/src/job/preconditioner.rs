//! What optimizers that precondition gradients by both sides of a matrix are told: SOAP's arguments, in `optim_args`.

use super::error::JobErrorKind;
use super::{JobError, JobSpec, OptimizerKind, keys};

/// Arguments of `pytorch_optimizer.SOAP` that decide what it keeps and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreconditionerSpec {
    /// The largest dimension that has a preconditioner.
    pub max_dimension: u64,
    /// Steps after which eigenvectors are made anew.
    pub frequency: u64,
}

impl Default for PreconditionerSpec {
    /// Of `pytorch_optimizer.SOAP` (4.1).
    fn default() -> Self {
        Self { max_dimension: 10_000, frequency: 10 }
    }
}

impl PreconditionerSpec {
    /// With an optimizer's `optim_args`: `max_precondition_dim=8192, precondition_frequency=5`.
    pub(crate) fn with_arguments(mut self, kind: OptimizerKind, text: &str) -> Result<Self, JobError> {
        let text = text.replace(' ', "");
        for argument in text.split(',').filter(|argument| !argument.is_empty()) {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            let place = match (kind, name) {
                (OptimizerKind::Soap, "max_precondition_dim") => &mut self.max_dimension,
                (OptimizerKind::Soap, "precondition_frequency") => &mut self.frequency,
                _ => return Err(refused(argument)),
            };
            let read = value.parse().ok().filter(|read| (1..=1 << 20).contains(read));
            *place = read.ok_or_else(|| refused(argument))?;
        }
        Ok(self)
    }
}

impl JobSpec {
    /// Whether a step that is not among the first three takes more than they do: SOAP's that turns the eigenvectors.
    pub(crate) fn turns_late(&self) -> bool {
        let frequency = self.preconditioner.frequency;
        self.task.trains()
            && self.optimizer == OptimizerKind::Soap
            && frequency > 2
            && u64::from(self.steps) > frequency
    }
}

fn refused(argument: &str) -> JobError {
    let problem = format!("`{}`: `{argument}` is not simulated", keys::OPTIM_ARGS);
    JobError::of_kind(JobErrorKind::Unsimulated, problem)
        .about(&[keys::OPTIM_ARGS])
        .hint("max_precondition_dim and precondition_frequency are, of soap")
        .or_rehearse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_the_optimizer() {
        let read = |kind, text| PreconditionerSpec::default().with_arguments(kind, text);
        let spec = read(OptimizerKind::Soap, "max_precondition_dim=512, precondition_frequency=3").unwrap();
        assert_eq!((spec.max_dimension, spec.frequency), (512, 3));
        for (kind, wrong) in [
            (OptimizerKind::Soap, "merge_dims=True"),
            (OptimizerKind::Soap, "precondition_frequency=0"),
            (OptimizerKind::Shampoo, "precondition_frequency=3"),
        ] {
            assert!(read(kind, wrong).is_err(), "{wrong}");
        }
    }
}
