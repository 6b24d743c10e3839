//! Gradient checkpointing.

use std::rc::Rc;

use super::handle::Tensor;
use super::stop::or_stop;

/// Runs `region` on `input` now and again in backward, keeping only the input (and what `region` itself captures).
pub(crate) fn checkpoint(input: &Tensor, region: impl Fn(&Tensor) -> Tensor + 'static) -> Tensor {
    let context = Rc::clone(input.context());
    let (input, region) = (input.clone(), Rc::new(region));
    let run = move || Ok(region(&input));
    or_stop(context.torch.checkpoint_here(context.device, run))
}
