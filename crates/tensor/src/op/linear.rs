//! `linear` and its kin as one node of the tape.
//!
//! PyTorch records a matrix product between views: `t`, `view`, `mm`, `_unsafe_view`. Nothing comes between the nodes
//! of such a chain in backward, so one node that does what they do, in their order, leaves the same trace for a
//! fraction of the work. What does not fit the pattern takes the long way (`matmul.rs`).

use super::matmul::count_sums;
use crate::tensor::{Delivered, Gradients, NodeBuilder, Saved, Shape, Tensor, cast_arguments, gradients, is_autocast};

/// The nodes of a chain that leave traces of their own.
#[derive(Clone, Copy)]
struct Chain {
    op: &'static str,
    product: &'static str,
    /// The node of the view of the product.
    view: &'static str,
    /// The nodes that deliver the gradients.
    deliver: Delivered,
    /// Whether the weight is [outputs, inputs], and `t` is one of the nodes.
    transposes_weight: bool,
}

const MM: Chain = Chain {
    op: "mm.default",
    product: "MmBackward0",
    view: "UnsafeViewBackward0",
    deliver: &(&["ViewBackward0", "TBackward0"] as &[&str]),
    transposes_weight: true,
};
const ADDMM: Chain = Chain {
    op: "addmm.default",
    product: "AddmmBackward0",
    view: "ViewBackward0",
    deliver: &(&["AddmmBackward0", "TBackward0", "ViewBackward0"] as &[&str]),
    transposes_weight: true,
};
const CONV1D: Chain = Chain {
    deliver: &(&["AddmmBackward0", "AddmmBackward0", "ViewBackward0"] as &[&str]),
    transposes_weight: false,
    ..ADDMM
};

impl Tensor {
    /// `linear(self, weight, bias)`: with a bias one `addmm` on the input folded to a matrix, without one `matmul`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        if self.context().has_replaced_linear() {
            return self.linear_for_zero(weight, bias);
        }
        let Some(bias) = bias else {
            let [input, weight] = cast_arguments([self, weight]);
            return if input.is_chain(&weight) { input.multiply(MM, &weight) } else { input.matmul(&weight.t()) };
        };
        let [input, weight, bias] = cast_arguments([self, weight, bias]);
        if input.is_chain(&weight) {
            return input.multiply_and_add(ADDMM, &weight, &bias);
        }
        if input.sizes().len() == 2 {
            return bias.addmm(&input, &weight.t());
        }
        if !input.is_contiguous() {
            return input.matmul(&weight.t()).add_in_place(&bias);
        }
        let out_sizes = input.sizes().with(input.sizes().len() - 1, weight.size(0));
        let folded = input.reshape(&[input.numel() / input.size(-1), input.size(-1)]);
        bias.addmm(&folded, &weight.t()).view(&out_sizes)
    }

    /// `Conv1D`'s `addmm(bias, self, weight)` with a weight [inputs, outputs], between views.
    pub fn conv1d(&self, weight: &Tensor, bias: &Tensor) -> Tensor {
        // Autocast's casts would come between the nodes.
        if !is_autocast(self) && self.is_chain(weight) {
            return self.multiply_and_add(CONV1D, weight, bias);
        }
        let out_sizes = self.sizes().with(self.sizes().len() - 1, weight.size(1));
        let folded = self.view(&[self.numel() / self.size(-1), self.size(-1)]);
        bias.addmm(&folded, weight).view(&out_sizes)
    }

    /// Whether the views round a product with `weight` are plain: no copies, and no matrix that is at once row-major
    /// and column-major.
    fn is_chain(&self, weight: &Tensor) -> bool {
        let row_major = self.is_contiguous() && weight.is_contiguous();
        row_major && self.sizes().len() > 2 && weight.sizes().iter().chain([&self.numel()]).all(|size| *size > 1)
    }

    fn multiply(&self, chain: Chain, weight: &Tensor) -> Tensor {
        let node = NodeBuilder::new(chain.product, [self, weight]);
        let mut product = Product::new(chain, weight);
        product.weight = node.save_for(0, &product.saved_weight(weight));
        product.input = node.save_for(1, self);
        let out = product.forward(self, weight);
        node.finish_chain(out, chain.deliver, move |grad| {
            let Some(grad) = product.fold(grad) else { return Gradients::new() };
            let weight = product.weight.as_ref().map(Saved::unpack);
            let input = product.input.as_ref().map(Saved::unpack);
            let weight_grad = input.as_ref().map(|input| product.weight_gradient(grad, input));
            let input_grad = weight.as_ref().map(|weight| product.input_gradient(grad, weight));
            gradients![input_grad, weight_grad]
        })
    }

    fn multiply_and_add(&self, chain: Chain, weight: &Tensor, bias: &Tensor) -> Tensor {
        let node = NodeBuilder::new(chain.product, [bias, weight, self]);
        let mut product = Product::new(chain, weight);
        product.input = node.save_for(1, self);
        product.weight = node.save_for(2, &product.saved_weight(weight));
        let needs_bias = node.needs(0);
        let out = product.forward(self, weight);
        self.context().need_cublaslt_workspace(chain.op);
        node.finish_chain(out, chain.deliver, move |grad| {
            let Some(grad) = product.fold(grad) else { return Gradients::new() };
            let input = product.input.as_ref().map(Saved::unpack);
            let weight = product.weight.as_ref().map(Saved::unpack);
            let input_grad = weight.as_ref().map(|weight| product.input_gradient(grad, weight));
            let weight_grad = input.as_ref().map(|input| product.weight_gradient(grad, input));
            let bias_grad = needs_bias.then(|| grad.reshape(&product.folded(grad)));
            gradients![bias_grad, weight_grad, input_grad]
        })
    }
}

