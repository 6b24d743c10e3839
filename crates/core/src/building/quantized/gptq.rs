//! `QuantLinear` of GPTQ's checkpoints in 4 bits (fms-acceleration's part of gptqmodel at 876e2ed,
//! nn_modules/qlinear/qlinear_tritonv2.py, which is AutoGPTQ's of that name): every product unpacks the weight first.

use std::rc::Rc;

use crate::building::builder::Builder;
use crate::dtype::DType;
use crate::tensor::{NodeBuilder, Shape, Tensor, gradients};
use crate::trace::Category;

/// Weights in an int32.
const PACKED: u64 = 8;

/// A layer's packed weight.
pub(crate) struct GptqWeight {
    packed: Rc<GptqPacked>,
}

/// Its buffers, of which FSDP shards the packed ones.
pub(super) struct GptqPacked {
    qweight: Tensor,
    /// Inputs by outputs of the weight once it is unpacked.
    sizes: Shape,
    _zeros_scales_groups: [Tensor; 3],
}

impl GptqWeight {
    /// Buffers in the order that they are registered in; under FSDP packed weights and zeros are parameters.
    /// `group` inputs share a scale and a zero; all do, where it is 0.
    pub(super) fn load(at: &Builder, [outputs, inputs]: [u64; 2], group: u64) -> Self {
        let groups = inputs.div_ceil(if group == 0 { inputs.max(1) } else { group });
        let load = |sizes: &[u64], dtype| at.load(sizes, dtype, Category::Parameter);
        let shardable = |sizes: [u64; 2]| {
            let packed = load(&sizes, DType::Int32);
            let elements = packed.bytes() / at.dtype().size();
            at.shard_packed(packed, elements)
        };
        at.begin_load("qweight");
        let qweight = shardable([inputs.div_ceil(PACKED), outputs]);
        let qzeros = shardable([groups, outputs.div_ceil(PACKED)]);
        let scales = load(&[groups, outputs], DType::Float16);
        let g_idx = load(&[inputs], DType::Int32);
        let sizes = Shape::new(&[inputs, outputs]);
        Self { packed: Rc::new(GptqPacked { qweight, sizes, _zeros_scales_groups: [qzeros, scales, g_idx] }) }
    }

    pub(super) fn weight(&self) -> &Tensor {
        &self.packed.qweight
    }

    pub(super) fn packed(&self) -> Rc<GptqPacked> {
        Rc::clone(&self.packed)
    }

    /// `QuantLinearFunction`: nothing of the input is kept; backward unpacks the weight again.
    pub(super) fn forward(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let sizes = x.sizes().with(x.sizes().len() - 1, self.packed.sizes[1]);
        let rows = x.reshape(&[x.numel() / x.size(-1).max(1), x.size(-1)]);
        let node = NodeBuilder::new("QuantLinearFunctionBackward", [&rows]);
        let output = {
            let _no_grad = x.context().set_grad_enabled(false);
            rows.matmul(&self.packed.unpack())
        };
        let packed = Rc::clone(&self.packed);
        let autocast = x.context().autocast_dtype();
        let out = node.finish(output, move |grad| {
            let _autocast = grad.context().autocast(autocast);
            gradients![grad.matmul(&packed.unpack().t())]
        });
        let out = out.to(DType::Float16).reshape(&sizes);
        match bias {
            Some(bias) => &out + bias,
            None => out,
        }
    }
}

impl GptqPacked {
    /// `dequant248`: [inputs, outputs], in fp16 always.
    pub(super) fn unpack(&self) -> Tensor {
        Tensor::empty(self.qweight.context(), "empty.memory_format", self.sizes, DType::Float16)
    }
}
