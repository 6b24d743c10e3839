//! How an error of an operator leaves a model.

use std::panic::{self, AssertUnwindSafe};

use tonnage_torch::TorchError;

use crate::error::TrainError;

/// Unwinds with the error, past the model, to [`caught`] or to the checkpoint that runs it. No panic hook sees it.
pub(crate) fn stop(error: TorchError) -> ! {
    panic::resume_unwind(Box::new(error))
}

pub(crate) fn or_stop<T>(result: Result<T, TorchError>) -> T {
    result.unwrap_or_else(|error| stop(error))
}

/// Runs a model; what an operator in it failed with is returned. Panics go on.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, TrainError> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| match payload.downcast::<TorchError>() {
        Ok(error) => TrainError::Torch(*error),
        Err(other) => panic::resume_unwind(other),
    })
}