/// The product in a chain, for its gradients.
struct Product {
    chain: Chain,
    inputs: u64,
    outputs: u64,
    /// For the gradient of the other one.
    input: Option<Saved>,
    weight: Option<Saved>,
}

impl Product {
    fn new(chain: Chain, weight: &Tensor) -> Self {
        let [first, second] = [weight.size(0), weight.size(1)];
        let (outputs, inputs) = if chain.transposes_weight { (first, second) } else { (second, first) };
        Self { chain, inputs, outputs, input: None, weight: None }
    }

    /// The weight as `mm` saves it: where copies are kept it matters that it is a transpose.
    fn saved_weight(&self, weight: &Tensor) -> Tensor {
        let is_copied = self.chain.transposes_weight && weight.context().copies_saved_tensors();
        if is_copied { weight.alias(weight.layout().transposed(0, 1)) } else { weight.clone() }
    }

    fn forward(&self, input: &Tensor, weight: &Tensor) -> Tensor {
        let sizes = input.sizes().with(input.sizes().len() - 1, self.outputs);
        let out = Tensor::empty(input.context(), self.chain.op, sizes, input.dtype());
        input.context().need_cublas_workspace(self.chain.op);
        count_sums(self.inputs, [input, weight], &out);
        out
    }

    /// The gradient of the product's view, a copy where it has no such view itself.
    fn fold<'a>(&self, grad: &'a mut Option<Tensor>) -> Option<&'a Tensor> {
        let grad = grad.as_mut()?;
        if grad.layout().viewed_as(Shape::new(&self.folded(grad))).is_none() {
            let context = grad.context().clone();
            let _node = context.enter_node(Some(self.chain.view));
            *grad = grad.clone_contiguous();
        }
        Some(grad)
    }

    fn folded(&self, grad: &Tensor) -> [u64; 2] {
        [grad.numel() / self.outputs, self.outputs]
    }

    /// A view of `grad @ weight`.
    fn input_gradient(&self, grad: &Tensor, weight: &Tensor) -> Tensor {
        let sizes = grad.sizes().with(grad.sizes().len() - 1, self.inputs);
        let out = Tensor::empty_view(grad.context(), MM.op, sizes, grad.dtype());
        grad.context().need_cublas_workspace(MM.op);
        count_sums(self.outputs, [grad, weight], &out);
        out
    }

    /// `grad.t() @ input`, for `linear` as a view of its transpose.
    fn weight_gradient(&self, grad: &Tensor, input: &Tensor) -> Tensor {
        let (context, dtype) = (grad.context(), grad.dtype());
        let out = if self.chain.transposes_weight {
            Tensor::empty_view(context, MM.op, Shape::new(&[self.outputs, self.inputs]), dtype)
        } else {
            Tensor::empty(context, MM.op, Shape::new(&[self.inputs, self.outputs]), dtype)
        };
        context.need_cublas_workspace(MM.op);
        count_sums(grad.numel() / self.outputs, [grad, input], &out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::dtype::DType;
    use crate::tensor::Context;
    use tonnage_alloc::trace::Trace;

    type Layer = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

    /// Each layer as one node, and as the chain of nodes it stands for.
    const LAYERS: [[Layer; 2]; 3] = [
        [|x, weight, _| x.linear(weight, None), |x, weight, _| x.matmul(&weight.t())],
        [
            |x, weight, bias| x.linear(weight, Some(bias)),
            |x, weight, bias| {
                let folded = x.reshape(&[x.numel() / x.size(-1), x.size(-1)]);
                bias.addmm(&folded, &weight.t()).view(&x.sizes().with(2, weight.size(0)))
            },
        ],
        [
            |x, weight, bias| x.conv1d(weight, bias),
            |x, weight, bias| {
                let folded = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
                bias.addmm(&folded, weight).view(&x.sizes().with(2, weight.size(1)))
            },
        ],
    ];

    /// Two passes, so that gradients meet. The transposed result hands back a gradient that has no view as a matrix.
    fn train(layer: Layer, input_is_leaf: bool, transposes: bool) -> Trace {
        let context = Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 });
        let parameter = |sizes: &[u64]| {
            Tensor::empty(&context, "empty.default", Shape::new(sizes), DType::Bfloat16).into_parameter()
        };
        let (x, weight, bias) = (parameter(&[2, 6, 8]), parameter(&[8, 8]), parameter(&[8]));
        for _ in 0..2 {
            let input = if input_is_leaf { x.clone() } else { x.mul_scalar(1.0) };
            let out = &layer(&input, &weight, &bias) + &input;
            drop(input);
            let loss = if transposes { out.transpose(1, 2).clone_contiguous() } else { out.mul_scalar(1.0) };
            drop(out);
            loss.backward();
        }
        context.end();
        context.take_trace()
    }

    #[test]
    fn one_node_leaves_the_trace_of_the_chain() {
        for (at, [one, chain]) in LAYERS.into_iter().enumerate() {
            for (input_is_leaf, transposes) in [(false, false), (false, true), (true, false), (true, true)] {
                let traces = [one, chain].map(|layer| train(layer, input_is_leaf, transposes));
                assert_eq!(traces[0], traces[1], "layer {at}, leaf {input_is_leaf}, transposes {transposes}");
            }
        }
    }
}
