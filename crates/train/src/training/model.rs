//! Calls of the model, as loops make them: transformers' models return the loss of their labels; of the small GPT of the guide, which
//! returns logits, its trainer takes it.

use tonnage_torch::{Argument, Tensor, TorchError, operator};

use crate::cache::Cache;
use crate::error::TrainError;
use crate::language_model::{Call, LanguageModel};

/// What a call returns.
#[expect(dead_code, reason = "a Python loop that keeps the outputs keeps all of them alive")]
pub(super) struct Outputs {
    /// The mean over all labels.
    pub loss: Tensor,
    logits: Option<Tensor>,
    past_key_values: Option<Cache>,
}

/// The loss of `labels`; keys and values are kept where `caches`, as a model does whose config says `use_cache`.
pub(super) fn call_with_labels(
    model: &LanguageModel,
    input_ids: &Tensor,
    labels: &Tensor,
    caches: bool,
) -> Result<Outputs, TrainError> {
    if !model.returns_loss() {
        let (input_ids, targets) = shifted(input_ids, labels)?;
        let logits = logits_of(model, &input_ids)?;
        return Ok(Outputs { loss: mean_loss(&logits, &targets)?, logits: Some(logits), past_key_values: None });
    }
    let cache = caches.then(|| model.new_cache());
    let output = model.forward(Call { labels: Some(labels), cache: cache.as_ref(), ..Call::of_tokens(input_ids) })?;
    let missing = || TrainError::Vocabulary("the model returned no loss for its labels".to_owned());
    Ok(Outputs { loss: output.loss.ok_or_else(missing)?, logits: output.logits, past_key_values: cache })
}

/// Logits of all positions.
pub(super) fn logits_of(model: &LanguageModel, input_ids: &Tensor) -> Result<Tensor, TrainError> {
    let missing = || TrainError::Vocabulary("the model returned no logits".to_owned());
    model.forward(Call::of_tokens(input_ids))?.logits.ok_or_else(missing)
}

/// All tokens of rows but the last, all labels but the first.
pub(super) fn shifted(input_ids: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor), TorchError> {
    let tokens = input_ids.sizes().get(1).copied().unwrap_or(0);
    let slice = |tensor: &Tensor, start: i64, end: i64| {
        let arguments = [tensor.into(), Argument::Int(1), start.into(), end.into()];
        tensor.torch().call(operator!("slice", "Tensor"), &arguments)?.tensor()
    };
    Ok((slice(input_ids, 0, tokens - 1)?, slice(labels, 1, tokens)?))
}

/// The mean loss of `targets` by logits of as many positions.
pub(super) fn mean_loss(logits: &Tensor, targets: &Tensor) -> Result<Tensor, TorchError> {
    let torch = logits.torch();
    let vocabulary = logits.sizes().last().copied().unwrap_or(0);
    let rows = targets.numel();
    let flat = torch.call(operator!("reshape"), &[logits.into(), [rows, vocabulary].into()])?.tensor()?;
    let targets = torch.call(operator!("reshape"), &[targets.into(), [rows].into()])?.tensor()?;
    torch.call(operator!("cross_entropy_loss"), &[(&flat).into(), (&targets).into()])?.tensor()
}
