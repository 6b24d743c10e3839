//! What can be known before PyTorch is touched: whether the job is one that is trained here, and what its data comes to.

use tonnage_train::Prepared;
use tonnage_train::program::Program;

use super::engine::train_failure;
use super::job::TrainJob;
use crate::failure::Failure;

/// A line on data and first weights.
///
/// # Errors
/// When the job cannot be trained, or its data, tokenizer or weights cannot be read.
pub fn check_training(job: &TrainJob, program: &Program<'_>, needs_weights: bool) -> Result<String, Failure> {
    let ranks = job.resolved.job.parallel.world_size.max(1);
    let ready = Prepared::new(program, ranks, 0).map_err(|error| train_failure(&error))?;
    if needs_weights {
        program.check_weights().map_err(|error| train_failure(&error))?;
    }
    let weights = program.first_weights().map_err(|error| train_failure(&error))?;
    let from = weights
        .map_or_else(|| "from new weights".to_owned(), |folder| format!("from the weights in {}", folder.display()));
    let notes: String = ready.notes().iter().map(|note| format!("; {note}")).collect();
    let about = ready.about_data().map_err(|error| train_failure(&error))?;
    Ok(format!("{about}, {from}{notes}"))
}
