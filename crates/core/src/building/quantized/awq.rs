//! `AwqGEMMLinear` of gptqmodel 7.6 (nn_modules/qlinear/gemm_awq.py, gptqmodel_ext/awq), which holds checkpoints of AWQ: many rows are
//! multiplied by the unpacked weight, few by the packed one, and backward unpacks it again.

use std::rc::Rc;

use crate::building::builder::Builder;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};
use crate::trace::Category;

/// Weights in an int32.
const PACKED: u64 = 8;
/// More rows than these are multiplied by the unpacked weight.
const MOST_ROWS_PACKED: u64 = 1024;
/// Sums that the kernel of few rows keeps apart, in fp32.
const SPLIT_K: u64 = 8;

/// A layer's packed weight.
pub(crate) struct AwqWeight {
    packed: Rc<AwqPacked>,
}

/// Its buffers, which its backward reads again: weights and zeros in int32, scales in fp16.
struct AwqPacked {
    qweight: Tensor,
    /// Inputs by outputs of the weight once it is unpacked.
    sizes: Shape,
    _zeros_scales: [Tensor; 2],
}

impl AwqWeight {
    /// Its buffers in the order of a checkpoint's names; `group` inputs share a scale and a zero, all do where it is 0.
    pub(super) fn load(at: &Builder, [outputs, inputs]: [u64; 2], group: u64) -> Self {
        let groups = inputs / if group == 0 { inputs } else { group }.max(1);
        let load = |name, sizes: &[u64], dtype| {
            at.begin_load(name);
            at.load(sizes, dtype, Category::Parameter)
        };
        let qweight = load("qweight", &[inputs, outputs / PACKED], DType::Int32);
        let qzeros = load("qzeros", &[groups, outputs / PACKED], DType::Int32);
        let scales = load("scales", &[groups, outputs], DType::Float16);
        [&qzeros, &scales].into_iter().for_each(|tensor| at.list_beside(tensor));
        let sizes = Shape::new(&[inputs, outputs]);
        Self { packed: Rc::new(AwqPacked { qweight, sizes, _zeros_scales: [qzeros, scales] }) }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.packed.qweight
    }

    /// The layer computes in fp16 whatever comes in: other dtypes are cast and cast back.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let input_dtype = x.dtype();
        let sizes = x.sizes().with(x.sizes().len() - 1, self.packed.sizes[1]);
        let x = x.to(DType::Float16).contiguous();
        let out = self.multiply(&x, bias);
        out.to(input_dtype).reshape(&sizes)
    }

    /// `AwqGemmFn`: nothing of the input is kept.
    fn multiply(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let sizes = x.sizes().with(x.sizes().len() - 1, self.packed.sizes[1]);
        let node = NodeBuilder::new("AwqGemmFnBackward", [x]);
        let output = {
            let _no_grad = x.context().set_grad_enabled(false);
            let product = self.packed.multiply(&x.reshape(&[x.numel() / x.size(-1).max(1), x.size(-1)]));
            let sum = match bias {
                Some(bias) => &product + bias,
                None => product,
            };
            sum.reshape(&sizes)
        };
        let packed = Rc::clone(&self.packed);
        node.finish(output, move |grad| {
            let weights = packed.unpack().to(grad.dtype());
            let rows = grad.reshape(&[grad.numel() / grad.size(-1).max(1), grad.size(-1)]);
            let sizes = grad.sizes().with(grad.sizes().len() - 1, packed.sizes[0]);
            gradients![rows.matmul(&weights.t()).reshape(&sizes)]
        })
    }
}

impl AwqPacked {
    /// The product of rows.
    fn multiply(&self, rows: &Tensor) -> Tensor {
        if rows.size(0) > MOST_ROWS_PACKED {
            return rows.matmul(&self.unpack().to(rows.dtype()));
        }
        let sizes = [rows.size(0), self.sizes[1]];
        let context = rows.context();
        let sums = Tensor::empty(context, "gemm_forward", Shape::new(&[SPLIT_K, sizes[0], sizes[1]]), DType::Float32);
        let product = Tensor::empty(context, "gemm_forward", Shape::new(&sizes), rows.dtype());
        super::count_product(rows.bytes(), self.sizes[0], &self.qweight, &product);
        drop(sums);
        product
    }

    /// `dequantize_weights`: [inputs, outputs] in the dtype of the scales.
    fn unpack(&self) -> Tensor {
        Tensor::empty(self.qweight.context(), "dequantize_weights", self.sizes, DType::Float16)
    }
}
