//! Gradient checkpointing with reentrance (torch/utils/checkpoint.py, `CheckpointFunction`, PyTorch 2.11): the first run leaves its
//! input alone; in backward the region runs again to its end, and an engine within the engine runs its tape.

use std::rc::Rc;

use super::autograd::{NodeBuilder, gradients};
use super::handle::Tensor;
use tonnage_alloc::trace::Category;

/// `CheckpointFunction.apply(region, input)`: keeps the input alone, and runs the region once more in backward.
pub(super) fn checkpoint_reentrant(input: &Tensor, region: Box<dyn Fn(&Tensor) -> Tensor>) -> Tensor {
    let context = Rc::clone(input.context());
    let node = NodeBuilder::new("CheckpointFunctionBackward", [input]);
    let autocast = context.autocast_dtype();
    let output = {
        let _no_grad = context.set_grad_enabled(false);
        region(input)
    };
    let saved = node.save(input);
    node.finish(output, move |grad| {
        let detached = saved.unpack().detach().into_parameter();
        let output = {
            let _grad = context.set_grad_enabled(true);
            let _node = context.enter_node(None);
            let _category = context.enter_category(Category::Recompute);
            let _autocast = context.autocast(autocast);
            let _module = context.enter_module(0);
            region(&detached)
        };
        output.backward_within(grad);
        gradients![detached.grad()]
    })
}
