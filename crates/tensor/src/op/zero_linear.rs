//! `LinearFunctionForZeroStage3` (deepspeed/runtime/zero/linear.py, 0.19.8): what DeepSpeed's stage 3 puts in the place of
//! `torch.nn.functional.linear`. It saves the weight itself, whose data may go and come back, and no view of it.

use crate::tensor::{NodeBuilder, Saved, Shape, Tensor, gradients};

impl Tensor {
    /// `zero3_linear_wrap(self, weight, bias)`
    pub(super) fn linear_for_zero(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let inputs: Vec<&Tensor> = [self, weight].into_iter().chain(bias).collect();
        let node = NodeBuilder::new("LinearFunctionForZeroStage3Backward", inputs);
        let needs = [node.needs(0), node.needs(1), node.needs(2)];
        let out = {
            let _no_grad = self.context().set_grad_enabled(false);
            match bias {
                Some(bias) if self.sizes().len() == 2 => bias.addmm(self, &weight.t()),
                _ => self.matmul(&weight.t()),
            }
        };
        // `setup_context` comes after the forward.
        let saved_input = node.save(self);
        let saved_weight = node.save(weight);
        let saved_bias = bias.map(|bias| node.save(bias));
        node.finish(out, move |grad| {
            let (input, weight) = (saved_input.unpack(), saved_weight.unpack());
            let _bias = saved_bias.as_ref().map(Saved::unpack);
            let input_grad = needs[0].then(|| grad.matmul(&weight));
            let weight_grad = needs[1].then(|| grad.folded().t().matmul(&input.folded()));
            let bias_grad = needs[2].then(|| grad.sum_to(&Shape::new(&[grad.size(-1)])));
            gradients![input_grad, weight_grad, bias_grad]
        })
    }

    /// `self.reshape(-1, self.shape[-1])`
    fn folded(&self) -> Tensor {
        match self.sizes().len() {
            2 => self.clone(),
            _ => self.reshape(&[self.numel() / self.size(-1).max(1), self.size(-1)]),
        }
    }
}
