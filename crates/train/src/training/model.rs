//! What the loop asks of a model.

use tonnage_torch::Tensor;

use crate::agi2::Agi2;
use crate::cache::Cache;
use crate::error::TrainError;

/// A call of the model.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a> {
    /// Token numbers, rows times tokens, on the model's device.
    pub input_ids: &'a Tensor,
    /// What is learnt, in the same shape.
    pub labels: &'a Tensor,
    /// Whether keys and values are kept, as a model does whose config says `use_cache`.
    pub caches: bool,
}

/// What a call returns.
pub struct Outputs {
    /// The mean over all labels.
    pub loss: Tensor,
    /// Of all positions.
    pub logits: Option<Tensor>,
    /// `past_key_values`: whoever keeps the outputs keeps them.
    pub cache: Option<Cache>,
}

/// A model that can be trained.
pub trait Trainable {
    /// Computes the loss.
    ///
    /// # Errors
    /// PyTorch's, out of memory above all.
    fn forward(&self, call: Forward<'_>) -> Result<Outputs, TrainError>;

    /// The weights that are trained, with their names, in the order of `model.parameters()`.
    fn trained(&self) -> Vec<(String, Tensor)>;

    /// `model.train()` and `model.eval()`.
    fn train(&self, training: bool);

    /// The module in which the last error arose, by its path.
    fn module_that_failed(&self) -> Option<String>;

    /// The small GPT whose trainer has a loop of its own, where it is that.
    fn own_loop(&self) -> Option<&Agi2> {
        None
    }
}
