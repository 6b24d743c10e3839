//! What processes that train together must tell each other.

use tonnage_torch::Tensor;

use crate::error::TrainError;

/// The processes of a training, of which this is one.
pub trait Ranks {
    /// How many.
    fn count(&self) -> u64;

    /// This one, from 0.
    fn rank(&self) -> u64;

    /// Makes every gradient the mean over all ranks.
    ///
    /// # Errors
    /// When a rank has gone.
    fn average(&self, gradients: &[Tensor]) -> Result<(), TrainError>;

    /// The sum of numbers over all ranks, each for itself; the same on every rank.
    ///
    /// # Errors
    /// When a rank has gone.
    fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>, TrainError>;

    /// Makes the tensors those of rank 0.
    ///
    /// # Errors
    /// When a rank has gone.
    fn broadcast(&self, tensors: &[Tensor]) -> Result<(), TrainError>;
}

/// One process.
pub struct Alone;

impl Ranks for Alone {
    fn count(&self) -> u64 {
        1
    }

    fn rank(&self) -> u64 {
        0
    }

    fn average(&self, _: &[Tensor]) -> Result<(), TrainError> {
        Ok(())
    }

    fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>, TrainError> {
        Ok(numbers.to_vec())
    }

    fn broadcast(&self, _: &[Tensor]) -> Result<(), TrainError> {
        Ok(())
    }
}
